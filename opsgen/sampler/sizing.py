"""Sizes: scaling a graph to a target time, and the smaller workloads of a task.

Batches, lengths and images are scaled geometrically (a batch alone would
grow into odd numbers of tiny problems), then jittered: half of the sizes are
rounded to multiples of 8, some stay odd, some become primes.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from math import isqrt, log, prod

from opsgen.errors import SampleError
from opsgen.ops import evaluate
from opsgen.records import Graph
from opsgen.sampler.cost import ITEM_BYTES, Calibration, predict_ms, predict_peak_bytes
from opsgen.sampler.resolution import Resolution, Resolver, is_legal

# Names whose sizes may be scaled, with the bounds kept: widths are left as they were drawn,
# because groups, heads and kernels were chosen for them.
_BOUNDS: dict[str, tuple[int, int]] = {
    "batch_size": (1, 2**20),
    "seq_len": (8, 16384),
    "length": (16, 131072),
    "depth": (6, 64),
    "height": (8, 512),
    "width": (8, 512),
}
_NEAR = 0.1  # of the logarithm of the target time, before jitter
_ACCEPTED = (0.6, 1.6)  # of the target time, after jitter
# Up to where jitter rounds, and from where on it takes primes: usual sizes, odd sizes.
_STYLES = {False: (0.5, 0.85), True: (0.25, 0.65)}
_MAX_ELEMENTS = 2**31 - 1
_MAX_PARAMETER_BYTES = 512 * 2**20
_TWIN_LEVELS = (8, 12, 16, 24, 32, 48, 64, 96, 128, 256)
_TWIN_ELEMENTS = 200_000
_NUM_HELD_OUT = 3
_SMALLER_SHARES = ((0.125, 1.0), (0.25, 0.5), (0.5, 0.5), (0.5, 1.0), (1.0, 0.5))


@lru_cache(maxsize=1024)
def _base(name: str) -> str:
    return name.rstrip("0123456789").removesuffix("_")


@dataclass(frozen=True, slots=True)
class Limits:
    """What sizes must respect.

    Attributes:
        least_ms: Shortest eager time, milliseconds.
        memory_bytes: Largest predicted peak of an eager call.
        input_bytes: Most that all inputs hold together.
        floors: Least value of some sizes.
        has_odd_sizes: More of the sizes are odd or prime.
    """

    least_ms: float
    memory_bytes: float
    input_bytes: float
    floors: dict[str, int] = field(default_factory=dict)
    has_odd_sizes: bool = False


def reach_ms(
    resolver: Resolver, first: dict[str, int], calibration: Calibration, limits: Limits
) -> float:
    """Return about the longest eager time that memory allows, if both grow alike, milliseconds."""
    graph, resolution = resolver.graph, resolver(first)
    time_ms = predict_ms(graph, resolution, calibration)
    work_ms = max(time_ms - calibration.launch_ms * len(graph.nodes), 0.0)
    return work_ms * min(
        limits.memory_bytes / predict_peak_bytes(graph, resolution, calibration),
        limits.input_bytes / max(1, _input_bytes(graph, resolution)),
        _MAX_ELEMENTS / max(prod(shape) for shape in resolution.shapes),
    )


def fit_sizes(
    resolver: Resolver,
    first: dict[str, int],
    target_ms: float,
    calibration: Calibration,
    limits: Limits,
    rng: random.Random,
) -> dict[str, int]:
    """Scale sizes until the modelled eager time is near a target.

    Args:
        resolver: Of the graph.
        first: Sizes to start from.
        target_ms: Wanted eager time, milliseconds.
        calibration: Speeds of the device.
        limits: What the sizes must respect.
        rng: Source of the split between dims and of the jitter.

    Raises:
        SampleError: The target is out of reach, or the sizes reached are not legal.
    """
    graph = resolver.graph
    sizes = {name: max(size, limits.floors.get(name, 1)) for name, size in first.items()}
    names = [name for name in sizes if _base(name) in _BOUNDS]
    batch = [name for name in names if _base(name) == "batch_size"]
    others = [name for name in names if _base(name) != "batch_size"]
    share = 0.2 + 0.8 * rng.random() if others else 1.0
    for group, part in ((others, 1.0 - share), (batch, 1.0), (others, 1.0), (batch, 1.0)):
        if not group:
            continue
        time_ms = predict_ms(graph, resolver(sizes), calibration)
        if time_ms <= 0:  # a window outgrew what it slides over
            raise SampleError("size: attributes are not legal at the size reached")
        ratio = target_ms / time_ms
        if abs(log(ratio)) <= _NEAR:
            break
        _scale(sizes, group, ratio ** (part / len(group)), limits.floors)
    for name in names:
        jittered = _jitter(sizes[name], _base(name), rng, _STYLES[limits.has_odd_sizes])
        sizes[name] = max(jittered, limits.floors.get(name, 1))
    resolution = resolver(sizes)
    time_ms = predict_ms(graph, resolution, calibration)
    low, high = (share * target_ms for share in _ACCEPTED)
    if not max(low, limits.least_ms) <= time_ms <= high:
        raise SampleError("size: target time out of reach")
    if not is_legal(resolution):
        raise SampleError("size: attributes are not legal at the size reached")
    if max(prod(shape) for shape in resolution.shapes) > _MAX_ELEMENTS:
        raise SampleError("size: a tensor outgrows 32-bit indices")
    check_memory(graph, resolution, calibration, limits)
    return sizes


def _scale(sizes: dict[str, int], names: list[str], factor: float, floors: dict[str, int]) -> None:
    for name in names:
        low, high = _BOUNDS[_base(name)]
        low = max(low, floors.get(name, 1))
        sizes[name] = min(max(high, low), max(low, round(sizes[name] * factor)))


def _jitter(size: int, base: str, rng: random.Random, shares: tuple[float, float]) -> int:
    low, high = _BOUNDS[base]
    style = rng.random()
    if size < 8 or (size < 16 and style < shares[0]):
        return size
    if style < shares[0]:
        step = 8 if size < 256 else 32
        size = max(step, round(size / step) * step)
    elif style > shares[1]:
        size = _prime_up_to(size)
    return min(high, max(low, size))


@lru_cache(maxsize=65536)
def _prime_up_to(size: int) -> int:
    """Return the largest prime that is no larger; `size` is at least 2."""
    while any(size % divisor == 0 for divisor in range(2, isqrt(size) + 1)):
        size -= 1
    return size


def check_memory(
    graph: Graph, resolution: Resolution, calibration: Calibration, limits: Limits
) -> None:
    """Refuse sizes whose predicted peak, inputs or parameters outgrow what a task may hold.

    Raises:
        SampleError: They do.
    """
    if predict_peak_bytes(graph, resolution, calibration) > limits.memory_bytes:
        raise SampleError("size: predicted memory above the limit")
    if _input_bytes(graph, resolution) > limits.input_bytes:
        raise SampleError("size: inputs above the limit")
    parameters = sum(node.op.params(node.ins, node.attrs) for node in resolution.nodes)
    if 4 * parameters > _MAX_PARAMETER_BYTES:
        raise SampleError("size: parameters above 512 MiB")


def _input_bytes(graph: Graph, resolution: Resolution) -> int:
    return sum(
        prod(shape) * ITEM_BYTES[known.dtype]
        for known, shape in zip(graph.inputs, resolution.shapes, strict=False)
    )


def longest_axis(graph: Graph, sizes: dict[str, int]) -> int:
    """Return the length of the longest axis of any input."""
    return max(evaluate(dim, sizes) for known in graph.inputs for dim in known.dims)


def smaller_sizes(resolver: Resolver, sizes: dict[str, int]) -> dict[str, int]:
    """Return a second workload of roughly an eighth of the work, legal for the same attributes.

    Raises:
        SampleError: No smaller assignment is legal.
    """
    for batch_share, other_share in _SMALLER_SHARES:
        smaller = dict(sizes)
        for name in sizes:
            base = _base(name)
            if base in _BOUNDS:
                low = _BOUNDS[base][0]
                share = batch_share if base == "batch_size" else other_share
                smaller[name] = min(sizes[name], max(low, int(sizes[name] * share)))
        if smaller != sizes and is_legal(resolver(smaller)):
            return smaller
    raise SampleError("size: no smaller workload is legal")


def held_out_sizes(sizes: dict[str, int], draw: Callable[[], dict[str, int]]) -> dict[str, int]:
    """Return a workload of another target time, none of whose scaled sizes are the default's.

    Where a few draws do not part them all, the one that parts the most is taken.

    Args:
        sizes: The default workload.
        draw: Draws sizes at another target.

    Raises:
        SampleError: None differs.
    """
    best, most = sizes, 0
    scaled = [name for name in sizes if _base(name) in _BOUNDS]
    for _ in range(_NUM_HELD_OUT):
        try:
            drawn = draw()
        except SampleError:
            continue
        num_other = sum(drawn[name] != sizes[name] for name in scaled)
        if num_other > most:
            best, most = drawn, num_other
        if most == len(scaled):
            break
    if not most:
        raise SampleError("size: no workload could be held out")
    return best


def twin_sizes(resolver: Resolver, sizes: dict[str, int]) -> dict[str, int]:
    """Return the tiniest assignment found that is legal: every size shrinks, widths included.

    Raises:
        SampleError: None is legal and small enough to probe.
    """
    for level in _TWIN_LEVELS:
        for space in (level, 2 * level):
            twin = {}
            for name, size in sizes.items():
                base = _base(name)
                small = 3 if base == "batch_size" else space if base in _BOUNDS else level
                twin[name] = min(size, small)
            resolution = resolver(twin)
            if sum(prod(shape) for shape in resolution.shapes) > _TWIN_ELEMENTS:
                continue
            if is_legal(resolution):
                return twin
    raise SampleError("size: no small twin is legal")
