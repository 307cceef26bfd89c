"""Element-wise mathematical functions of one tensor.

A float range is closed where the function only approaches its bound: tanh(20)
is 1.0 in float32, and atanh of it infinite.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from opsgen.ops.entry import Attrs, Kind, Op, spell
from opsgen.ops.intervals import (
    AT_LEAST_ONE,
    AWAY_FROM_ZERO,
    EXPONENT,
    NEAR_SIGNED_UNIT,
    NONNEGATIVE,
    NONPOSITIVE,
    OPEN_SIGNED_UNIT,
    OPEN_UNIT,
    POSITIVE,
    SIGNED_EXPONENT,
    SIGNED_UNIT,
    UNIT,
    Interval,
    Range,
    image_of,
    minus,
    of_magnitude,
)

_INCREASING = frozenset({"increasing"})
_ODD = frozenset({"odd"})
_EVEN = frozenset({"even"})
_STEP = frozenset({"jumps", "idempotent"})


# Further names under which torch has the same functions.
_ALIASES = {
    "abs": "torch.absolute",
    "neg": "torch.negative",
    "erf": "torch.special.erf",
    "erfc": "torch.special.erfc",
    "erfinv": "torch.special.erfinv",
    "exp2": "torch.special.exp2",
    "expm1": "torch.special.expm1",
    "log1p": "torch.special.log1p",
    "lgamma": "torch.special.gammaln",
    "digamma": "torch.special.digamma",
    "sinc": "torch.special.sinc",
    "asin": "torch.arcsin",
    "acos": "torch.arccos",
    "atan": "torch.arctan",
    "asinh": "torch.arcsinh",
    "acosh": "torch.arccosh",
    "atanh": "torch.arctanh",
    "round": "torch.special.round",
    "trunc": "torch.fix",
    "sign": "torch.sgn",
}


def _math(name: str, *calls: str, **fields: Any) -> Op:
    """An op spelled `torch.<name>` and as a method of the same name, or as `calls` say."""
    texts = calls or (f"torch.{name}({{x}})", f"{{x}}.{name}()")
    if name in _ALIASES:
        texts += (f"{_ALIASES[name]}({{x}})",)
    spellings = tuple(spell(text) for text in texts)
    return Op(name, Kind.POINTWISE, spellings, ranks=(2, 3, 4, 5), **fields)


def _special(name: str, **fields: Any) -> Op:
    return _math(name, f"torch.special.{name}({{x}})", **fields)


def _scalar(name: str, operator: str, function: str, attr: str, **fields: Any) -> Op:
    """An op of a tensor and a Python number."""
    calls = (
        spell(operator, name=f"torch.{function}"),
        spell(f"torch.{function}({{x}}, {{{attr}}})"),
    )
    return Op(name, Kind.POINTWISE, calls, ranks=(2, 3, 4, 5), **fields)


def _guarded(function: Callable[[float], float]) -> Callable[[float], float]:
    """Take `function` up to poles and over the largest float, where Python raises."""

    def guarded(value: float) -> float:
        try:
            return function(value)
        except ValueError:
            return -math.inf if value <= 0 else math.inf
        except OverflowError:
            return math.copysign(math.inf, value)

    return guarded


def _square_range(ranges: tuple[Interval, ...], attrs: Attrs) -> Interval:
    # Closed: the square of a small positive number underflows to zero.
    size = of_magnitude(ranges, attrs)
    return Interval(size.low * size.low, size.high * size.high)


def _reciprocal_range(ranges: tuple[Interval, ...], _attrs: Attrs) -> Interval:
    high = ranges[0].high
    return Interval(0.0 if math.isinf(high) else 1.0 / high, 1.0 / ranges[0].low)


def _closed_image_of(function: Callable[[float], float]) -> Range:
    """Image of an exponential: it reaches zero by underflow."""
    return lambda ranges, _attrs: Interval(function(ranges[0].low), function(ranges[0].high))


def _step_range(ranges: tuple[Interval, ...], _attrs: Attrs) -> Interval:
    """Range of rounding to a neighbouring integer."""
    low, high = ranges[0].low, ranges[0].high
    return Interval(
        low if math.isinf(low) else math.floor(low),
        high if math.isinf(high) else math.ceil(high),
    )


def _clamp_range(ranges: tuple[Interval, ...], attrs: Attrs) -> Interval:
    return ranges[0].image(lambda value: min(max(value, attrs["min"]), attrs["max"]))


_ALGEBRA = (
    _math("abs", range=of_magnitude, fixes=NONNEGATIVE, props=_EVEN | {"idempotent"}),
    _math(
        "neg",
        range=lambda ranges, attrs: minus(ranges[0]),
        props=_ODD | {"involution"},
    ),
    _math("sqrt", domain=NONNEGATIVE, range=image_of(math.sqrt), props=_INCREASING),
    _math("rsqrt", domain=AWAY_FROM_ZERO, range=Interval(0.0, 3.2)),
    _math(
        "square",
        "torch.square({x})",
        "torch.pow({x}, 2)",
        "{x}.pow(2)",
        range=_square_range,
        props=_EVEN,
        undoes=("sqrt",),
    ),
    _math("cube", "torch.pow({x}, 3)", "{x}.pow(3)", props=_INCREASING | _ODD),
    _math(
        "power",
        "torch.pow({x}, {exponent})",
        "{x}.pow({exponent})",
        attrs=lambda draw, ins: draw.pick(exponent=(0.25, 0.75, 1.5, 2.5)),
        domain=NONNEGATIVE,
        range=lambda ranges, attrs: ranges[0].image(lambda value: value ** attrs["exponent"]),
        props=_INCREASING,
    ),
    _math(
        "reciprocal",
        domain=AWAY_FROM_ZERO,
        range=_reciprocal_range,
        props=frozenset({"involution"}),
    ),
    _math(
        "clamp",
        "torch.clamp({x}, min={min}, max={max})",
        "{x}.clamp({min}, {max})",
        "torch.clip({x}, {min}, {max})",
        attrs=lambda draw, ins: draw.pick(min=(-0.5, -0.25, 0.0, 0.1), max=(0.25, 0.5, 1.0)),
        range=_clamp_range,
        fixes=lambda attrs: Interval(attrs["min"], attrs["max"]),
        flattens=(Interval(2.0, math.inf), Interval(-math.inf, -1.0)),
        props=frozenset({"idempotent"}),
    ),
    _math(
        "clamp_min",
        "torch.clamp({x}, min={min})",
        "torch.clamp_min({x}, {min})",
        "{x}.clamp(min={min})",
        attrs=lambda draw, ins: draw.pick(min=(-0.5, -0.25, 0.1, 1e-6)),
        range=lambda ranges, attrs: ranges[0].image(lambda value: max(value, attrs["min"])),
        fixes=lambda attrs: Interval(attrs["min"], math.inf),
        flattens=(Interval(-math.inf, -1.0),),
        props=frozenset({"idempotent"}),
    ),
    _scalar(
        "add_scalar",
        "{x} + {value}",
        "add",
        "value",
        attrs=lambda draw, ins: draw.pick(value=(0.5, 1.0, 2.0)),
        range=lambda ranges, attrs: ranges[0].image(lambda value: value + attrs["value"]),
        props=_INCREASING | {"shift"},
    ),
    _scalar(
        "mul_scalar",
        "{x} * {factor}",
        "mul",
        "factor",
        attrs=lambda draw, ins: draw.pick(factor=(0.125, 0.5, 1.702, 2.0)),
        range=lambda ranges, attrs: ranges[0].image(lambda value: value * attrs["factor"]),
        props=_INCREASING | _ODD | {"scale"},
    ),
    _scalar(
        "rsub_scalar",
        "{value} - {x}",
        "rsub",
        "value",
        attrs=lambda draw, ins: draw.pick(value=(0.5, 1.0, 2.0)),
        range=lambda ranges, attrs: minus(
            ranges[0].image(lambda value: value - attrs["value"]),
        ),
        props=frozenset({"involution"}),
    ),
)

_FURTHER = (
    _math(
        "clamp_max",
        "torch.clamp({x}, max={max})",
        "torch.clamp_max({x}, {max})",
        "{x}.clamp(max={max})",
        attrs=lambda draw, ins: draw.pick(max=(-0.25, 0.25, 0.5, 1.0)),
        range=lambda ranges, attrs: ranges[0].image(lambda value: min(value, attrs["max"])),
        fixes=lambda attrs: Interval(-math.inf, attrs["max"]),
        flattens=(Interval(2.0, math.inf),),
        props=frozenset({"idempotent"}),
    ),
    _math(
        "deg2rad",
        range=image_of(math.radians),
        props=_INCREASING | _ODD | {"scale"},
        undoes=("rad2deg",),
    ),
    _math(
        "rad2deg",
        range=image_of(math.degrees),
        props=_INCREASING | _ODD | {"scale"},
        undoes=("deg2rad",),
    ),
    Op(
        "exponential",
        Kind.POINTWISE,
        (
            spell("torch.pow({base}, {x})"),
            spell("{base}**{x}", name="torch.pow"),
        ),
        ranks=(2, 3, 4, 5),
        attrs=lambda draw, ins: draw.pick(base=(0.5, 1.5, 3.0)),
        domain=SIGNED_EXPONENT,
        range=Interval(0.0, 59050.0),
    ),
)

_EXPONENTIALS = (
    _math(
        "exp",
        domain=EXPONENT,
        range=_closed_image_of(math.exp),
        props=_INCREASING,
        undoes=("log",),
    ),
    _math(
        "exp2",
        domain=EXPONENT,
        range=_closed_image_of(lambda value: 2.0**value),
        props=_INCREASING,
        undoes=("log2",),
    ),
    _math(
        "expm1",
        domain=EXPONENT,
        range=image_of(math.expm1),
        props=_INCREASING,
        undoes=("log1p",),
    ),
    _math(
        "log",
        domain=POSITIVE,
        range=image_of(_guarded(math.log)),
        props=_INCREASING,
        undoes=("exp",),
    ),
    _math(
        "log1p",
        domain=NONNEGATIVE,
        range=image_of(math.log1p),
        props=_INCREASING,
        undoes=("expm1",),
    ),
    _math(
        "log2",
        domain=POSITIVE,
        range=image_of(_guarded(math.log2)),
        props=_INCREASING,
        undoes=("exp2",),
    ),
    _math("log10", domain=POSITIVE, range=image_of(_guarded(math.log10)), props=_INCREASING),
    _math(
        "logit",
        "torch.logit({x})",
        "torch.special.logit({x})",
        "{x}.logit()",
        domain=OPEN_UNIT,
        props=_INCREASING,
        undoes=("sigmoid",),
    ),
    _special("entr", domain=NONNEGATIVE, range=Interval(-math.inf, 0.37)),
    _special("ndtr", range=UNIT, props=_INCREASING),
    _special("log_ndtr", range=NONPOSITIVE, props=_INCREASING, is_full_precision=True),
    _math("erf", range=SIGNED_UNIT, props=_INCREASING | _ODD, undoes=("erfinv",)),
    _math("erfc", range=Interval(0.0, 2.0)),
    _math("erfinv", domain=OPEN_SIGNED_UNIT, props=_INCREASING | _ODD, undoes=("erf",)),
    _math("lgamma", domain=AWAY_FROM_ZERO, range=Interval(-0.2, math.inf)),
    _math("digamma", domain=AWAY_FROM_ZERO, range=Interval(-11.0, math.inf), props=_INCREASING),
    _special("i0e", range=UNIT, props=_EVEN),
    _special("i1e", range=Interval(-0.3, 0.3), props=_ODD),
    _special("bessel_j0", range=NEAR_SIGNED_UNIT, props=_EVEN, is_full_precision=True),
    _special("bessel_j1", range=Interval(-0.6, 0.6), props=_ODD, is_full_precision=True),
)

_TRIGONOMETRY = (
    _math("sin", range=SIGNED_UNIT, props=_ODD, undoes=("asin",)),
    _math("cos", range=SIGNED_UNIT, props=_EVEN, undoes=("acos",)),
    _math(
        "tan",
        domain=SIGNED_UNIT,
        range=image_of(math.tan),
        props=_INCREASING | _ODD,
    ),
    _math("sinc", range=SIGNED_UNIT, props=_EVEN),
    _math(
        "asin",
        domain=SIGNED_UNIT,
        range=image_of(math.asin),
        props=_INCREASING | _ODD,
    ),
    _math("acos", domain=SIGNED_UNIT, range=Interval(0.0, math.pi)),
    _math("atan", range=image_of(math.atan), props=_INCREASING | _ODD, undoes=("tan",)),
    _math("sinh", domain=SIGNED_EXPONENT, range=image_of(math.sinh), props=_INCREASING | _ODD),
    _math("cosh", domain=SIGNED_EXPONENT, range=Interval(1.0, 11014.0), props=_EVEN),
    _math("asinh", range=image_of(math.asinh), props=_INCREASING | _ODD, undoes=("sinh",)),
    _math(
        "acosh",
        domain=AT_LEAST_ONE,
        range=image_of(math.acosh),
        props=_INCREASING,
    ),
    _math("atanh", domain=OPEN_SIGNED_UNIT, props=_INCREASING | _ODD, undoes=("tanh",)),
)

_HALF_OPEN_UNIT = Interval(0.0, 1.0, open_high=True)

_STEPS = (
    _math("floor", range=_step_range, flattens=(_HALF_OPEN_UNIT,), props=_STEP),
    _math("ceil", range=_step_range, flattens=(Interval(0.0, 1.0, open_low=True),), props=_STEP),
    _math("round", range=_step_range, flattens=(Interval(-0.5, 0.5),), props=_STEP | _ODD),
    _math("trunc", range=_step_range, flattens=(OPEN_SIGNED_UNIT,), props=_STEP | _ODD),
    _math("frac", range=SIGNED_UNIT, fixes=_HALF_OPEN_UNIT, props=_STEP | _ODD),
    _math(
        "sign",
        range=SIGNED_UNIT,
        flattens=(POSITIVE, minus(POSITIVE)),
        props=_STEP | _ODD | {"scale_invariant"},
    ),
    _math(
        "signbit",
        range=UNIT,
        flattens=(NONNEGATIVE, minus(POSITIVE)),
        props=frozenset({"jumps", "scale_invariant"}),
        out_dtype="bool",
    ),
    _math(
        "mantissa",
        "torch.frexp({x})[0]",
        "{x}.frexp().mantissa",
        range=SIGNED_UNIT,
        fixes=Interval(0.5, 1.0, open_high=True),
        props=_STEP | _ODD,
        is_full_precision=True,
    ),
)

OPS = (*_ALGEBRA, *_FURTHER, *_EXPONENTIALS, *_TRIGONOMETRY, *_STEPS)
