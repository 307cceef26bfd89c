"""Element-wise ops of two and three tensors, with broadcasting."""

from __future__ import annotations

import math
from typing import Any

from opsgen.ops.dims import Shape
from opsgen.ops.entry import Attrs, Draw, Kind, Op, Operand, Shapes, Spelling, spell
from opsgen.ops.intervals import (
    AWAY_FROM_ZERO,
    NONNEGATIVE,
    POSITIVE,
    REAL,
    UNIT,
    Interval,
    hull,
    minus,
    of_all,
    of_magnitude,
    plus,
    times,
)

# How the second operand meets the first: equal, one value a channel (dim 1), one
# value a position of the last dim, or one value a row.
_MEETINGS = ("same", "same", "channel", "last", "row")
_COMMUTATIVE = frozenset({"commutative"})
_JUMPS = frozenset({"jumps"})


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


def elementwise(
    name: str,
    *spellings: Spelling,
    also: dict[str, tuple[Any, ...]] | None = None,
    operands: tuple[tuple[str, Interval], ...] = (("y", REAL),),
    **fields: Any,
) -> Op:
    """An op whose further operands, given by name and domain, all meet the first one way."""

    def attrs(draw: Draw, ins: Shapes) -> Attrs | None:
        meeting = meeting_attrs(draw, ins)
        more = draw.pick(**also) if also else {}
        return None if meeting is None or more is None else {**meeting, **more}

    def make(_draw: Draw, ins: Shapes, attrs: Attrs) -> tuple[Operand, ...]:
        shape = meeting_shape(ins[0], attrs)
        return tuple(Operand(shape, domain, name=each) for each, domain in operands)

    return Op(
        name,
        Kind.BINARY,
        spellings,
        ranks=(2, 3, 4, 5),
        attrs=attrs,
        operands=make,
        **fields,
    )


def _where_operands(_draw: Draw, ins: Shapes, attrs: Attrs) -> tuple[Operand, ...]:
    mask = Operand(ins[0], UNIT, dtype="bool", name="mask", can_join=False)
    return (mask, Operand(meeting_shape(ins[0], attrs), name="other"))


def _add_range(ranges: tuple[Interval, ...], attrs: Attrs) -> Interval:
    return plus(ranges[0], times(ranges[1], Interval(attrs["alpha"], attrs["alpha"])))


def _sub_range(ranges: tuple[Interval, ...], attrs: Attrs) -> Interval:
    return plus(ranges[0], minus(times(ranges[1], Interval(attrs["alpha"], attrs["alpha"]))))


def _div_range(ranges: tuple[Interval, ...], _attrs: Attrs) -> Interval:
    return times(ranges[0], Interval(0.0, 1.0 / ranges[1].low))


def _maximum_range(ranges: tuple[Interval, ...], _attrs: Attrs) -> Interval:
    first, second = ranges
    return Interval(max(first.low, second.low), max(first.high, second.high))


def _minimum_range(ranges: tuple[Interval, ...], _attrs: Attrs) -> Interval:
    first, second = ranges
    return Interval(min(first.low, second.low), min(first.high, second.high))


def _copysign_range(ranges: tuple[Interval, ...], attrs: Attrs) -> Interval:
    high = of_magnitude(ranges, attrs).high
    return Interval(-high, high)


def _remainder_range(ranges: tuple[Interval, ...], _attrs: Attrs) -> Interval:
    # Rounding can return the divisor itself.
    return Interval(0.0, ranges[1].high)


def _fmod_range(ranges: tuple[Interval, ...], _attrs: Attrs) -> Interval:
    return Interval(-ranges[1].high, ranges[1].high)


_VALUE = {"value": (1, 1, 0.5, 2.0)}

