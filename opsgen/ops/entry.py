"""The form of a catalogue entry: concrete, declarative, readable without torch.

An entry's `attrs` is both generator and constraint. While a graph grows, a
`Draw` chooses attributes; when sizes change, a `Replay` of the choices runs
through the same function and comes back None if they are no longer legal.
Concrete forward specs instead of a constraint solver follow the finding of
Isra (arXiv 2302.00842) that tensor shapes need no backtracking.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, Protocol

from opsgen.ops.dims import Shape
from opsgen.ops.intervals import REAL, Interval, Range

Attrs = dict[str, Any]
Shapes = tuple[Shape, ...]


class Kind(enum.Enum):
    """What an op is, for quotas, calibration and reading."""

    POINTWISE = "pointwise"
    """One input, element by element."""
    BINARY = "binary"
    """Several inputs, element by element, with broadcasting."""
    REDUCTION = "reduction"
    """Folds dims away."""
    SOFTMAX = "softmax"
    """Normalises exponentials along a dim."""
    NORMALIZATION = "normalization"
    """Standardises over dims or channels."""
    POOLING = "pooling"
    """Windowed reduction."""
    CONVOLUTION = "convolution"
    """Convolution and transposed convolution."""
    MATMUL = "matmul"
    """Linear layers and matrix products."""
    LAYOUT = "layout"
    """Moves elements by a fixed map."""
    INDEX = "index"
    """Selects or places elements by an index tensor."""
    SCAN = "scan"
    """Running folds along a dim."""
    SORT = "sort"
    """Orders or ranks along a dim."""
    RESAMPLE = "resample"
    """Interpolation and padding."""
    LOSS = "loss"
    """Compares a prediction with a target."""
    DISTANCE = "distance"
    """Distances and similarities of vectors."""
    ATTENTION = "attention"
    """Scaled dot-product attention."""
    TRANSFORM = "transform"
    """Fourier transforms, with real results."""


class Draw(Protocol):
    """Where an entry's attributes come from: fresh choices, or earlier ones replayed."""

    def pick(self, **choices: Sequence[Any]) -> Attrs | None:
        """Choose one of each sequence; None if a sequence is empty (or lacks the replayed one)."""

    def size(self, name: str, choices: Sequence[int], multiple_of: int = 1) -> Attrs | None:
        """Choose a new size of the task; None if no choice is a multiple."""


@dataclass(frozen=True, slots=True)
class Operand:
    """A further input that an op needs beside its first.

    Attributes:
        shape: Its shape, in terms of the first input's dims.
        domain: Values it may hold.
        dtype: `float` (the task's working dtype), `int64` or `bool`.
        high: Exclusive upper bound of an index operand.
        name: Argument name in the source.
        can_join: An earlier value of the same shape may serve (residual, gate).
        draw: Name of the input draw it needs, where `domain` does not say enough.
    """

    shape: Shape
    domain: Interval = REAL
    dtype: str = "float"
    high: int | None = None
    name: str = "y"
    can_join: bool = True
    draw: str | None = None


@dataclass(frozen=True, slots=True)
class Spelling:
    """One way to write an op.

    Attributes:
        call: Template over `{x}`, `{y}`, `{z}`, `{w}` (inputs), `{self}`, attributes and sizes;
            `{C}` and `{D}` are the first input's second and last dim, and `{...}` expands to
            the attributes of `Op.defaults` that differ from their defaults.
        init: Template of the module's constructor where `call` uses `{self}`; `{dtype}` in it
            expands to a dtype argument for modules with parameters.
        name: Qualified torch name, such as `torch.nn.GELU`.
    """

    call: str
    init: str | None
    name: str


def spell(call: str, init: str | None = None, name: str | None = None) -> Spelling:
    """Make a spelling; its qualified name is read off the template unless given."""
    return Spelling(call, init, name or _qualified(init or call))


def _qualified(template: str) -> str:
    head = template.partition("(")[0]
    for prefix, full in (
        ("nn.", "torch.nn."),
        ("F.", "torch.nn.functional."),
        ("torch.", "torch."),
    ):
        if head.startswith(prefix):
            return full + head.removeprefix(prefix)
    if head.startswith("{x}."):
        return "torch.Tensor." + head.removeprefix("{x}.")
    raise AssertionError(f"spelling {template!r} needs an explicit name")


def keep_shape(ins: Shapes, _attrs: Attrs) -> Shape:
    """Shape of an op that keeps its first input's."""
    return ins[0]


def no_attrs(_draw: Draw, _ins: Shapes) -> Attrs | None:
    """Attributes of an op without any."""
    return {}


def no_operands(_draw: Draw, _ins: Shapes, _attrs: Attrs) -> tuple[Operand, ...] | None:
    """Operands of an op with a single input."""
    return ()


def no_params(_ins: Shapes, _attrs: Attrs) -> int:
    """Parameter count of an op without parameters."""
    return 0


def no_refs(_ins: Shapes, _attrs: Attrs) -> Attrs:
    """Further template names of an op without any."""
    return {}


