"""Windowed reductions, sliding and adaptive."""

from __future__ import annotations

import math
from math import prod
from typing import Any

from opsgen.ops.dims import Shape
from opsgen.ops.entry import Attrs, Draw, Kind, Op, Shapes, spell
from opsgen.ops.intervals import Interval, of_first, of_first_with_zero, of_magnitude
from opsgen.ops.windows import fits, reaches, window_counts, window_size


def _space(shape: Shape) -> Shape:
    return shape[2:]


def _out(ins: Shapes, attrs: Attrs) -> Shape:
    return (*ins[0][:2], *window_counts(_space(ins[0]), attrs))


def _terms(ins: Shapes, attrs: Attrs) -> int:
    return window_size(attrs["kernel_size"], len(_space(ins[0])))


def _flops(ins: Shapes, attrs: Attrs, out: Shape) -> int:
    return prod(out) * _terms(ins, attrs)


def _window_attrs(draw: Draw, ins: Shapes) -> Attrs | None:
    attrs = draw.pick(kernel_size=(2, 3, 3, 5), stride=(2, 2, 1, 3))
    if attrs is None:
        return None
    padding = draw.pick(padding=sorted({0, attrs["kernel_size"] // 2}))
    return None if padding is None else {**attrs, **padding}


def _rounded(draw: Draw, ins: Shapes, attrs: Attrs) -> Attrs | None:
    """Add `ceil_mode` where the last window is sure to start inside, and check the size."""
    span = min(reaches(attrs, len(_space(ins[0]))))
    may_ceil = attrs["stride"] > 1 and attrs["stride"] + attrs["padding"] <= span + 1
    more = draw.pick(ceil_mode=(False, False, True) if may_ceil else (False,))
    return {**attrs, **more} if more is not None and fits(_space(ins[0]), attrs) else None


def _max_attrs(draw: Draw, ins: Shapes) -> Attrs | None:
    attrs, more = _window_attrs(draw, ins), draw.pick(dilation=(1, 1, 1, 2))
    # A window that steps over a shorter input would see padding only, whose maximum is -inf.
    if attrs is None or more is None or min(_space(ins[0])) < more["dilation"]:
        return None
    return _rounded(draw, ins, {**attrs, **more})


def _avg_attrs(draw: Draw, ins: Shapes) -> Attrs | None:
    attrs = _window_attrs(draw, ins)
    # In three dims torch wants the window to fit without padding.
    if attrs is None or min(_space(ins[0])) < attrs["kernel_size"]:
        return None
    more = draw.pick(count_include_pad=(True, False) if attrs["padding"] else (True,))
    return None if more is None else _rounded(draw, ins, {**attrs, **more})


def _lp_attrs(draw: Draw, ins: Shapes) -> Attrs | None:
    attrs = draw.pick(norm_type=(2, 2, 4), kernel_size=(2, 3, 4), stride=(2, 2, 1, 3))
    if attrs is None:
        return None
    padded = _rounded(draw, ins, {**attrs, "padding": 0})
    return None if padded is None else {key: padded[key] for key in padded if key != "padding"}


def _lp_out(ins: Shapes, attrs: Attrs) -> Shape:
    return _out(ins, {**attrs, "padding": 0})


def _lp_range(ranges: tuple[Interval, ...], attrs: Attrs) -> Interval:
    # A window cut by ceil_mode is scaled up as if it were whole.
    return Interval(of_magnitude(ranges, attrs).low, math.inf)


def _pool(name: str, module: str, head: str, **fields: Any) -> Op:
    dims = int(name[-2])
    settings: dict[str, Any] = {"out": _out, "range": of_first, **fields}
    return Op(
        name,
        Kind.POOLING,
        (
            spell("{self}({x})", f"nn.{module}({head}{{...}})"),
            spell(f"F.{name}({{x}}, {head}{{...}})"),
        ),
        ranks=(dims + 2,),
        layout="channels",
        terms=_terms,
        flops=_flops,
        **settings,
    )


def _sliding(dims: int) -> tuple[Op, ...]:
    defaults: Attrs = {"padding": 0, "ceil_mode": False}
    return (
        _pool(
            f"max_pool{dims}d",
            f"MaxPool{dims}d",
            "{kernel_size}, stride={stride}",
            attrs=_max_attrs,
            defaults={**defaults, "dilation": 1},
        ),
        _pool(
            f"avg_pool{dims}d",
            f"AvgPool{dims}d",
            "{kernel_size}, stride={stride}",
            attrs=_avg_attrs,
            is_full_precision=dims == 3,
            defaults={**defaults, "count_include_pad": True},
            range=of_first_with_zero,
        ),
        _pool(
            f"lp_pool{dims}d",
            f"LPPool{dims}d",
            "{norm_type}, {kernel_size}, stride={stride}",
            attrs=_lp_attrs,
            out=_lp_out,
            is_full_precision=dims == 3,
            defaults={"ceil_mode": False},
            passes=4.0,
            range=_lp_range,
            props=frozenset({"even"}),
        ),
    )


def _adaptive_attrs(draw: Draw, ins: Shapes) -> Attrs | None:
    smallest = min(_space(ins[0]))
    return draw.pick(output_size=[size for size in (1, 1, 2, 4, 7) if size < smallest])


def _adaptive_out(ins: Shapes, attrs: Attrs) -> Shape:
    return (*ins[0][:2], *[attrs["output_size"]] * len(_space(ins[0])))


def _adaptive_terms(ins: Shapes, attrs: Attrs) -> int:
    # Windows overlap by one where the sizes do not divide.
    return prod(size // attrs["output_size"] + 1 for size in _space(ins[0]))


def _adaptive(dims: int, fold: str) -> Op:
    name = f"adaptive_{fold.lower()}_pool{dims}d"
    return Op(
        name,
        Kind.POOLING,
        (
            spell("{self}({x})", f"nn.Adaptive{fold}Pool{dims}d({{output_size}})"),
            spell(f"F.{name}({{x}}, {{output_size}})"),
        ),
        ranks=(dims + 2,),
        layout="channels",
        attrs=_adaptive_attrs,
        out=_adaptive_out,
        terms=_adaptive_terms if fold == "Avg" else lambda ins, attrs: 1,
        flops=lambda ins, attrs, out: prod(ins[0]),
        range=of_first,
    )


OPS = (
    *_sliding(1),
    *_sliding(2),
    *_sliding(3),
    *[_adaptive(dims, fold) for dims in (1, 2, 3) for fold in ("Avg", "Max")],
)
