"""Interpolation and padding."""

from __future__ import annotations

from math import prod
from typing import Any

from opsgen.ops.dims import Shape
from opsgen.ops.entry import Attrs, Draw, Kind, Op, Operand, Shapes, Spelling, spell
from opsgen.ops.intervals import (
    REAL,
    SIGNED_UNIT,
    Interval,
    Range,
    hull,
    of_first,
    of_first_with_zero,
)

# Scale factor: numerator and denominator. Sizes stay exact where the factor is a float too.
_SCALES: dict[float, tuple[int, int]] = {2: (2, 1), 3: (3, 1), 1.5: (3, 2), 0.5: (1, 2)}


def _scaled(ins: Shapes, attrs: Attrs) -> Shape:
    times, parts = _SCALES[attrs["scale_factor"]]
    return (*ins[0][:2], *[size * times // parts for size in ins[0][2:]])


def _scale_choices(shape: Shape) -> list[float]:
    return [scale for scale in (2, 2, 3, 1.5, 0.5) if scale > 1 or min(shape[2:]) >= 4]


def _nearest_attrs(draw: Draw, ins: Shapes) -> Attrs | None:
    return draw.pick(scale_factor=_scale_choices(ins[0]), mode=("nearest", "nearest-exact"))


def _area_attrs(draw: Draw, ins: Shapes) -> Attrs | None:
    return draw.pick(scale_factor=[scale for scale in (0.5, 2) if scale > 1 or min(ins[0][2:]) > 3])


def _aligned_attrs(draw: Draw, ins: Shapes) -> Attrs | None:
    return draw.pick(scale_factor=_scale_choices(ins[0]), align_corners=(False, False, True))


def _smooth_attrs(draw: Draw, ins: Shapes) -> Attrs | None:
    attrs = _aligned_attrs(draw, ins)
    if attrs is None:
        return None
    # Antialiasing changes nothing while growing.
    shrinks = attrs["scale_factor"] < 1
    more = draw.pick(antialias=(False, True) if shrinks else (False,))
    return None if more is None else {**attrs, **more}


def _bicubic_range(ranges: tuple[Interval, ...], _attrs: Attrs) -> Interval:
    # Weights of the cubic kernel sum to one with negative parts: at most 0.2 of the span a side.
    span = ranges[0].high - ranges[0].low
    return Interval(ranges[0].low - 0.5 * span, ranges[0].high + 0.5 * span)


def _spellings(mode: str, *, has_module: bool) -> tuple[Spelling, ...]:
    # The module lacks antialias, and calls of `area` in it are rare.
    head = f'scale_factor={{scale_factor}}, mode="{mode}"{{...}}'
    module = (spell("{self}({x})", f"nn.Upsample({head})"),) if has_module else ()
    return (*module, spell(f"F.interpolate({{x}}, {head})"))


def _interpolate(mode: str, ranks: tuple[int, ...], taps: int, **fields: Any) -> Op:
    settings: dict[str, Any] = {"range": of_first, **fields}
    return Op(
        f"interpolate_{mode}",
        Kind.RESAMPLE,
        _spellings(mode, has_module="antialias" not in fields.get("defaults", {})),
        ranks=ranks,
        layout="channels",
        out=_scaled,
        terms=lambda ins, attrs: taps,
        flops=lambda ins, attrs, out: 2 * taps * prod(out),
        **settings,
    )


_ALIGNED: Attrs = {"align_corners": False}
_SMOOTH: Attrs = {"align_corners": False, "antialias": False}

_INTERPOLATIONS = (
    Op(
        "interpolate_nearest",
        Kind.RESAMPLE,
        (
            spell("{self}({x})", "nn.Upsample(scale_factor={scale_factor}, mode={mode})"),
            spell("F.interpolate({x}, scale_factor={scale_factor}, mode={mode})"),
        ),
        ranks=(3, 4, 5),
        layout="channels",
        attrs=_nearest_attrs,
        out=_scaled,
        flops=lambda ins, attrs, out: 0,
        range=of_first,
    ),
    _interpolate("linear", (3,), 2, attrs=_aligned_attrs, defaults=_ALIGNED),
    _interpolate(
        "bilinear", (4,), 4, attrs=_smooth_attrs, defaults=_SMOOTH, is_full_precision=True
    ),
    _interpolate("trilinear", (5,), 8, attrs=_aligned_attrs, defaults=_ALIGNED),
    _interpolate(
        "bicubic",
        (4,),
        16,
        attrs=_smooth_attrs,
        defaults=_SMOOTH,
        range=_bicubic_range,
        is_full_precision=True,
    ),
    _interpolate("area", (3, 4, 5), 8, attrs=_area_attrs),
)


def _grid(_draw: Draw, ins: Shapes, attrs: Attrs) -> tuple[Operand, ...]:
    shape = (ins[0][0], attrs["grid_height"], attrs["grid_width"], 2)
    return (Operand(shape, SIGNED_UNIT, name="grid"),)


def _grid_attrs(draw: Draw, _ins: Shapes) -> Attrs | None:
    height = draw.size("grid_height", (16, 32, 64, 128))
    width = draw.size("grid_width", (16, 32, 64, 128))
    more = draw.pick(
        mode=("bilinear", "bilinear", "bicubic"),
        padding_mode=("zeros", "border", "reflection"),
        align_corners=(False, True),
    )
    if height is None or width is None or more is None:
        return None
    return {**more, **height, **width}


_GRID_SAMPLE = Op(
    "grid_sample",
    Kind.RESAMPLE,
    (spell("F.grid_sample({x}, {y}{...}, align_corners={align_corners})"),),
    ranks=(4,),
    layout="channels",
    attrs=_grid_attrs,
    operands=_grid,
    out=lambda ins, attrs: (*ins[0][:2], attrs["grid_height"], attrs["grid_width"]),
    defaults={"mode": "bilinear", "padding_mode": "zeros"},
    terms=lambda ins, attrs: 16 if attrs["mode"] == "bicubic" else 4,
    flops=lambda ins, attrs, out: 16 * prod(out),
    range=lambda ranges, attrs: (
        REAL if attrs["mode"] == "bicubic" else of_first_with_zero(ranges, attrs)
    ),
)


def _volume_grid_attrs(draw: Draw, _ins: Shapes) -> Attrs | None:
    sizes = [draw.size(f"grid_{name}", (8, 16, 32)) for name in ("depth", "height", "width")]
    more = draw.pick(padding_mode=("zeros", "border", "reflection"), align_corners=(False, True))
    attrs = dict(more or {})
    for size in sizes:
        attrs |= size or {}
    return attrs


def _volume(ins: Shapes, attrs: Attrs) -> Shape:
    return (attrs["grid_depth"], attrs["grid_height"], attrs["grid_width"])


_GRID_SAMPLE_3D = Op(
    "grid_sample3d",
    Kind.RESAMPLE,
    (spell("F.grid_sample({x}, {y}{...}, align_corners={align_corners})"),),
    ranks=(5,),
    layout="channels",
    attrs=_volume_grid_attrs,
    operands=lambda draw, ins, attrs: (
        Operand((ins[0][0], *_volume(ins, attrs), 3), SIGNED_UNIT, name="grid"),
    ),
    out=lambda ins, attrs: (*ins[0][:2], *_volume(ins, attrs)),
    defaults={"padding_mode": "zeros"},
    terms=lambda ins, attrs: 8,
    flops=lambda ins, attrs, out: 30 * prod(out),
    range=of_first_with_zero,
    is_full_precision=True,
)

# Pairs of widths for the last dim first, as torch counts them; every second entry is lopsided.
_WIDTHS = {
    1: ((1, 1), (2, 1), (3, 3), (0, 2)),
    2: ((1, 1, 1, 1), (2, 1, 0, 1), (3, 3, 3, 3), (0, 1, 2, 0)),
    3: ((1, 1, 1, 1, 1, 1), (1, 0, 0, 1, 2, 1), (2, 2, 2, 2, 2, 2)),
}


def _pad_attrs(draw: Draw, ins: Shapes) -> Attrs | None:
    smallest = min(ins[0][2:])
    widths = _WIDTHS[len(ins[0]) - 2]
    # reflect and circular read other positions of the input, which must be there.
    return draw.pick(padding=[each for each in widths if max(each) < smallest])


def _pad_value_attrs(draw: Draw, ins: Shapes) -> Attrs | None:
    attrs, value = _pad_attrs(draw, ins), draw.pick(value=(0.0, 0.0, 1.0, -1.0))
    return None if attrs is None or value is None else {**attrs, **value}


def _padded(ins: Shapes, attrs: Attrs) -> Shape:
    padding = attrs["padding"]
    pairs = list(zip(padding[::2], padding[1::2], strict=True))[::-1]
    space = [size + left + right for size, (left, right) in zip(ins[0][2:], pairs, strict=True)]
    return (*ins[0][:2], *space)


def _with_pad_value(ranges: tuple[Interval, ...], attrs: Attrs) -> Interval:
    return hull(ranges[0], Interval(attrs["value"], attrs["value"]))


def _pad(dims: int, module: str, mode: str) -> Op:
    is_constant = mode == "constant"
    # The constant is always written: `value` has no default in the module.
    tail = ", {value}" if is_constant else ""
    functional = ", value={value}" if is_constant else f', mode="{mode}"'
    range_: Range = _with_pad_value if is_constant else of_first
    return Op(
        f"pad_{mode}{dims}d",
        Kind.RESAMPLE,
        (
            spell("{self}({x})", f"nn.{module}{dims}d({{padding}}{tail})"),
            spell(f"F.pad({{x}}, {{padding}}{functional})"),
        ),
        ranks=(dims + 2,),
        layout="channels",
        attrs=_pad_value_attrs if is_constant else _pad_attrs,
        out=_padded,
        flops=lambda ins, attrs, out: 0,
        range=range_,
    )


_PADS = tuple(
    _pad(dims, module, mode)
    for dims in (1, 2, 3)
    for module, mode in (
        ("ConstantPad", "constant"),
        ("ReflectionPad", "reflect"),
        ("ReplicationPad", "replicate"),
        ("CircularPad", "circular"),
    )
)

OPS = (*_INTERPOLATIONS, _GRID_SAMPLE, _GRID_SAMPLE_3D, *_PADS)
