"""Single ops that were measured, and what the cost model sees of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from opsgen.records import Graph, Record
from opsgen.sampler.cost import ITEM_BYTES, node_work
from opsgen.sampler.extents import extents, variant_of
from opsgen.sampler.resolution import resolve

MIN_WORK = 0.02
"""Of a measured time, what is left at least when the launch is taken off."""


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


@dataclass(frozen=True, slots=True)
class Sample:
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


def is_plain(point: Point) -> bool:
    """Tell whether it is a forward on contiguous inputs."""
    return not is_gradient(point) and not is_strided(point)


def is_strided(point: Point) -> bool:
    """Tell whether some input has another order in memory."""
    return any(known.layout != "contiguous" for known in point.graph.inputs)


def is_gradient(point: Point) -> bool:
    """Tell whether it is a backward, with the forward before it."""
    return point.graph.grad_output is not None


def make_sample(point: Point, launch_ms: float) -> Sample:
    """Return what the model sees of a point that was measured."""
    assert point.eager_ms is not None
    node = resolve(point.graph, point.sizes).nodes[0]
    moved, flops = node_work(node, ITEM_BYTES[point.graph.dtype])
    length, number = extents(node)
    return Sample(
        op=node.op.name,
        kind=node.op.kind.value,
        dtype=point.graph.dtype,
        variant=variant_of(node),
        moved=moved,
        flops=flops,
        length=max(1.0, length),
        number=max(1.0, number),
        work_ms=max(point.eager_ms - launch_ms, MIN_WORK * point.eager_ms),
    )


def group_by(
    samples: Iterable[Sample], key: Callable[[Sample], str]
) -> list[tuple[str, list[Sample]]]:
    """Return samples by key, in the order of the keys."""
    groups: dict[str, list[Sample]] = {}
    for sample in samples:
        groups.setdefault(key(sample), []).append(sample)
    return sorted(groups.items())
