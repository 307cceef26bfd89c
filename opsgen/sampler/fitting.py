"""From measured points to a calibration: medians all the way, so that a few odd points do nothing.

Pure. Speeds are fitted by kind, then factors by op, by dtype and of backwards,
each on what the ones before it leave over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median, quantiles

import msgspec

from opsgen.records import Graph, Record
from opsgen.sampler.backward import backward_work
from opsgen.sampler.calibration import Calibration
from opsgen.sampler.cost import (
    ITEM_BYTES,
    is_outer,
    node_work,
    predict_ms,
    predict_peak_bytes,
)
from opsgen.sampler.resolution import resolve

_NUM_ROUNDS = 12
_FULL = "float32"
_FACTOR = (0.001, 1000.0)  # what a view or a very slow op can be, beside its kind
_MIN_WORK = 0.02  # of a measured time: what is left at least when the launch is taken off
_OUTER_DIFFERENCE = 1.1  # of factors along outer and last dims, below which they share one
_MIN_SCRATCH = 0.02
_MIN_DTYPE_POINTS = 3


class Point(Record, frozen=True, kw_only=True):
    """One op measured on its own."""

    key: str
    """Which draw: op, dtype and number."""
    graph: Graph
    """The graph of the single op."""
    sizes: dict[str, int]
    """Its sizes."""
    eager_ms: float | None = None
    """Median of eager calls, milliseconds; absent where it failed."""
    peak_bytes: int | None = None
    """Peak device memory of a call; absent on a CPU and where it failed."""
    failure: str | None = None
    """What went wrong, in a line; absent where it did not."""


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


@dataclass(frozen=True, slots=True)
class _Sample:
    """A point as the model sees it: `work_ms` is its time without the launch."""

    op: str
    kind: str
    dtype: str
    is_outer: bool
    moved: float
    flops: float
    work_ms: float


def fit_calibration(points: Iterable[Point], base: Calibration, launch_ms: float) -> Calibration:
    """Return `base` with everything fitted that the points speak of.

    Args:
        points: Measured graphs of one op each; failed ones are passed over.
        base: What stays where there are no points; its factors of ops are dropped.
        launch_ms: Measured time of a call that does next to nothing.
    """
    measured = [point for point in points if point.eager_ms is not None]
    samples = [_sample(point, launch_ms) for point in measured if not _is_gradient(point)]
    full = [sample for sample in samples if sample.dtype == _FULL]
    fitted = msgspec.structs.replace(
        base, launch_ms=launch_ms, ops={}, dtypes={}, gradients={}, scratch={}
    )
    fitted = _fit_kinds(full, fitted)
    fitted = _fit_ops(full, fitted)
    for dtype in sorted({sample.dtype for sample in samples} - {_FULL}):
        fitted = _fit_dtype([each for each in samples if each.dtype == dtype], fitted, dtype)
    fitted = _fit_gradients([point for point in measured if _is_gradient(point)], fitted)
    return _fit_scratch(measured, fitted)


def _is_gradient(point: Point) -> bool:
    return point.graph.grad_output is not None


def _sample(point: Point, launch_ms: float) -> _Sample:
    assert point.eager_ms is not None
    node = resolve(point.graph, point.sizes).nodes[0]
    moved, flops = node_work(node, ITEM_BYTES[point.graph.dtype])
    return _Sample(
        op=node.op.name,
        kind=node.op.kind.value,
        dtype=point.graph.dtype,
        is_outer=is_outer(node),
        moved=moved,
        flops=flops,
        work_ms=max(point.eager_ms - launch_ms, _MIN_WORK * point.eager_ms),
    )


def _by(
    samples: Iterable[_Sample], key: Callable[[_Sample], str]
) -> list[tuple[str, list[_Sample]]]:
    groups: dict[str, list[_Sample]] = {}
    for sample in samples:
        groups.setdefault(key(sample), []).append(sample)
    return sorted(groups.items())


def _fit_kinds(samples: Sequence[_Sample], start: Calibration) -> Calibration:
    bandwidths = dict(start.bandwidth_gb_s)
    rates = {dtype: dict(table) for dtype, table in start.rate_gflop_s.items()}
    for kind, group in _by(samples, lambda each: each.kind):
        bandwidth, rate = start.bandwidth(kind), start.rate(kind, _FULL)
        # Points of the memory's side fit the bandwidth, those of the arithmetic's the rate;
        # which side a point is on follows from both, hence the rounds.
        for _ in range(_NUM_ROUNDS):
            memory: list[_Sample] = []
            arithmetic: list[_Sample] = []
            for each in group:
                is_memory = each.moved / bandwidth >= each.flops / rate
                (memory if is_memory else arithmetic).append(each)
            if memory:
                bandwidth = median(each.moved / each.work_ms for each in memory)
            if arithmetic:
                rate = median(each.flops / each.work_ms for each in arithmetic)
        bandwidths[kind] = bandwidth / 1e6
        rates[_FULL][kind] = rate / 1e6
    return msgspec.structs.replace(start, bandwidth_gb_s=bandwidths, rate_gflop_s=rates)


def _fit_ops(samples: Sequence[_Sample], start: Calibration) -> Calibration:
    ops = dict(start.ops)
    for name, group in _by(samples, lambda each: each.op):
        ratios = {
            is_outer: [_ratio(each, start) for each in group if each.is_outer is is_outer]
            for is_outer in (False, True)
        }
        inner, outer = ratios[False] or ratios[True], ratios[True]
        ops[name] = _factor(inner)
        if outer and ratios[False]:
            factor = _factor(outer)
            difference = max(factor / ops[name], ops[name] / factor)
            if difference < _OUTER_DIFFERENCE:
                ops[name] = _factor(inner + outer)
            else:
                ops[f"{name}:outer"] = factor
    return msgspec.structs.replace(start, ops=ops)


def _ratio(sample: _Sample, calibration: Calibration) -> float:
    """Return measured work over modelled work."""
    factor = calibration.op_factor(sample.op, is_outer=sample.is_outer)
    work_ms = calibration.work_ms(sample.kind, sample.dtype, sample.moved, sample.flops)
    return sample.work_ms / (factor * work_ms)


def _factor(ratios: Sequence[float]) -> float:
    low, high = _FACTOR
    return min(high, max(low, median(ratios)))


def _fit_dtype(samples: Sequence[_Sample], start: Calibration, dtype: str) -> Calibration:
    """Fit rate and memory time of a dtype by kind, with the factors of ops that float32 gave."""
    rates = {name: dict(table) for name, table in start.rate_gflop_s.items()}
    if dtype not in rates:
        rates[dtype] = dict(rates[_FULL])
    factors: dict[str, float] = {}
    for kind, group in _by(samples, lambda each: each.kind):
        if len(group) < _MIN_DTYPE_POINTS:
            continue
        slower, rate = 1.0, start.rate(kind, dtype)
        for _ in range(_NUM_ROUNDS):
            memory: list[float] = []
            arithmetic: list[float] = []
            for each in group:
                factor = start.op_factor(each.op, is_outer=each.is_outer)
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
            left_ms = max(point.eager_ms - forward_ms, _MIN_WORK * point.eager_ms)
            ratios.setdefault(node.op.kind.value, []).append(left_ms / backward_ms)
    gradients = {kind: _factor(each) for kind, each in sorted(ratios.items())}
    return msgspec.structs.replace(start, gradients=gradients)


def _fit_scratch(points: Sequence[Point], start: Calibration) -> Calibration:
    shares: dict[str, list[float]] = {}
    for point in points:
        if point.peak_bytes is None or _is_gradient(point):
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
        kind = resolution.nodes[0].op.kind.value + (" backward" if _is_gradient(point) else "")
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


def _rank(group: tuple[str, str]) -> tuple[bool, bool, str, str]:
    dtype, kind = group
    return dtype == "any", dtype != _FULL, dtype, kind


def _spread(ratios: Sequence[float]) -> tuple[float, float, float]:
    if len(ratios) == 1:
        return ratios[0], ratios[0], ratios[0]
    tenths = quantiles(ratios, n=10, method="inclusive")
    return tenths[0], median(ratios), tenths[-1]
