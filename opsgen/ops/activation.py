"""Activations: the unary element-wise ops that `torch.nn` has modules for."""

from __future__ import annotations

import math
from typing import Any

from opsgen.ops.dims import Shape
from opsgen.ops.entry import Attrs, Draw, Kind, Op, Shapes, spell
from opsgen.ops.intervals import (
    NONNEGATIVE,
    NONPOSITIVE,
    UNIT,
    Interval,
    Range,
    hull,
    image_of,
    of_first_with_zero,
)

_IDEMPOTENT = frozenset({"idempotent"})
_INCREASING = frozenset({"increasing"})
_ODD = frozenset({"odd"})
_AT_LEAST_3 = Interval(3.0, math.inf)
_AT_MOST_MINUS_3 = Interval(-math.inf, -3.0)


def _activation(name: str, module: str, *calls: str, **fields: Any) -> Op:
    spellings = (
        spell("{self}({x})", f"nn.{module}({{...}})"),
        *[spell(call) for call in calls],
    )
    return Op(name, Kind.POINTWISE, spellings, ranks=(2, 3, 4, 5), **fields)


def _gate(low: float) -> Range:
    """Range of x times a gate in [0, 1]: at least `low`, and nonnegative where x is."""
    return lambda ranges, attrs: NONNEGATIVE if ranges[0].low >= 0 else Interval(low, math.inf)


def _exponential(value: float, alpha: float) -> float:
    return value if value > 0 else alpha * math.expm1(value)


def _of_exponential(ranges: tuple[Interval, ...], attrs: Attrs) -> Interval:
    return ranges[0].image(lambda value: _exponential(value, attrs["alpha"]))


def _of_continuous_exponential(ranges: tuple[Interval, ...], attrs: Attrs) -> Interval:
    alpha = attrs["alpha"]
    return ranges[0].image(
        lambda value: alpha * _exponential(value / alpha, 1.0) if value < 0 else value
    )


def _leaky_range(ranges: tuple[Interval, ...], attrs: Attrs) -> Interval:
    return ranges[0].image(lambda value: max(value, value * attrs["negative_slope"]))


def _sigmoid(value: float) -> float:
    return 0.5 * (1.0 + math.tanh(0.5 * value))


def _hardtanh_attrs(draw: Draw, _ins: Shapes) -> Attrs | None:
    return draw.pick(min_val=(-1.0, -1.0, -0.25, -0.5), max_val=(1.0, 1.0, 0.25, 0.5))


def _hardtanh_range(ranges: tuple[Interval, ...], attrs: Attrs) -> Interval:
    return ranges[0].image(lambda value: min(max(value, attrs["min_val"]), attrs["max_val"]))


def _glu_attrs(draw: Draw, ins: Shapes) -> Attrs | None:
    rank = len(ins[0])
    dims = [dim for dim in (-1, *range(1, rank - 1)) if ins[0][dim] % 2 == 0]
    return draw.pick(dim=dims)


