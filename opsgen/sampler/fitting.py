"""From measured points to a calibration: medians all the way, so that a few odd points do nothing.

Pure. Speeds are fitted by kind, then factors by op, by dtype and of backwards,
each on what the ones before it leave over.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median, quantiles

import msgspec

from opsgen.records import Record
from opsgen.sampler.backward import backward_work
from opsgen.sampler.calibration import Calibration
from opsgen.sampler.cost import ITEM_BYTES, predict_ms, predict_peak_bytes
from opsgen.sampler.points import (
    MIN_WORK,
    Point,
    Sample,
    group_by,
    is_gradient,
    is_plain,
    is_strided,
    make_sample,
)
from opsgen.sampler.resolution import resolve
from opsgen.sampler.shapes import MIN_POINTS, base_ratio, fit_shape

_FULL = "float32"
_FACTOR = (0.001, 1000.0)  # what a view or a very slow op can be, beside its kind
_VARIANT_DIFFERENCE = 1.1  # of the factors of two variants, below which they share one
_MIN_SCRATCH = 0.02
_NUM_SIDES = 12  # rounds after which every point stays on the side that bounds it
_MIN_DTYPE_POINTS = 3


class KindFit(Record, frozen=True, kw_only=True):
    """How well a kind's points are predicted, before and after the fit."""

    kind: str
    """Kind of op, or `all`."""
    dtype: str
    """Working dtype of the points."""
    num_points: int
    """Points measured."""
    before: tuple[float, float, float]
    """Tenth percentile, median and ninetieth percentile of predicted over measured."""
    after: tuple[float, float, float]
    """The same under the fitted calibration."""


def fit_calibration(points: Iterable[Point], base: Calibration, launch_ms: float) -> Calibration:
    """Return `base` with everything fitted that the points speak of.

    Args:
        points: Measured graphs of one op each; failed ones are passed over.
        base: What stays where there are no points; its factors of ops are dropped.
        launch_ms: Measured time of a call that does next to nothing.
    """
    measured = [point for point in points if point.eager_ms is not None]
    samples = [make_sample(point, launch_ms) for point in measured if is_plain(point)]
    full = [sample for sample in samples if sample.dtype == _FULL]
    fitted = msgspec.structs.replace(
        base, launch_ms=launch_ms, ops={}, half={}, dtypes={}, strided={}, gradients={}, scratch={}
    )
    fitted = _fit_kinds(full, fitted)
    fitted = _fit_ops(full, fitted)
    narrow = [sample for sample in samples if sample.dtype != _FULL]
    for dtype in sorted({sample.dtype for sample in narrow}):
        fitted = _fit_dtype(narrow, fitted, dtype)
    fitted = _fit_half(narrow, fitted)
    fitted = _fit_strided([point for point in measured if is_strided(point)], fitted)
    fitted = _fit_gradients([point for point in measured if is_gradient(point)], fitted)
    return _fit_scratch(measured, fitted)


def _fit_kinds(samples: Sequence[Sample], start: Calibration) -> Calibration:
    """Fit speeds and extents by kind."""
    bandwidths = dict(start.bandwidth_gb_s)
    rates = {dtype: dict(table) for dtype, table in start.rate_gflop_s.items()}
    lengths: dict[str, float] = {}
    numbers: dict[str, float] = {}
    for kind, group in group_by(samples, lambda each: each.kind):
        shape = fit_shape(group, start.rate(kind, _FULL) / start.bandwidth(kind))
        level = median(base_ratio(each, shape) for each in group)
        bandwidths[kind] = 1 / level / 1e6
        rates[_FULL][kind] = shape.balance / level / 1e6
        lengths[kind], numbers[kind] = shape.half_length, shape.half_number
    return msgspec.structs.replace(
        start,
        bandwidth_gb_s=bandwidths,
        rate_gflop_s=rates,
        half_length={kind: value for kind, value in lengths.items() if value},
        half_number={kind: value for kind, value in numbers.items() if value},
    )


