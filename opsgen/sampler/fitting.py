"""From measured points to a calibration: medians all the way, so that a few odd points do nothing.

Pure. Speeds are fitted by kind, then factors by op, by dtype and of backwards,
each on what the ones before it leave over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import log
from statistics import median, quantiles

import msgspec

from opsgen.records import Graph, Record
from opsgen.sampler.backward import backward_work
from opsgen.sampler.calibration import Calibration
from opsgen.sampler.cost import (
    ITEM_BYTES,
    node_work,
    predict_ms,
    predict_peak_bytes,
)
from opsgen.sampler.extents import extents, variant_of
from opsgen.sampler.resolution import resolve

_NUM_ROUNDS = 12
_FULL = "float32"
_FACTOR = (0.001, 1000.0)  # what a view or a very slow op can be, beside its kind
_MIN_WORK = 0.02  # of a measured time: what is left at least when the launch is taken off
_VARIANT_DIFFERENCE = 1.1  # of the factors of two variants, below which they share one
_MIN_SHAPE_POINTS = 10
_MIN_GAIN = 0.98  # of the scatter, for a constant to be worth it
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
    variant: str
    moved: float
    flops: float
    length: float
    number: float
    work_ms: float

    def slowdown(self, half_length: float, half_number: float) -> float:
        """Return the slowdown that `extents` gives, with other constants."""
        return 1.0 + half_length / self.length + half_number / self.number


def fit_calibration(points: Iterable[Point], base: Calibration, launch_ms: float) -> Calibration:
    """Return `base` with everything fitted that the points speak of.

    Args:
        points: Measured graphs of one op each; failed ones are passed over.
        base: What stays where there are no points; its factors of ops are dropped.
        launch_ms: Measured time of a call that does next to nothing.
    """
    measured = [point for point in points if point.eager_ms is not None]
    samples = [_sample(point, launch_ms) for point in measured if _is_plain(point)]
    full = [sample for sample in samples if sample.dtype == _FULL]
    fitted = msgspec.structs.replace(
        base, launch_ms=launch_ms, ops={}, dtypes={}, strided={}, gradients={}, scratch={}
    )
    fitted = _fit_kinds(full, fitted)
    fitted = _fit_ops(full, fitted)
    for dtype in sorted({sample.dtype for sample in samples} - {_FULL}):
        fitted = _fit_dtype([each for each in samples if each.dtype != _FULL], fitted, dtype)
    fitted = _fit_strided([point for point in measured if _is_strided(point)], fitted)
    fitted = _fit_gradients([point for point in measured if _is_gradient(point)], fitted)
    return _fit_scratch(measured, fitted)


def _is_plain(point: Point) -> bool:
    return not _is_gradient(point) and not _is_strided(point)


def _is_strided(point: Point) -> bool:
    return any(known.layout != "contiguous" for known in point.graph.inputs)


def _is_gradient(point: Point) -> bool:
    return point.graph.grad_output is not None


def _sample(point: Point, launch_ms: float) -> _Sample:
    assert point.eager_ms is not None
    node = resolve(point.graph, point.sizes).nodes[0]
    moved, flops = node_work(node, ITEM_BYTES[point.graph.dtype])
    length, number = extents(node)
    return _Sample(
        op=node.op.name,
        kind=node.op.kind.value,
        dtype=point.graph.dtype,
        variant=variant_of(node),
        moved=moved,
        flops=flops,
        length=max(1.0, length),
        number=max(1.0, number),
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
    """Fit speeds and extents by kind."""
    bandwidths = dict(start.bandwidth_gb_s)
    rates = {dtype: dict(table) for dtype, table in start.rate_gflop_s.items()}
    lengths: dict[str, float] = {}
    numbers: dict[str, float] = {}
    for kind, group in _by(samples, lambda each: each.kind):
        shape = _fit_shape(group, start.rate(kind, _FULL) / start.bandwidth(kind))
        level = median(_base_ratio(each, shape) for each in group)
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


@dataclass(frozen=True, slots=True)
class _Shape:
    """What a kind's times are proportional to: operations that one byte is worth, and extents."""

    balance: float
    half_length: float = 0.0
    half_number: float = 0.0


_HALVES = (0.0, *(10 ** (step / 4) for step in range(1, 17)))
_BALANCES = tuple(10 ** (step / 4) for step in range(-8, 9))  # beside the balance of the base