def _glu_out(ins: Shapes, attrs: Attrs) -> Shape:
    halved = attrs["dim"] % len(ins[0])
    return tuple(size // 2 if dim == halved else size for dim, size in enumerate(ins[0]))


OPS = (
    _activation(
        "relu",
        "ReLU",
        "F.relu({x})",
        "torch.relu({x})",
        "{x}.relu()",
        range=image_of(lambda value: max(value, 0.0)),
        fixes=NONNEGATIVE,
        flattens=(NONPOSITIVE,),
        props=_IDEMPOTENT,
    ),
    _activation(
        "relu6",
        "ReLU6",
        "F.relu6({x})",
        range=image_of(lambda value: min(max(value, 0.0), 6.0)),
        fixes=Interval(0.0, 6.0),
        flattens=(NONPOSITIVE, Interval(6.0, math.inf)),
        props=_IDEMPOTENT,
    ),
    _activation(
        "leaky_relu",
        "LeakyReLU",
        "F.leaky_relu({x}{...})",
        attrs=lambda draw, ins: draw.pick(negative_slope=(0.01, 0.01, 0.1, 0.2)),
        defaults={"negative_slope": 0.01},
        range=_leaky_range,
        fixes=NONNEGATIVE,
        props=_INCREASING,
    ),
    _activation(
        "elu",
        "ELU",
        "F.elu({x}{...})",
        attrs=lambda draw, ins: draw.pick(alpha=(1.0, 1.0, 0.5, 1.5)),
        defaults={"alpha": 1.0},
        range=_of_exponential,
        fixes=NONNEGATIVE,
        props=_INCREASING,
    ),
    _activation(
        "celu",
        "CELU",
        "F.celu({x}{...})",
        "torch.celu({x}{...})",
        attrs=lambda draw, ins: draw.pick(alpha=(0.5, 2.0, 1.5)),
        defaults={"alpha": 1.0},
        range=_of_continuous_exponential,
        fixes=NONNEGATIVE,
        props=_INCREASING,
    ),
    _activation(
        "selu",
        "SELU",
        "F.selu({x})",
        "torch.selu({x})",
        range=image_of(lambda value: 1.0507009873554805 * _exponential(value, 1.6732632423543772)),
        props=_INCREASING,
    ),
    _activation(
        "gelu",
        "GELU",
        "F.gelu({x}{...})",
        attrs=lambda draw, ins: draw.pick(approximate=("none", "none", "tanh")),
        defaults={"approximate": "none"},
        range=_gate(-0.2),
    ),
    _activation("silu", "SiLU", "F.silu({x})", range=_gate(-0.3)),
    _activation("mish", "Mish", "F.mish({x})", range=_gate(-0.4)),
    _activation(
        "hardswish",
        "Hardswish",
        "F.hardswish({x})",
        range=_gate(-0.375),
        fixes=_AT_LEAST_3,
        flattens=(_AT_MOST_MINUS_3,),
    ),
    _activation(
        "softplus",
        "Softplus",
        "F.softplus({x}{...})",
        attrs=lambda draw, ins: draw.pick(beta=(1.0, 1.0, 2.0, 0.5), threshold=(20.0, 20.0, 10.0)),
        defaults={"beta": 1.0, "threshold": 20.0},
        # exp underflows, and past the threshold the op steps down onto x: increasing up to 5e-5.
        range=NONNEGATIVE,
        props=_INCREASING,
    ),
    _activation(
        "softsign",
        "Softsign",
        "F.softsign({x})",
        range=image_of(
            lambda value: (
                math.copysign(1.0, value) if math.isinf(value) else value / (1.0 + abs(value))
            )
        ),
        passes=6.0,
        props=_INCREASING | _ODD,
    ),
    _activation(
        "tanh",
        "Tanh",
        "torch.tanh({x})",
        "{x}.tanh()",
        range=image_of(math.tanh),
        props=_INCREASING | _ODD,
        undoes=("atanh",),
    ),
    _activation(
        "sigmoid",
        "Sigmoid",
        "torch.sigmoid({x})",
        "{x}.sigmoid()",
        "torch.special.expit({x})",
        range=image_of(_sigmoid),
        props=_INCREASING,
        undoes=("logit",),
    ),
    _activation(
        "logsigmoid",
        "LogSigmoid",
        "F.logsigmoid({x})",
        range=NONPOSITIVE,
        props=_INCREASING,
    ),
    _activation(
        "hardsigmoid",
        "Hardsigmoid",
        "F.hardsigmoid({x})",
        range=UNIT,
        flattens=(_AT_LEAST_3, _AT_MOST_MINUS_3),
    ),
    _activation(
        "hardtanh",
        "Hardtanh",
        "F.hardtanh({x}{...})",
        attrs=_hardtanh_attrs,
        defaults={"min_val": -1.0, "max_val": 1.0},
        range=_hardtanh_range,
        fixes=lambda attrs: Interval(attrs["min_val"], attrs["max_val"]),
        flattens=(Interval(2.0, math.inf), Interval(-math.inf, -2.0)),
        props=_IDEMPOTENT,
    ),
    _activation(
        "hardshrink",
        "Hardshrink",
        "F.hardshrink({x}{...})",
        "torch.hardshrink({x}{...})",
        attrs=lambda draw, ins: draw.pick(lambd=(0.5, 0.25, 1.0)),
        defaults={"lambd": 0.5},
        range=of_first_with_zero,
        fixes=lambda attrs: Interval(attrs["lambd"], math.inf, open_low=True),
        flattens=(Interval(-0.25, 0.25),),
        props=_ODD | _IDEMPOTENT | {"jumps"},
    ),
    _activation(
        "softshrink",
        "Softshrink",
        "F.softshrink({x}{...})",
        attrs=lambda draw, ins: draw.pick(lambd=(0.5, 0.25, 1.0)),
        defaults={"lambd": 0.5},
        range=of_first_with_zero,
        flattens=(Interval(-0.25, 0.25),),
        props=_ODD,
    ),
    _activation(
        "tanhshrink",
        "Tanhshrink",
        "F.tanhshrink({x})",
        range=image_of(lambda value: value - math.tanh(value)),
        passes=4.0,
        props=_INCREASING | _ODD,
    ),
    Op(
        "threshold",
        Kind.POINTWISE,
        (
            spell("{self}({x})", "nn.Threshold({threshold}, {value})"),
            spell("F.threshold({x}, {threshold}, {value})"),
        ),
        ranks=(2, 3, 4, 5),
        attrs=lambda draw, ins: draw.pick(threshold=(0.1, 0.5, 1.0), value=(0.0, -1.0, 0.1)),
        range=lambda ranges, attrs: hull(ranges[0], Interval(attrs["value"], attrs["value"])),
        fixes=lambda attrs: Interval(attrs["threshold"], math.inf, open_low=True),
        flattens=(NONPOSITIVE,),
        props=_IDEMPOTENT | {"jumps"},
    ),
    Op(
        "prelu",
        Kind.POINTWISE,
        (spell("{self}({x})", "nn.PReLU({C}{dtype})"),),
        ranks=(2, 3, 4, 5),
        layout="channels",
        params=lambda ins, attrs: ins[0][1],
        fixes=NONNEGATIVE,
    ),
    Op(
        "glu",
        Kind.POINTWISE,
        (spell("{self}({x})", "nn.GLU(dim={dim})"), spell("F.glu({x}, dim={dim})")),
        ranks=(2, 3, 4, 5),
        attrs=_glu_attrs,
        out=_glu_out,
        range=of_first_with_zero,
    ),
)
