"""Element-wise ops of two and three tensors, with broadcasting."""

from __future__ import annotations

from opsgen.ops.dims import Shape
from opsgen.ops.entry import Attrs, Draw, Kind, Op, Operand, Shapes, spell

# How the second operand meets the first: equal, one value a channel (dim 1), one
# value a position of the last dim, or one value a row.
_MEETINGS = ("same", "same", "channel", "last", "row")


def meeting_attrs(draw: Draw, ins: Shapes) -> Attrs | None:
    """Choose how the operand broadcasts; `channel` needs dims behind dim 1."""
    rank = len(ins[0])
    return draw.pick(meets=[way for way in _MEETINGS if way != "channel" or rank > 2])


def meeting_shape(shape: Shape, attrs: Attrs) -> Shape:
    """Shape of an operand that broadcasts to `shape` in the chosen way."""
    rank = len(shape)
    return {
        "same": shape,
        "channel": (shape[1], *[1] * (rank - 2)) if rank > 2 else shape,
        "last": (shape[-1],),
        "row": (*shape[:-1], 1),
    }[attrs["meets"]]


def one_operand(draw: Draw, ins: Shapes, attrs: Attrs) -> tuple[Operand, ...]:
    """A single real operand that broadcasts in the chosen way."""
    return (Operand(meeting_shape(ins[0], attrs)),)


OPS = (
    Op(
        "add",
        Kind.BINARY,
        (spell("{x} + {y}", name="torch.add"), spell("torch.add({x}, {y})")),
        attrs=meeting_attrs,
        operands=one_operand,
        props=frozenset({"commutative"}),
    ),
    Op(
        "mul",
        Kind.BINARY,
        (spell("{x} * {y}", name="torch.mul"), spell("torch.mul({x}, {y})")),
        attrs=meeting_attrs,
        operands=one_operand,
        props=frozenset({"commutative"}),
    ),
)
