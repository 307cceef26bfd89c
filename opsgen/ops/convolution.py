"""Convolution and transposed convolution in one, two and three dims."""

from __future__ import annotations

from math import prod

from opsgen.ops.dims import Shape
from opsgen.ops.entry import Attrs, Draw, Kind, Op, Shapes, spell

_CHANNELS = (8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
_DEFAULTS: Attrs = {"stride": 1, "padding": 0, "dilation": 1, "groups": 1, "bias": True}


def _conv_attrs(draw: Draw, ins: Shapes) -> Attrs | None:
    _, channels, *space = ins[0]
    # Repeats are weights: most layers of real models have stride, dilation and groups of one.
    attrs = draw.pick(
        kernel_size=(1, 3, 3, 3, 5, 7),
        stride=(1, 1, 1, 2),
        dilation=(1, 1, 1, 2),
        groups=[g for g in (1, 1, 1, 2, 4, 8) if channels % g == 0],
        bias=(True, True, False),
    )
    if attrs is None:
        return None
    reach = attrs["dilation"] * (attrs["kernel_size"] - 1)
    padding = draw.pick(padding=sorted({0, reach // 2, 1} if reach else {0}))
    out = draw.size("out_channels", _CHANNELS, multiple_of=attrs["groups"])
    if padding is None or out is None:
        return None
    if min(space) + 2 * padding["padding"] <= reach:
        return None
    return {**attrs, **padding, **out}


def _conv_out(ins: Shapes, attrs: Attrs) -> Shape:
    batch, _, *space = ins[0]
    reach = attrs["dilation"] * (attrs["kernel_size"] - 1)
    return (
        batch,
        attrs["out_channels"],
        *[(size + 2 * attrs["padding"] - reach - 1) // attrs["stride"] + 1 for size in space],
    )


def _terms(ins: Shapes, attrs: Attrs) -> int:
    window: int = attrs["kernel_size"] ** (len(ins[0]) - 2)
    return ins[0][1] // attrs["groups"] * window


def _params(ins: Shapes, attrs: Attrs) -> int:
    bias: int = attrs["out_channels"] * attrs["bias"]
    return _terms(ins, attrs) * attrs["out_channels"] + bias


def _flops(ins: Shapes, attrs: Attrs, out: Shape) -> int:
    return 2 * prod(out) * _terms(ins, attrs)


def _conv(dims: int) -> Op:
    return Op(
        f"conv{dims}d",
        Kind.CONVOLUTION,
        (
            spell(
                "{self}({x})",
                f"nn.Conv{dims}d({{C}}, {{out_channels}}, {{kernel_size}}{{...}}{{dtype}})",
            ),
        ),
        ranks=(dims + 2,),
        layout="channels",
        attrs=_conv_attrs,
        out=_conv_out,
        defaults=_DEFAULTS,
        params=_params,
        terms=_terms,
        flops=_flops,
    )


OPS = (_conv(1), _conv(2), _conv(3))
