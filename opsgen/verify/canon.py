"""Canonical values of a trace: what an op computed, free of names, spelling, order and sizes.

A value is a node with the views that were taken of it. Each node describes
itself twice, without sizes and with them; digests are built bottom-up from
those of the operands, so that only dataflow counts. Nothing here runs an op.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

Shape = tuple[int, ...]
Step = tuple[Any, ...]
"""A view: its kind, then what it needs: `reshape` from and to, `permute` dims and from, `expand`
from and to, `slice` dim, start, end, step and extent, anything else literally."""

COMMUTATIVE = frozenset(
    (
        "add",
        "mul",
        "maximum",
        "minimum",
        "eq",
        "ne",
        "fmax",
        "fmin",
        "hypot",
        "logaddexp",
        "logical_and",
        "logical_or",
        "logical_xor",
        "bitwise_and",
        "bitwise_or",
        "bitwise_xor",
    )
)
_COARSE, _FINE = 4, 16
"""Slices at a fraction of these denominators count by it: halves and quarters before all else."""
_COMMON = frozenset((0.0, 0.1, 0.01, 0.5, 1.0, 2.0))
_LONG = 32
_MANY = 2048
_HUGE = 2.0**48
_NEAR = 4
"""Slices that begin or end so near to an end of the axis count by their distance from it."""


@dataclass(frozen=True, slots=True)
class Value:
    """A result as somebody reads it.

    Attributes:
        node: Its place in the list of nodes.
        part: Which of the node's results.
        steps: Views taken of it, in order, in canonical form.
    """

    node: int
    part: int = 0
    steps: tuple[Step, ...] = ()

    def viewed(self, step: Step) -> Value:
        """Return the value behind a further view; views that undo each other vanish."""
        steps = self.steps
        while step[0] in ("reshape", "permute"):
            step = _relaxed(step)
            if _is_nothing(step):
                return Value(self.node, self.part, steps)
            if step[0] == "permute" and steps and _is_padding(steps[-1]):
                first, second = _swapped(steps[-1], step)
                return Value(self.node, self.part, steps[:-1]).viewed(first).viewed(second)
            if not steps or steps[-1][0] != step[0]:
                break
            step, steps = _joined(steps[-1], step), steps[:-1]
        return Value(self.node, self.part, (*steps, step))

    def unexpanded(self) -> Value:
        """Return the value before it was repeated along axes, as broadcasting does anyway."""
        steps = self.steps
        while steps and steps[-1][0] == "expand":
            steps = steps[:-1]
        return Value(self.node, self.part, steps)


def _is_nothing(step: Step) -> bool:
    if step[0] == "reshape":
        return bool(step[1] == step[2])
    return bool(step[1] == tuple(range(len(step[1]))))


def _relaxed(step: Step) -> Step:
    """Return a permutation that only moves axes of one element as the reshape that it is."""
    if step[0] != "permute":
        return step
    _, dims, before = step
    long = [dim for dim in dims if before[dim] != 1]
    return ("reshape", before, _permuted(before, dims)) if long == sorted(long) else step


def _permuted(shape: Shape, dims: Shape) -> Shape:
    return tuple(shape[dim] for dim in dims)


def _is_padding(step: Step) -> bool:
    """Whether a view only adds or drops axes of one element."""
    return step[0] == "reshape" and _long(step[1]) == _long(step[2])


def _long(shape: Shape) -> list[int]:
    return [extent for extent in shape if extent != 1]


def _swapped(padding: Step, permute: Step) -> tuple[Step, Step]:
    """Return the same views in the other order, so that axes of one element do not matter."""
    _, before, after = padding
    places = [i for i, extent in enumerate(before) if extent != 1]
    rank = {axis: n for n, axis in enumerate(i for i, extent in enumerate(after) if extent != 1)}
    order = [places[rank[axis]] for axis in permute[1] if axis in rank]
    dims = list(range(len(before)))
    for place, axis in zip(places, order, strict=True):
        dims[place] = axis
    ends = _permuted(before, tuple(dims)), _permuted(after, permute[1])
    return ("permute", tuple(dims), before), ("reshape", *ends)


def _joined(first: Step, second: Step) -> Step:
    if first[0] == "reshape":
        return ("reshape", first[1], second[2])
    return ("permute", _permuted(first[1], second[1]), first[2])


@dataclass(frozen=True, slots=True)
class Node:
    """One op of a trace.

    Attributes:
        plain: What it is, without sizes.
        sized: What `plain` leaves out.
        operands: Values read, in argument order.
        commutes: The order of the first two operands does not matter.
        computes: It makes new values: no input, state, constant or cast.
        is_given: It depends on an input or on state; what does not is a table of the sizes.
    """

    plain: tuple[Any, ...]
    sized: tuple[Any, ...] = ()
    operands: tuple[Value, ...] = ()
    commutes: bool = False
    computes: bool = False
    is_given: bool = False


class Canon:
    """Nodes of one trace as they come, and their digests."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []

    def add(self, node: Node) -> Value:
        """Return the value of a further node."""
        self.nodes.append(node)
        return Value(len(self.nodes) - 1)

    def digests(self, outputs: Sequence[Value]) -> tuple[str, str]:
        """Return the digests of everything behind `outputs`, without and with sizes.

        How many different tensors of state take part counts too: nodes name them by type and
        rank alone.
        """
        live = self._live(outputs)
        state = sorted(repr(self.nodes[i].plain) for i in live if self.nodes[i].plain[0] == "state")
        found = []
        for with_sizes in (False, True):
            memo = self._digests(live, with_sizes)
            parts = [_value_digest(value, memo, with_sizes) for value in outputs]
            found.append(_digest((parts, state)))
        return found[0], found[1]

    def count_computing(self, outputs: Sequence[Value]) -> int:
        """Return how many different ops that compute are behind `outputs`."""
        live = self._live(outputs)
        memo = self._digests(live, with_sizes=True)
        return len({memo[index] for index in live if self.nodes[index].computes})

    def _live(self, outputs: Sequence[Value]) -> list[int]:
        """Return the nodes behind `outputs`, operands first."""
        found: set[int] = set()
        open_ = [value.node for value in outputs]
        while open_:
            index = open_.pop()
            if index not in found:
                found.add(index)
                open_ += [value.node for value in self.nodes[index].operands]
        return sorted(found)  # a node is added after its operands

    def _digests(self, live: list[int], with_sizes: bool) -> dict[int, str]:
        memo: dict[int, str] = {}
        for index in live:
            node = self.nodes[index]
            operands = [_value_digest(value, memo, with_sizes) for value in node.operands]
            if node.commutes:
                operands[:2] = sorted(operands[:2])
            memo[index] = _digest((node.plain, node.sized if with_sizes else (), operands))
        return memo


