"""Unary element-wise ops and activations."""

from __future__ import annotations

from opsgen.ops.entry import Attrs, Draw, Kind, Op, Shapes, spell
from opsgen.ops.intervals import (
    NONNEGATIVE,
    OPEN_UNIT,
    POSITIVE,
    UNIT,
    Interval,
)


def _clamp_attrs(draw: Draw, _ins: Shapes) -> Attrs | None:
    return draw.pick(min=(-1.0, -0.5, 0.0, 0.1), max=(0.5, 1.0, 2.0))


def _clamp_interval(attrs: Attrs) -> Interval:
    return Interval(attrs["min"], attrs["max"])


OPS = (
    Op(
        "relu",
        Kind.POINTWISE,
        (
            spell("{self}({x})", "nn.ReLU()"),
            spell("F.relu({x})"),
            spell("torch.relu({x})"),
            spell("{x}.relu()"),
        ),
        range=NONNEGATIVE,
        fixes=NONNEGATIVE,
        props=frozenset({"idempotent"}),
    ),
    Op(
        "gelu",
        Kind.POINTWISE,
        (spell("{self}({x})", "nn.GELU({...})"), spell("F.gelu({x}{...})")),
        attrs=lambda draw, ins: draw.pick(approximate=("none", "none", "tanh")),
        defaults={"approximate": "none"},
        range=Interval(-0.2, float("inf")),
    ),
    Op(
        "sigmoid",
        Kind.POINTWISE,
        (
            spell("{self}({x})", "nn.Sigmoid()"),
            spell("torch.sigmoid({x})"),
            spell("{x}.sigmoid()"),
        ),
        range=OPEN_UNIT,
        props=frozenset({"increasing"}),
    ),
    Op(
        "log",
        Kind.POINTWISE,
        (spell("torch.log({x})"), spell("{x}.log()")),
        domain=POSITIVE,
        props=frozenset({"increasing"}),
    ),
    Op(
        "clamp",
        Kind.POINTWISE,
        (
            spell("torch.clamp({x}, min={min}, max={max})"),
            spell("{x}.clamp({min}, {max})"),
        ),
        attrs=_clamp_attrs,
        range=lambda ranges, attrs: _clamp_interval(attrs),
        fixes=_clamp_interval,
        props=frozenset({"idempotent"}),
    ),
    Op(
        "hardsigmoid",
        Kind.POINTWISE,
        (spell("{self}({x})", "nn.Hardsigmoid()"), spell("F.hardsigmoid({x})")),
        range=UNIT,
    ),
)