_ARITHMETIC = (
    elementwise(
        "add",
        spell("{x} + {y}", name="torch.add"),
        spell("torch.add({x}, {y})"),
        spell("{x}.add({y})"),
        range=lambda ranges, attrs: plus(ranges[0], ranges[1]),
        props=_COMMUTATIVE,
    ),
    elementwise(
        "add_scaled",
        spell("torch.add({x}, {y}, alpha={alpha})"),
        spell("{x}.add({y}, alpha={alpha})"),
        also={"alpha": (2, 0.5, 0.1)},
        range=_add_range,
    ),
    elementwise(
        "sub",
        spell("{x} - {y}", name="torch.sub"),
        spell("torch.sub({x}, {y})"),
        spell("torch.subtract({x}, {y})"),
        range=lambda ranges, attrs: plus(ranges[0], minus(ranges[1])),
    ),
    elementwise(
        "sub_scaled",
        spell("torch.sub({x}, {y}, alpha={alpha})"),
        spell("{x}.sub({y}, alpha={alpha})"),
        also={"alpha": (2, 0.5, 0.1)},
        range=_sub_range,
    ),
    elementwise(
        "mul",
        spell("{x} * {y}", name="torch.mul"),
        spell("torch.mul({x}, {y})"),
        spell("torch.multiply({x}, {y})"),
        spell("{x}.mul({y})"),
        range=lambda ranges, attrs: times(ranges[0], ranges[1]),
        props=_COMMUTATIVE,
    ),
    elementwise(
        "div",
        spell("{x} / {y}", name="torch.div"),
        spell("torch.div({x}, {y})"),
        spell("torch.true_divide({x}, {y})"),
        operands=(("divisor", AWAY_FROM_ZERO),),
        range=_div_range,
    ),
    elementwise(
        "remainder",
        spell("torch.remainder({x}, {y})"),
        spell("{x} % {y}", name="torch.remainder"),
        operands=(("divisor", Interval(0.1, 10.0)),),
        range=_remainder_range,
        props=_JUMPS,
    ),
    elementwise(
        "fmod",
        spell("torch.fmod({x}, {y})"),
        spell("{x}.fmod({y})"),
        operands=(("divisor", Interval(0.1, 10.0)),),
        range=_fmod_range,
        props=_JUMPS,
    ),
    elementwise(
        "addcmul",
        spell("torch.addcmul({x}, {y}, {z}{...})"),
        spell("{x}.addcmul({y}, {z}{...})"),
        also=_VALUE,
        defaults={"value": 1},
        operands=(("y", REAL), ("z", REAL)),
    ),
    elementwise(
        "addcdiv",
        spell("torch.addcdiv({x}, {y}, {z}{...})"),
        spell("{x}.addcdiv({y}, {z}{...})"),
        also=_VALUE,
        defaults={"value": 1},
        operands=(("y", REAL), ("divisor", AWAY_FROM_ZERO)),
    ),
    elementwise(
        "lerp",
        spell("torch.lerp({x}, {y}, {weight})"),
        spell("{x}.lerp({y}, {weight})"),
        also={"weight": (0.1, 0.3, 0.5)},
        range=of_all,
    ),
    elementwise(
        "lerp_weighted",
        spell("torch.lerp({x}, {y}, {z})"),
        spell("{x}.lerp({y}, {z})"),
        operands=(("y", REAL), ("weight", UNIT)),
        range=lambda ranges, attrs: hull(ranges[0], ranges[1]),
    ),
)

_SELECTION = (
    elementwise(
        "maximum",
        spell("torch.maximum({x}, {y})"),
        spell("torch.max({x}, {y})"),
        spell("torch.fmax({x}, {y})"),
        range=_maximum_range,
        props=_COMMUTATIVE,
    ),
    elementwise(
        "minimum",
        spell("torch.minimum({x}, {y})"),
        spell("torch.min({x}, {y})"),
        spell("torch.fmin({x}, {y})"),
        range=_minimum_range,
        props=_COMMUTATIVE,
    ),
    Op(
        "where",
        Kind.BINARY,
        (spell("torch.where({y}, {x}, {z})"), spell("{x}.where({y}, {z})")),
        ranks=(2, 3, 4, 5),
        attrs=meeting_attrs,
        operands=_where_operands,
        range=lambda ranges, attrs: hull(ranges[0], ranges[2]),
    ),
    elementwise(
        "copysign",
        spell("torch.copysign({x}, {y})"),
        spell("{x}.copysign({y})"),
        range=_copysign_range,
        props=_JUMPS | {"even"},
    ),
    elementwise(
        "gt",
        spell("{x} > {y}", name="torch.gt"),
        spell("torch.gt({x}, {y})"),
        spell("torch.greater({x}, {y})"),
        range=UNIT,
        props=_JUMPS,
        out_dtype="bool",
    ),
    elementwise(
        "le",
        spell("{x} <= {y}", name="torch.le"),
        spell("torch.le({x}, {y})"),
        spell("torch.less_equal({x}, {y})"),
        range=UNIT,
        props=_JUMPS,
        out_dtype="bool",
    ),
)

_FUNCTIONS = (
    elementwise(
        "atan2",
        spell("torch.atan2({x}, {y})"),
        spell("torch.arctan2({x}, {y})"),
        spell("{x}.atan2({y})"),
        range=Interval(-math.pi, math.pi),
        props=_JUMPS,
    ),
    elementwise(
        "hypot",
        spell("torch.hypot({x}, {y})"),
        spell("{x}.hypot({y})"),
        range=NONNEGATIVE,
        props=_COMMUTATIVE | {"even"},
    ),
    elementwise(
        "pow_tensor",
        spell("torch.pow({x}, {y})"),
        spell("{x}**{y}", name="torch.pow"),
        domain=Interval(0.1, 10.0),
        operands=(("exponent", Interval(-2.0, 2.0)),),
        range=Interval(0.0, 101.0),
    ),
    elementwise(
        "xlogy",
        spell("torch.xlogy({x}, {y})"),
        spell("torch.special.xlogy({x}, {y})"),
        operands=(("y", POSITIVE),),
        props=frozenset({"odd"}),
    ),
    elementwise(
        "xlog1py",
        spell("torch.special.xlog1py({x}, {y})"),
        operands=(("y", NONNEGATIVE),),
        props=frozenset({"odd"}),
    ),
    elementwise(
        "logaddexp",
        spell("torch.logaddexp({x}, {y})"),
        spell("{x}.logaddexp({y})"),
        range=lambda ranges, attrs: Interval(max(part.low for part in ranges), math.inf),
        props=_COMMUTATIVE,
    ),
    elementwise(
        "logaddexp2",
        spell("torch.logaddexp2({x}, {y})"),
        spell("{x}.logaddexp2({y})"),
        range=lambda ranges, attrs: Interval(max(part.low for part in ranges), math.inf),
        props=_COMMUTATIVE,
    ),
)

OPS = (*_ARITHMETIC, *_SELECTION, *_FUNCTIONS)