def _value_digest(value: Value, memo: dict[int, str], with_sizes: bool) -> str:
    if not value.steps:
        return f"{memo[value.node]}.{value.part}"
    steps = value.steps if with_sizes else tuple(_plain_step(step) for step in value.steps)
    return _digest((memo[value.node], value.part, steps))


def _digest(content: object) -> str:
    return hashlib.blake2b(repr(content).encode(), digest_size=16).hexdigest()


def _plain_step(step: Step) -> Step:
    if step[0] == "reshape":
        return ("reshape", tuple(_groups(step[1], step[2])))
    if step[0] == "permute":
        return step[:2]
    if step[0] == "expand":
        offset = len(step[2]) - len(step[1])
        axes = [i for i, to in enumerate(step[2]) if i < offset or step[1][i - offset] != to]
        return ("expand", len(step[2]), tuple(axes))
    if step[0] == "slice":
        _, dim, start, end, stride, extent = step
        return ("slice", dim, _place(start, extent), _place(end, extent), stride)
    return step


def _groups(before: Shape, after: Shape) -> Iterator[tuple[int, int]]:
    """Yield how many axes merge into how many, from the left: what a reshape is without sizes."""
    i = j = 0
    while i < len(before) or j < len(after):
        start = (i, j)
        left = before[i] if i < len(before) else 1
        right = after[j] if j < len(after) else 1
        i, j = min(i + 1, len(before)), min(j + 1, len(after))
        while left != right:
            if left < right and i < len(before):
                left, i = left * before[i], i + 1
            elif j < len(after):
                right, j = right * after[j], j + 1
            else:
                break
        # An axis of one element goes with what stands before it, as a longer one would.
        while i < len(before) and before[i] == 1 and (j == len(after) or after[j] != 1):
            i += 1
        while j < len(after) and after[j] == 1 and (i == len(before) or before[i] != 1):
            j += 1
        yield (i - start[0], j - start[1])


def _place(position: int, extent: int) -> object:
    """Return a position on an axis without the axis' length."""
    from_end = position - extent - 1
    share = Fraction(position, max(1, extent))
    for finest, nearest in ((2, 2), (_COARSE, _NEAR), (_FINE, 0)):
        if share.denominator <= finest and 0 < share < 1:
            return str(share)
        if position <= nearest or -from_end - 1 <= nearest:
            return position if position <= nearest else from_end
    return "within"


def is_size_like(factor: float, shapes: Collection[Shape]) -> bool:
    """Whether a factor follows from the lengths of axes.

    It does as a product of lengths, as a root of one or its reciprocal, and as the reciprocal
    of a long count of elements. The factors that code is full of, such as 2 and 0.5, never do.
    """
    magnitude = abs(factor)
    if not math.isfinite(magnitude) or magnitude in _COMMON:
        return False
    if magnitude == int(magnitude):
        return magnitude >= _LONG and int(magnitude) in _lengths(shapes)
    for power in (-1.0, -2.0, -4.0) if magnitude < 1 else (2.0, 4.0):
        length = magnitude**power
        if length > _HUGE or not math.isclose(length, round(length)):
            continue
        if round(length) > 2 and round(length) in _lengths(shapes):
            return True
        if power == -1.0 and length >= _MANY:
            return any(math.prod(shape) % round(length) == 0 for shape in shapes)
    return False


def _lengths(shapes: Collection[Shape]) -> set[int]:
    found = {1}
    for shape in shapes:
        ours = {1}
        for extent in shape:
            ours |= {extent * length for length in ours}
        found |= ours
    return found