def named_dims(ins: Shapes, attrs: Attrs) -> tuple[int, ...]:
    """Dims that the attribute `dim` names, counted from zero; none without it."""
    dim = attrs.get("dim", ())
    dims: tuple[int, ...] = (dim,) if isinstance(dim, int) else dim
    return tuple(sorted(index % len(ins[0]) for index in dims))


def one_term(_ins: Shapes, _attrs: Attrs) -> int:
    """Reduction length of an op that adds nothing up."""
    return 1


def flop_per_element(_ins: Shapes, _attrs: Attrs, out: Shape) -> int:
    """One floating-point operation for every output element."""
    return prod(out)


@dataclass(frozen=True, slots=True)
class Op:
    """A catalogue entry.

    Attributes:
        name: Its name in the catalogue, unique.
        kind: Its kind.
        spellings: Equivalent ways to write it.
        ranks: Ranks its first input may have.
        layout: What the first input's dims mean when it is a task input: `features`
            (batch, ..., features), `channels` (batch, channels, *space) or `any` of the two.
        attrs: Chooses attributes and sizes for the first input's shape; None: not applicable.
        operands: Further inputs; None: not applicable.
        out: Exact output shape.
        defaults: Attributes that the source leaves out at these values.
        refs: Further names for templates, sizes among them.
        params: Number of parameter elements.
        terms: Additions behind one output element.
        flops: Floating-point operations.
        passes: Memory passes over the inputs that eager makes, the output's write apart.
        domain: Values the first input may hold.
        range: Values the output may hold.
        fixes: Values that the op leaves as they are: on them it is dead.
        flattens: Values that it all maps to one: on them its input is dead.
        props: Algebraic properties, names of `PROPS`.
        folds: Dims of the first input, counted from zero, that `props` speak of.
        undoes: Ops whose input it gives back when it reads their output, with equal
            values of the attributes that both have.
        in_dtype: `float` or `int64` (an index, which only a task input can be).
        high: Exclusive upper bound of an index input.
        out_dtype: `float`, `int64` or `bool`; only `float` outputs are read by further ops.
        is_deterministic: Bitwise repeatable on a GPU; see `opsgen.ops.determinism`.
        is_backward_deterministic: Its gradients are, too. Set by the catalogue from the hand
            list in `opsgen.ops.determinism`, not by entries.
        is_full_precision: Some device lacks its kernel below float32.
        needs_contiguous: With its first input in another order in memory a spelling of it fails,
            or has nothing left to do.
    """

    name: str
    kind: Kind
    spellings: tuple[Spelling, ...]
    ranks: tuple[int, ...] = (2, 3, 4)
    layout: str = "any"
    attrs: Callable[[Draw, Shapes], Attrs | None] = no_attrs
    operands: Callable[[Draw, Shapes, Attrs], tuple[Operand, ...] | None] = no_operands
    out: Callable[[Shapes, Attrs], Shape] = keep_shape
    defaults: Attrs = field(default_factory=dict)
    refs: Callable[[Shapes, Attrs], Attrs] = no_refs
    params: Callable[[Shapes, Attrs], int] = no_params
    terms: Callable[[Shapes, Attrs], int] = one_term
    flops: Callable[[Shapes, Attrs, Shape], int] = flop_per_element
    passes: float = 1.0
    domain: Interval = REAL
    range: Range = REAL
    fixes: Interval | Callable[[Attrs], Interval] | None = None
    flattens: tuple[Interval, ...] = ()
    props: frozenset[str] = frozenset()
    folds: Callable[[Shapes, Attrs], tuple[int, ...]] = named_dims
    undoes: tuple[str, ...] = ()
    in_dtype: str = "float"
    high: Callable[[Shapes, Attrs], int] | None = None
    out_dtype: str = "float"
    is_deterministic: bool = True
    is_backward_deterministic: bool = True
    is_full_precision: bool = False
    needs_contiguous: bool = False

    @property
    def has_operands(self) -> bool:
        """Whether it reads more than one tensor."""
        return self.operands is not no_operands


# "Its dims" are those that `Op.folds` gives. What holds up to an `eps` of the op or up to
# float rounding counts as holding.
PROPS: dict[str, str] = {
    "commutative": "its first two inputs may be swapped",
    "idempotent": "applying it twice with equal attributes is applying it once",
    "involution": "applying it twice with equal attributes gives back the input",
    "increasing": "strictly increasing, element by element",
    "odd": "f(-x) = -f(x)",
    "even": "f(-x) = f(x)",
    "shift": "adds one constant to every element",
    "scale": "multiplies every element by one positive constant",
    "shift_invariant": "unchanged by adding to its first input what is constant along its dims",
    "scale_invariant": "unchanged by a positive factor that is constant along its dims",
    "order_only": "sees only the order of values along its dims",
    "keeps_order": "keeps the order of values along its dims, which it does not fold away",
    "symmetric": "its output does not depend on the order of values along its dims",
    "permutes": "only reorders values along its dims",
    "sums_to_one": "its output adds up to one along its dims",
    "zero_mean": "its output has mean zero over its dims, its affine part apart",
    "unit_variance": "its output has variance one over its dims, its affine part apart",
    "unit_norm": "its output has a fixed norm over its dims: of order `p`, or 2 without `p`",
    "jumps": "not continuous: rounding errors of its input can flip its output",
}
