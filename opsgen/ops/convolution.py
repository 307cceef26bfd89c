"""Convolution and transposed convolution in one, two and three dims."""

from __future__ import annotations

from math import prod
from typing import Any

from opsgen.ops.dims import Shape
from opsgen.ops.entry import Attrs, Draw, Kind, Op, Shapes, spell
from opsgen.ops.windows import (
    Window,
    fits,
    padding_choices,
    per_dim,
    reaches,
    window_counts,
    window_size,
)

_CHANNELS = (8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
_DEPTHWISE_DEFAULTS: Attrs = {
    "stride": 1,
    "padding": 0,
    "dilation": 1,
    "bias": True,
    "padding_mode": "zeros",
}
_CONV_DEFAULTS: Attrs = {**_DEPTHWISE_DEFAULTS, "groups": 1}
_TRANSPOSE_DEFAULTS: Attrs = {
    "stride": 1,
    "padding": 0,
    "output_padding": 0,
    "dilation": 1,
    "groups": 1,
    "bias": True,
}
# Repeats are weights: most layers of real models have stride, dilation and groups of one.
_STRIDES = (1, 1, 1, 2)
_DILATIONS = (1, 1, 1, 2)
_GROUPS = (1, 1, 1, 2, 4, 8)
_BIASES = (True, True, False)
_MODES = ("zeros", "zeros", "zeros", "reflect", "replicate", "circular")
_KERNELS: dict[int, tuple[Window, ...]] = {
    1: (1, 3, 3, 3, 5, 7),
    2: (1, 3, 3, 3, 5, 7, (1, 5), (7, 1)),
    3: (1, 3, 3, 3, 5, (1, 3, 3), (3, 1, 1)),
}


def _padded(draw: Draw, space: Shape, attrs: Attrs) -> Attrs | None:
    """Add padding and, where it pads, how; None if the window does not fit."""
    dims = len(space)
    padding = draw.pick(padding=padding_choices(attrs, dims))
    if padding is None or not fits(space, {**attrs, **padding}):
        return None
    widths = per_dim(padding["padding"], dims)
    # reflect reads one more position than it pads.
    may_wrap = any(widths) and all(w < size for w, size in zip(widths, space, strict=True))
    mode = draw.pick(padding_mode=_MODES if may_wrap else ("zeros",))
    return None if mode is None else {**attrs, **padding, **mode}


def _groups(channels: int) -> list[int]:
    # Below 8 channels a group cuDNN falls back to kernels that take 10 to 100 times as long.
    # Tiny twins may have them.
    return [g for g in _GROUPS if channels % g == 0 and (channels // g >= 8 or channels <= 8)]


def _conv_attrs(draw: Draw, ins: Shapes) -> Attrs | None:
    _, channels, *space = ins[0]
    attrs = draw.pick(
        kernel_size=_KERNELS[len(space)],
        stride=_STRIDES,
        dilation=_DILATIONS,
        groups=_groups(channels),
        bias=_BIASES,
    )
    if attrs is None:
        return None
    padded = _padded(draw, tuple(space), attrs)
    out = draw.size("out_channels", _CHANNELS, multiple_of=attrs["groups"])
    return None if padded is None or out is None else {**padded, **out}


def _conv_out(ins: Shapes, attrs: Attrs) -> Shape:
    return (ins[0][0], attrs["out_channels"], *window_counts(ins[0][2:], attrs))


def _terms(ins: Shapes, attrs: Attrs) -> int:
    channels: int = ins[0][1] // attrs["groups"]
    return channels * window_size(attrs["kernel_size"], len(ins[0]) - 2)


def _params(ins: Shapes, attrs: Attrs) -> int:
    bias: int = attrs["out_channels"] * attrs["bias"]
    weights: int = _terms(ins, attrs) * attrs["out_channels"]
    return weights + bias


def _flops(ins: Shapes, attrs: Attrs, out: Shape) -> int:
    return 2 * prod(out) * _terms(ins, attrs)


def _depthwise_attrs(draw: Draw, ins: Shapes) -> Attrs | None:
    _, _, *space = ins[0]
    kernels = [kernel for kernel in _KERNELS[len(space)] if kernel != 1]
    attrs = draw.pick(kernel_size=kernels, stride=_STRIDES, dilation=_DILATIONS, bias=_BIASES)
    return None if attrs is None else _padded(draw, tuple(space), attrs)


def _depthwise(ins: Shapes, attrs: Attrs) -> Attrs:
    """Attributes of the convolution that a depthwise one is."""
    return {**attrs, "groups": ins[0][1], "out_channels": ins[0][1]}


def _transpose_attrs(draw: Draw, ins: Shapes) -> Attrs | None:
    channels = ins[0][1]
    attrs = draw.pick(
        kernel_size=(2, 3, 3, 4, 5),
        stride=(2, 2, 1, 3),
        dilation=_DILATIONS,
        groups=_groups(channels),
        bias=_BIASES,
    )
    if attrs is None:
        return None
    reach = reaches(attrs, 1)[0]
    more = draw.pick(
        padding=sorted({0, reach // 2}),
        # torch wants it below the stride or the dilation.
        output_padding=[pad for pad in (0, 0, 1) if pad < max(attrs["stride"], attrs["dilation"])],
    )
    out = draw.size("out_channels", _CHANNELS, multiple_of=attrs["groups"])
    if more is None or out is None:
        return None
    attrs = {**attrs, **more, **out}
    return attrs if min(_transpose_out(ins, attrs)) > 0 else None


def _transpose_out(ins: Shapes, attrs: Attrs) -> Shape:
    grown = attrs["dilation"] * (attrs["kernel_size"] - 1) + attrs["output_padding"] + 1
    space = [(size - 1) * attrs["stride"] - 2 * attrs["padding"] + grown for size in ins[0][2:]]
    return (ins[0][0], attrs["out_channels"], *space)


def _transpose_params(ins: Shapes, attrs: Attrs) -> int:
    window = window_size(attrs["kernel_size"], len(ins[0]) - 2)
    outs: int = attrs["out_channels"] // attrs["groups"]
    weights = ins[0][1] * window * outs
    bias: int = attrs["out_channels"] * attrs["bias"]
    return weights + bias


def _transpose_flops(ins: Shapes, attrs: Attrs, _out: Shape) -> int:
    window = window_size(attrs["kernel_size"], len(ins[0]) - 2)
    outs: int = attrs["out_channels"] // attrs["groups"]
    return 2 * prod(ins[0]) * window * outs


def _convolution(name: str, init: str, dims: int, **fields: Any) -> Op:
    return Op(
        name,
        Kind.CONVOLUTION,
        (spell("{self}({x})", init),),
        ranks=(dims + 2,),
        layout="channels",
        **fields,
    )


def _family(dims: int) -> tuple[Op, ...]:
    return (
        _convolution(
            f"conv{dims}d",
            f"nn.Conv{dims}d({{C}}, {{out_channels}}, {{kernel_size}}{{...}}{{dtype}})",
            dims,
            attrs=_conv_attrs,
            defaults=_CONV_DEFAULTS,
            out=_conv_out,
            params=_params,
            terms=_terms,
            flops=_flops,
        ),
        _convolution(
            f"depthwise_conv{dims}d",
            f"nn.Conv{dims}d({{C}}, {{C}}, {{kernel_size}}{{...}}, groups={{C}}{{dtype}})",
            dims,
            attrs=_depthwise_attrs,
            defaults=_DEPTHWISE_DEFAULTS,
            out=lambda ins, attrs: _conv_out(ins, _depthwise(ins, attrs)),
            params=lambda ins, attrs: _params(ins, _depthwise(ins, attrs)),
            terms=lambda ins, attrs: _terms(ins, _depthwise(ins, attrs)),
            flops=lambda ins, attrs, out: _flops(ins, _depthwise(ins, attrs), out),
        ),
        _convolution(
            f"conv_transpose{dims}d",
            f"nn.ConvTranspose{dims}d({{C}}, {{out_channels}}, {{kernel_size}}{{...}}{{dtype}})",
            dims,
            attrs=_transpose_attrs,
            defaults=_TRANSPOSE_DEFAULTS,
            out=_transpose_out,
            params=_transpose_params,
            terms=_terms,
            flops=_transpose_flops,
        ),
    )


OPS = (*_family(1), *_family(2), *_family(3))