def _fit_shape(samples: Sequence[_Sample], balance: float) -> _Shape:
    """Search, one constant after the other, for the shape under which ops scatter least."""
    best = _Shape(balance)
    least = _scatter(samples, best) if len(samples) >= _MIN_SHAPE_POINTS else 0.0
    for _ in range(_NUM_ROUNDS if least else 0):
        before = best
        for shape in (
            *(replace(best, balance=balance * step) for step in _BALANCES),
            *(replace(best, half_length=half) for half in _HALVES),
            *(replace(best, half_number=half) for half in _HALVES),
        ):
            scatter = _scatter(samples, shape)
            # A constant that explains next to nothing is one that the next device lacks.
            if scatter < _MIN_GAIN * least:
                best, least = shape, scatter
        if best == before:
            break
    return best


def _scatter(samples: Sequence[_Sample], shape: _Shape) -> float:
    """Return the mean distance of log times from the median of their op."""
    total = 0.0
    for _, group in _by(samples, lambda each: each.op):
        logs = [log(_base_ratio(each, shape)) for each in group]
        middle = median(logs)
        total += sum(abs(each - middle) for each in logs)
    return total / len(samples)


def _base_ratio(sample: _Sample, shape: _Shape) -> float:
    """Return milliseconds for one byte, or for what one byte is worth."""
    work = max(sample.moved, sample.flops / shape.balance)
    return sample.work_ms / work / sample.slowdown(shape.half_length, shape.half_number)


def _fit_ops(samples: Sequence[_Sample], start: Calibration) -> Calibration:
    ops = dict(start.ops)
    for name, group in _by(samples, lambda each: each.op):
        ratios = {
            variant: [_ratio(each, start) for each in same]
            for variant, same in _by(group, lambda each: each.variant)
        }
        plain = ratios.pop("", [])
        ops[name] = _factor(plain or [ratio for each in ratios.values() for ratio in each])
        for variant, each in ratios.items():
            factor = _factor(each)
            if plain and max(factor / ops[name], ops[name] / factor) > _VARIANT_DIFFERENCE:
                ops[f"{name}:{variant}"] = factor
    return msgspec.structs.replace(start, ops=ops)


def _ratio(sample: _Sample, calibration: Calibration) -> float:
    """Return measured work over modelled work."""
    work_ms = calibration.work_ms(sample.kind, sample.dtype, sample.moved, sample.flops)
    return sample.work_ms / (_op_factor(sample, calibration) * work_ms)


def _op_factor(sample: _Sample, calibration: Calibration) -> float:
    """Return the factor of a sample's op, its extents included."""
    return calibration.op_factor(sample.op, sample.variant) * sample.slowdown(
        calibration.half_length.get(sample.kind, 0.0),
        calibration.half_number.get(sample.kind, 0.0),
    )


def _factor(ratios: Sequence[float]) -> float:
    low, high = _FACTOR
    return min(high, max(low, median(ratios)))


def _fit_dtype(samples: Sequence[_Sample], start: Calibration, dtype: str) -> Calibration:
    """Fit rate and memory time of a dtype by kind, with the factors of ops that float32 gave.

    Where a dtype has few points of a kind, those of the others beside float32 help it out.
    """
    rates = {name: dict(table) for name, table in start.rate_gflop_s.items()}
    if dtype not in rates:
        rates[dtype] = dict(rates[_FULL])
    factors: dict[str, float] = {}
    for kind, every in _by(samples, lambda each: each.kind):
        own = [each for each in every if each.dtype == dtype]
        group = own if len(own) >= _MIN_SHAPE_POINTS else every
        if len(group) < _MIN_DTYPE_POINTS:
            continue
        # Arithmetic outside products is done in float32 whatever the dtype in memory.
        slower, rate = 1.0, rates[dtype].get(kind, start.rate(kind, _FULL))
        for _ in range(_NUM_ROUNDS):
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
    return " backward" if _is_gradient(point) else " strided" if _is_strided(point) else ""


def _rank(group: tuple[str, str]) -> tuple[bool, bool, str, str]:
    dtype, kind = group
    return dtype == "any", dtype != _FULL, dtype, kind


def _spread(ratios: Sequence[float]) -> tuple[float, float, float]:
    if len(ratios) == 1:
        return ratios[0], ratios[0], ratios[0]
    tenths = quantiles(ratios, n=10, method="inclusive")
    return tenths[0], median(ratios), tenths[-1]