def _fit_ops(samples: Sequence[Sample], start: Calibration) -> Calibration:
    ops = dict(start.ops)
    for name, group in group_by(samples, lambda each: each.op):
        ratios = {
            variant: [_ratio(each, start) for each in same]
            for variant, same in group_by(group, lambda each: each.variant)
        }
        plain = ratios.pop("", [])
        ops[name] = _factor(plain or [ratio for each in ratios.values() for ratio in each])
        for variant, each in ratios.items():
            factor = _factor(each)
            if plain and max(factor / ops[name], ops[name] / factor) > _VARIANT_DIFFERENCE:
                ops[f"{name}:{variant}"] = factor
    return msgspec.structs.replace(start, ops=ops)


def _ratio(sample: Sample, calibration: Calibration) -> float:
    """Return measured work over modelled work."""
    work_ms = calibration.work_ms(sample.kind, sample.dtype, sample.moved, sample.flops)
    return sample.work_ms / (_op_factor(sample, calibration) * work_ms)


def _op_factor(sample: Sample, calibration: Calibration) -> float:
    """Return the factor of a sample's op, its extents included."""
    return calibration.op_factor(sample.op, sample.variant, sample.dtype) * sample.slowdown(
        calibration.half_length.get(sample.kind, 0.0),
        calibration.half_number.get(sample.kind, 0.0),
    )


def _factor(ratios: Sequence[float]) -> float:
    low, high = _FACTOR
    return min(high, max(low, median(ratios)))


def _fit_dtype(samples: Sequence[Sample], start: Calibration, dtype: str) -> Calibration:
    """Fit rate and memory time of a dtype by kind, with the factors of ops that float32 gave.

    Where a dtype has few points of a kind, those of the others beside float32 help it out.
    """
    rates = {name: dict(table) for name, table in start.rate_gflop_s.items()}
    if dtype not in rates:
        rates[dtype] = dict(rates[_FULL])
    factors: dict[str, float] = {}
    for kind, every in group_by(samples, lambda each: each.kind):
        own = [each for each in every if each.dtype == dtype]
        group = own if len(own) >= MIN_POINTS else every
        if len(group) < _MIN_DTYPE_POINTS:
            continue
        # Arithmetic outside products is done in float32 whatever the dtype in memory.
        slower, rate = 1.0, start.rate(kind, dtype if kind in rates[dtype] else _FULL)
        for _ in range(_NUM_SIDES):
            memory: list[float] = []
            arithmetic: list[float] = []
            for each in group:
                factor = _op_factor(each, start)
                memory_ms = factor * each.moved / start.bandwidth(kind)
                if slower * memory_ms >= factor * each.flops / rate:
                    memory.append(each.work_ms / memory_ms)
                else:
                    arithmetic.append(factor * each.flops / each.work_ms)
            slower = _factor(memory) if memory else slower
            rate = median(arithmetic) if arithmetic else rate
        factors[kind] = slower
        rates[dtype][kind] = rate / 1e6
    dtypes = {**start.dtypes, dtype: factors} if factors else start.dtypes
    return msgspec.structs.replace(start, rate_gflop_s=rates, dtypes=dtypes)


def _fit_half(samples: Sequence[Sample], start: Calibration) -> Calibration:
    """Fit what half precision does to an op beside what it does to its kind, halfway on trust."""
    half = {}
    for name, group in group_by(samples, lambda each: each.op):
        # A single point moves the factor by its root, more move it nearer to their median.
        half[name] = _factor([_ratio(each, start) for each in group]) ** (
            len(group) / (len(group) + 1)
        )
    return msgspec.structs.replace(start, half=half)


