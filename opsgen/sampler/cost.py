"""What an eager call costs: time, traffic, operations and memory, in closed form.

Each op is modelled as one launch plus the slower of its memory passes and its
arithmetic, `launch + max(bytes / bandwidth, flops / rate)`, with bandwidth
and rate per kind from a calibration table. It aims sizes at a runtime; what
counts is measured later.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from math import prod

import msgspec

from opsgen.errors import SampleError, UsageError
from opsgen.records import Estimate, Graph, Record, digest
from opsgen.sampler.resolution import Resolution, resolve

ITEM_BYTES = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "int64": 8,
    "int32": 4,
    "bool": 1,
}

_MIN_SPARED = 0.05  # of an eager call's traffic
_MIN_TIME = 0.03  # of an eager call's time


class Calibration(Record, frozen=True, kw_only=True):
    """Speeds of one device."""

    name: str
    """Name of the table."""
    source: str
    """What the figures were measured on, and when."""
    launch_ms: float
    """Fixed cost of one op, milliseconds."""
    bandwidth_gb_s: dict[str, float]
    """Achieved bandwidth by kind of op, with `default` for the others."""
    rate_gflop_s: dict[str, dict[str, float]]
    """Achieved arithmetic rate by dtype and kind, with `default` for the others."""

    def bandwidth(self, kind: str) -> float:
        """Return bytes a millisecond."""
        return self.bandwidth_gb_s.get(kind, self.bandwidth_gb_s["default"]) * 1e6

    def rate(self, kind: str, dtype: str) -> float:
        """Return operations a millisecond."""
        rates = self.rate_gflop_s.get(dtype, self.rate_gflop_s["float32"])
        return rates.get(kind, rates["default"]) * 1e6


@cache
def load_calibration(name: str) -> Calibration:
    """Read a table that ships with opsgen.

    Raises:
        UsageError: There is no such table; the message lists those there are.
    """
    folder = files("opsgen") / "tables" / "calibrations"
    known = sorted(
        p.name.removesuffix(".toml") for p in folder.iterdir() if p.name.endswith(".toml")
    )
    if name not in known:
        raise UsageError(f"sample.calibration: no table {name!r}; there are {', '.join(known)}")
    table = tomllib.loads((folder / f"{name}.toml").read_text(encoding="utf-8"))
    return msgspec.convert({"name": name, **table}, Calibration)


def calibration_digest(name: str) -> str:
    """Return a digest of a table's figures."""
    return digest(load_calibration(name))


def predict_ms(graph: Graph, resolution: Resolution, calibration: Calibration) -> float:
    """Return the modelled time of one eager call, milliseconds."""
    return sum(time_ms for _, time_ms in _node_costs(graph, resolution, calibration))


def check_benefit(graph: Graph, sizes: dict[str, int], calibration: Calibration) -> None:
    """Refuse a graph that fusing would hardly speed up: in truth it is a task of one op.

    That is one where the intermediates that fusing spares are less than 5 % of the traffic
    while the cheapest op takes less than 3 % of the time.

    Raises:
        SampleError: It is such a graph.
    """
    if len(graph.nodes) < 2:
        return
    resolution = resolve(graph, sizes)
    item = ITEM_BYTES[graph.dtype]
    moved, times = zip(*_node_costs(graph, resolution, calibration), strict=True)
    num_inputs = len(graph.inputs)
    spared = sum(
        item * prod(resolution.shapes[arg])
        for node in resolution.nodes
        for arg in node.args
        if arg >= num_inputs
    )
    spared += sum(item * prod(node.out) for node in resolution.nodes[:-1])
    if spared < _MIN_SPARED * sum(moved) and min(times) < _MIN_TIME * sum(times):
        raise SampleError("benefit: fusing would spare next to nothing")


def _node_costs(
    graph: Graph, resolution: Resolution, calibration: Calibration
) -> Iterator[tuple[float, float]]:
    """Yield the bytes that each node moves and its time, milliseconds."""
    item = ITEM_BYTES[graph.dtype]
    for node in resolution.nodes:
        op, kind = node.op, node.op.kind.value
        read = op.passes * sum(prod(shape) for shape in node.ins)
        moved = item * (read + prod(node.out) + op.params(node.ins, node.attrs))
        flops = op.flops(node.ins, node.attrs, node.out)
        time_ms = calibration.launch_ms + max(
            moved / calibration.bandwidth(kind), flops / calibration.rate(kind, graph.dtype)
        )
        yield moved, time_ms


def predict_peak_bytes(graph: Graph, resolution: Resolution) -> int:
    """Return the peak memory of an eager call: inputs and parameters stay, values die after use."""
    item = ITEM_BYTES[graph.dtype]
    num_inputs = len(graph.inputs)
    sizes = [
        prod(shape) * (ITEM_BYTES[graph.inputs[i].dtype] if i < num_inputs else item)
        for i, shape in enumerate(resolution.shapes)
    ]
    held = sum(sizes[:num_inputs])
    held += item * sum(node.op.params(node.ins, node.attrs) for node in resolution.nodes)
    last_use = {arg: step for step, node in enumerate(resolution.nodes) for arg in node.args}
    live: set[int] = set()
    peak = held
    for step, _ in enumerate(resolution.nodes):
        live.add(num_inputs + step)
        peak = max(peak, held + sum(sizes[value] for value in live))
        live -= {value for value in live if last_use.get(value, len(sizes)) <= step}
    return peak


def estimate(graph: Graph, sizes: dict[str, int], calibration: Calibration) -> Estimate:
    """Return all that the model says of a graph under an assignment of sizes."""
    resolution = resolve(graph, sizes)
    item = ITEM_BYTES[graph.dtype]
    moved = sum(
        prod(shape) * ITEM_BYTES[known.dtype]
        for known, shape in zip(graph.inputs, resolution.shapes, strict=False)
    )
    moved += item * sum(prod(resolution.shapes[value]) for value in graph.outputs)
    moved += item * sum(node.op.params(node.ins, node.attrs) for node in resolution.nodes)
    return Estimate(
        eager_ms=predict_ms(graph, resolution, calibration),
        traffic_bytes=moved,
        flops=sum(node.op.flops(node.ins, node.attrs, node.out) for node in resolution.nodes),
        peak_bytes=predict_peak_bytes(graph, resolution),
        num_terms=max(node.op.terms(node.ins, node.attrs) for node in resolution.nodes),
    )
