"""Sizes that remember where they come from.

A closed form such as `(height + 2 - 3) // 2 + 1` is written once in a
catalogue entry. Given ints it computes a size; given `Dim`s it computes the
same size and the expression over size names that yields it, which the
renderer writes into the source. Expressions are kept as sums of atoms, so
that a convolution which preserves its input gives back the plain name.
"""

from __future__ import annotations

from functools import lru_cache
from types import CodeType

Shape = tuple[int, ...]


class Dim(int):
    """An int with the expression over size names that it stands for."""

    terms: tuple[tuple[str, int], ...]
    const: int

    def __new__(cls, value: int, terms: tuple[tuple[str, int], ...] = (), const: int = 0) -> Dim:
        """Make a size of `value`, equal to the sum of `atom * factor` over `terms`, plus `const`."""
        dim = super().__new__(cls, value)
        dim.terms = terms
        dim.const = const
        return dim

    @classmethod
    def named(cls, name: str, value: int) -> Dim:
        """Return the size that the source calls `name`."""
        return cls(value, ((name, 1),))

    def __add__(self, other: int) -> int:
        if not isinstance(other, Dim):
            return Dim(int(self) + other, self.terms, self.const + other)
        factors = dict(self.terms)
        for atom, factor in other.terms:
            factors[atom] = factors.get(atom, 0) + factor
        terms = tuple((atom, factor) for atom, factor in factors.items() if factor)
        return _simplest(int(self) + int(other), terms, self.const + other.const)

    __radd__ = __add__

    def __neg__(self) -> int:
        return self * -1

    def __sub__(self, other: int) -> int:
        return self + -other

    def __rsub__(self, other: int) -> int:
        return -self + other

    def __mul__(self, other: int) -> int:
        if isinstance(other, Dim):
            left, right = sorted((_factor(self), _factor(other)))
            return Dim(int(self) * int(other), ((f"{left} * {right}", 1),))
        terms = tuple((atom, factor * other) for atom, factor in self.terms if factor * other)
        return _simplest(int(self) * other, terms, self.const * other)

    __rmul__ = __mul__

    def __floordiv__(self, other: int) -> int:
        value = int(self) // int(other)
        if isinstance(other, Dim):
            if self.terms == other.terms and self.const == other.const:
                return 1
            return Dim(value, ((f"{_factor(self)} // {_divisor(other)}", 1),))
        # Whole multiples leave the division exactly, also when it floors.
        whole = tuple((atom, factor // other) for atom, factor in self.terms if not factor % other)
        rest = tuple((atom, factor) for atom, factor in self.terms if factor % other)
        if not rest:
            return _simplest(value, whole, self.const // other)
        atom = f"{_factor(Dim(0, rest, self.const % other))} // {other}"
        return Dim(value, (*whole, (atom, 1)), self.const // other)

    @property
    def expression(self) -> str:
        """Python source over size names."""
        text = ""
        for atom, factor in sorted(self.terms, key=lambda term: term[1] < 0):
            size = abs(factor)
            # `a // b` and `a * b` bind like the product they join: only floor division needs care.
            body = atom if size == 1 else f"{size} * {_wrapped(atom)}"
            sign = "-" if factor < 0 else "+"
            negated = _wrapped(body) if factor < 0 and "//" in body else body
            text = f"{text} {sign} {negated}" if text else (f"-{negated}" if sign == "-" else body)
        if self.const:
            sign = "-" if self.const < 0 else "+"
            text = f"{text} {sign} {abs(self.const)}"
        return text

    def __repr__(self) -> str:
        return f"Dim({int(self)} = {self.expression})"


def _simplest(value: int, terms: tuple[tuple[str, int], ...], const: int) -> int:
    return Dim(value, terms, const) if terms else value


def _wrapped(text: str) -> str:
    return f"({text})" if "//" in text else text


def _divisor(dim: Dim) -> str:
    # `a // b * c` divides by b alone.
    factor = _factor(dim)
    is_product = factor == dim.expression and " * " in factor
    return f"({factor})" if is_product else factor


def _factor(dim: Dim) -> str:
    is_atom = len(dim.terms) == 1 and not dim.const and dim.terms[0][1] == 1
    if is_atom and "//" not in dim.terms[0][0]:
        return dim.terms[0][0]
    return f"({dim.expression})"


def expression(size: int) -> int | str:
    """Return what the source writes for a size: its expression, or the number itself."""
    return size.expression if isinstance(size, Dim) else int(size)


def same_shape(left: Shape, right: Shape) -> bool:
    """Tell whether two shapes are equal under every assignment of sizes, not just this one."""
    return len(left) == len(right) and all(
        expression(a) == expression(b) for a, b in zip(left, right, strict=True)
    )


@lru_cache(maxsize=65536)
def _compiled(source: str) -> CodeType:
    return compile(source, "<size>", "eval")


def evaluate(size: int | str, sizes: dict[str, int]) -> int:
    """Compute what `expression` returned under an assignment of sizes."""
    if isinstance(size, int):
        return size
    found = sizes.get(size)
    if found is not None:
        return found
    size_value: int = eval(_compiled(size), {"__builtins__": {}}, sizes)
    return size_value