def _fit_strided(points: Sequence[Point], start: Calibration) -> Calibration:
    ratios: dict[str, list[float]] = {}
    for point in points:
        assert point.eager_ms is not None
        resolution = resolve(point.graph, point.sizes)
        plain_ms = predict_ms(point.graph, resolution, start)
        kind = resolution.nodes[0].op.kind.value
        ratios.setdefault(kind, []).append(point.eager_ms / plain_ms)
    strided = {kind: _factor(each) for kind, each in sorted(ratios.items())}
    return msgspec.structs.replace(start, strided=strided)


def _fit_gradients(points: Sequence[Point], start: Calibration) -> Calibration:
    ratios: dict[str, list[float]] = {}
    for point in points:
        assert point.eager_ms is not None
        resolution = resolve(point.graph, point.sizes)
        node = resolution.nodes[0]
        forward_ms = predict_ms(
            msgspec.structs.replace(point.graph, grad_output=None), resolution, start
        )
        backward_ms = predict_ms(point.graph, resolution, start) - forward_ms
        if backward_ms > 0 and backward_work(node, 1)[0] > 0:
            left_ms = max(point.eager_ms - forward_ms, MIN_WORK * point.eager_ms)
            ratios.setdefault(node.op.kind.value, []).append(left_ms / backward_ms)
    gradients = {kind: _factor(each) for kind, each in sorted(ratios.items())}
    return msgspec.structs.replace(start, gradients=gradients)


def _fit_scratch(points: Sequence[Point], start: Calibration) -> Calibration:
    shares: dict[str, list[float]] = {}
    for point in points:
        if point.peak_bytes is None or is_gradient(point):
            continue
        resolution = resolve(point.graph, point.sizes)
        beside = point.peak_bytes - predict_peak_bytes(point.graph, resolution)
        shares.setdefault(point.graph.nodes[0].op, []).append(beside / _around(point))
    scratch = {name: median(each) for name, each in sorted(shares.items())}
    scratch = {name: each for name, each in scratch.items() if abs(each) >= _MIN_SCRATCH}
    return msgspec.structs.replace(start, scratch=scratch)


def _around(point: Point) -> int:
    """Return the bytes of inputs and output, without parameters."""
    resolution = resolve(point.graph, point.sizes)
    held = predict_peak_bytes(point.graph, resolution)
    node = resolution.nodes[0]
    return held - ITEM_BYTES[point.graph.dtype] * node.op.params(node.ins, node.attrs)


def compare_fits(
    points: Iterable[Point], before: Calibration, after: Calibration
) -> tuple[KindFit, ...]:
    """Return how well two calibrations predict the points, by kind and dtype, and over all."""
    groups: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for point in points:
        if point.eager_ms is None:
            continue
        resolution = resolve(point.graph, point.sizes)
        ratios = (
            predict_ms(point.graph, resolution, before) / point.eager_ms,
            predict_ms(point.graph, resolution, after) / point.eager_ms,
        )
        kind = resolution.nodes[0].op.kind.value + _suffix(point)
        groups.setdefault((point.graph.dtype, kind), []).append(ratios)
        groups.setdefault(("any", "all"), []).append(ratios)
    return tuple(
        KindFit(
            kind=kind,
            dtype=dtype,
            num_points=len(ratios),
            before=_spread([each[0] for each in ratios]),
            after=_spread([each[1] for each in ratios]),
        )
        for (dtype, kind), ratios in sorted(groups.items(), key=lambda item: _rank(item[0]))
    )


def _suffix(point: Point) -> str:
    return " backward" if is_gradient(point) else " strided" if is_strided(point) else ""


def _rank(group: tuple[str, str]) -> tuple[bool, bool, str, str]:
    dtype, kind = group
    return dtype == "any", dtype != _FULL, dtype, kind


def _spread(ratios: Sequence[float]) -> tuple[float, float, float]:
    if len(ratios) == 1:
        return ratios[0], ratios[0], ratios[0]
    tenths = quantiles(ratios, n=10, method="inclusive")
    return tenths[0], median(ratios), tenths[-1]
