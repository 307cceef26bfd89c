"""Sizes: scaling a graph to a target time, and the smaller workloads of a task.

Batches, lengths and images are scaled geometrically (a batch alone would
grow into odd numbers of tiny problems), then jittered: half of the sizes are
rounded to multiples of 8, some stay odd, some become primes.
"""

from __future__ import annotations

import random
from math import log, prod

from opsgen.errors import SampleError
from opsgen.records import Graph
from opsgen.sampler.cost import Calibration, predict_ms, predict_peak_bytes
from opsgen.sampler.resolution import is_legal, resolve

# Names whose sizes may be scaled, with the bounds kept: widths are left as they were drawn,
# because groups, heads and kernels were chosen for them.
_BOUNDS: dict[str, tuple[int, int]] = {
    "batch_size": (1, 65536),
    "seq_len": (8, 16384),
    "length": (16, 131072),
    "depth": (6, 64),
    "height": (8, 512),
    "width": (8, 512),
}
_ACCEPTED = (0.6, 1.6)  # of the target time, after jitter
_MAX_ELEMENTS = 2**31 - 1
_MAX_PARAMETER_BYTES = 512 * 2**20
_PRIMES = (7, 11, 13, 17, 23, 29, 37, 53, 67, 101, 127, 193, 257, 383, 509, 769, 1021, 2039)
_TWIN_LEVELS = (8, 12, 16, 24, 32, 48, 64, 96, 128, 256)
_TWIN_ELEMENTS = 200_000
_SMALLER_SHARES = ((0.125, 1.0), (0.25, 0.5), (0.5, 0.5), (0.5, 1.0), (1.0, 0.5))


def _base(name: str) -> str:
    return name.rstrip("0123456789").removesuffix("_")


def fit_sizes(
    graph: Graph,
    first: dict[str, int],
    target_ms: float,
    calibration: Calibration,
    rng: random.Random,
) -> dict[str, int]:
    """Scale sizes until the modelled eager time is near a target.

    Args:
        graph: The graph.
        first: Sizes to start from.
        target_ms: Wanted eager time, milliseconds.
        calibration: Speeds of the device.
        rng: Source of the split between dims and of the jitter.

    Raises:
        SampleError: The target is out of reach, or the sizes reached are not legal.
    """
    sizes = dict(first)
    names = [name for name in sizes if _base(name) in _BOUNDS]
    batch = [name for name in names if _base(name) == "batch_size"]
    others = [name for name in names if _base(name) != "batch_size"]
    share = 0.2 + 0.8 * rng.random() if others else 1.0
    for group, part in ((others, 1.0 - share), (batch, 1.0), (others, 1.0), (batch, 1.0)):
        ratio = target_ms / predict_ms(graph, resolve(graph, sizes), calibration)
        if group and abs(log(ratio)) > 0.1:
            _scale(sizes, group, ratio ** (part / len(group)))
    for name in names:
        sizes[name] = _jitter(sizes[name], _base(name), rng)
    resolution = resolve(graph, sizes)
    ratio = predict_ms(graph, resolution, calibration) / target_ms
    if not _ACCEPTED[0] <= ratio <= _ACCEPTED[1]:
        raise SampleError("size: target time out of reach")
    if not is_legal(resolution):
        raise SampleError("size: attributes are not legal at the size reached")
    if max(prod(shape) for shape in resolution.shapes) > _MAX_ELEMENTS:
        raise SampleError("size: a tensor outgrows 32-bit indices")
    return sizes


def _scale(sizes: dict[str, int], names: list[str], factor: float) -> None:
    for name in names:
        low, high = _BOUNDS[_base(name)]
        sizes[name] = min(high, max(low, round(sizes[name] * factor)))


def _jitter(size: int, base: str, rng: random.Random) -> int:
    low, high = _BOUNDS[base]
    style = rng.random()
    if size < 8 or (size < 16 and style < 0.5):
        return size
    if style < 0.5:
        step = 8 if size < 256 else 32
        size = max(step, round(size / step) * step)
    elif style > 0.85:
        size = min(_PRIMES, key=lambda prime: abs(log(prime / size)))
    return min(high, max(low, size))


def check_memory(graph: Graph, sizes: dict[str, int], limit_bytes: float) -> None:
    """Refuse sizes whose predicted peak or parameters outgrow what a task may hold.

    Raises:
        SampleError: They do.
    """
    resolution = resolve(graph, sizes)
    if predict_peak_bytes(graph, resolution) > limit_bytes:
        raise SampleError("size: predicted memory above the limit")
    parameters = sum(node.op.params(node.ins, node.attrs) for node in resolution.nodes)
    if 4 * parameters > _MAX_PARAMETER_BYTES:
        raise SampleError("size: parameters above 512 MiB")


def smaller_sizes(graph: Graph, sizes: dict[str, int]) -> dict[str, int]:
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
        if smaller != sizes and is_legal(resolve(graph, smaller)):
            return smaller
    raise SampleError("size: no smaller workload is legal")


def twin_sizes(graph: Graph, sizes: dict[str, int]) -> dict[str, int]:
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
            resolution = resolve(graph, twin)
            if sum(prod(shape) for shape in resolution.shapes) > _TWIN_ELEMENTS:
                continue
            if is_legal(resolution):
                return twin
    raise SampleError("size: no small twin is legal")
