"""Comparisons, bounds and rounded quotients of tensors, element by element."""

from __future__ import annotations

from opsgen.ops.binary import elementwise
from opsgen.ops.entry import spell
from opsgen.ops.intervals import REAL, UNIT, Interval, of_all, times

_JUMPS = frozenset({"jumps"})
_DIVISOR = Interval(0.1, 10.0)

OPS = (
    elementwise(
        "lt",
        spell("{x} < {y}", name="torch.lt"),
        spell("torch.lt({x}, {y})"),
        spell("torch.less({x}, {y})"),
        range=UNIT,
        props=_JUMPS,
        out_dtype="bool",
    ),
    elementwise(
        "ge",
        spell("{x} >= {y}", name="torch.ge"),
        spell("torch.ge({x}, {y})"),
        spell("torch.greater_equal({x}, {y})"),
        range=UNIT,
        props=_JUMPS,
        out_dtype="bool",
    ),
    # Where the bounds cross, the upper one wins.
    elementwise(
        "clamp_tensor",
        spell("torch.clamp({x}, {y}, {z})"),
        spell("torch.clip({x}, {y}, {z})"),
        spell("{x}.clamp({y}, {z})"),
        operands=(("lower", REAL), ("upper", REAL)),
        range=of_all,
    ),
    elementwise(
        "floor_divide",
        spell("torch.floor_divide({x}, {y})"),
        spell("{x} // {y}", name="torch.floor_divide"),
        spell('torch.div({x}, {y}, rounding_mode="floor")'),
        operands=(("divisor", _DIVISOR),),
        props=_JUMPS,
    ),
    elementwise(
        "div_trunc",
        spell('torch.div({x}, {y}, rounding_mode="trunc")'),
        spell('{x}.div({y}, rounding_mode="trunc")'),
        operands=(("divisor", _DIVISOR),),
        range=lambda ranges, attrs: times(ranges[0], Interval(0.0, 1.0 / ranges[1].low)),
        props=_JUMPS | {"odd"},
    ),
    elementwise(
        "ldexp",
        spell("torch.ldexp({x}, {y})"),
        spell("{x}.ldexp({y})"),
        operands=(("exponent", Interval(-4.0, 4.0)),),
        range=lambda ranges, attrs: times(ranges[0], Interval(0.0, 16.0)),
        props=frozenset({"odd"}),
    ),
)
