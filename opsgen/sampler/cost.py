"""What an eager call costs: time, traffic, operations and memory, in closed form.

Each op is modelled as one launch plus the slower of its memory passes and its
arithmetic, `launch + factor * max(bytes / bandwidth, flops / rate)`, with
bandwidth and rate per kind and a factor per op from a calibration table; short
or few folds make it slower (`extents`). A gradient task pays for each node's
backward too, and keeps what that reads. It aims sizes at a runtime; what
counts is measured later.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf, prod

from opsgen.errors import SampleError
from opsgen.records import Estimate, Graph
from opsgen.sampler.backward import backward_work
from opsgen.sampler.calibration import Calibration, calibration_digest, load_calibration
from opsgen.sampler.extents import slowdown, variant_of
from opsgen.sampler.resolution import Resolution, ResolvedNode

__all__ = [
    "ITEM_BYTES",
    "Calibration",
    "calibration_digest",
    "check_benefit",
    "estimate",
    "load_calibration",
    "node_work",
    "predict_ms",
    "predict_peak_bytes",
]

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


def node_work(node: ResolvedNode, item: int) -> tuple[float, float]:
    """Return bytes moved and operations of one node's forward, `item` bytes an element."""
    op = node.op
    read = op.passes * sum(prod(shape) for shape in node.ins)
    moved = item * (read + prod(node.out) + op.params(node.ins, node.attrs))
    return moved, op.flops(node.ins, node.attrs, node.out)


def predict_ms(graph: Graph, resolution: Resolution, calibration: Calibration) -> float:
    """Return the modelled time of one eager call, milliseconds."""
    return sum(time_ms for _, time_ms in _node_costs(graph, resolution, calibration))


def check_benefit(graph: Graph, resolution: Resolution, calibration: Calibration) -> None:
    """Refuse a graph that fusing would hardly speed up: in truth it is a task of one op.

    That is one where the intermediates that fusing spares are less than 5 % of the traffic
    while the cheapest op takes less than 3 % of the time.

    Raises:
        SampleError: It is such a graph.
    """
    if len(graph.nodes) < 2:
        return
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
) -> list[tuple[float, float]]:
    """Return the bytes that each node moves and its time, milliseconds; worked out once."""
    known = resolution.notes.get("costs")
    if known is None or known[0] is not calibration:
        known = calibration, list(_each_cost(graph, resolution, calibration))
        resolution.notes["costs"] = known
    costs: list[tuple[float, float]] = known[1]
    return costs


def _each_cost(
    graph: Graph, resolution: Resolution, calibration: Calibration
) -> Iterator[tuple[float, float]]:
    """Yield the bytes that each node moves and its time, milliseconds, its backward included."""
    dtype, item = graph.dtype, ITEM_BYTES[graph.dtype]
    differentiable = _differentiable(graph) if graph.grad_output is not None else frozenset()
    strided = {at for at, known in enumerate(graph.inputs) if known.layout != "contiguous"}
    for node in resolution.nodes:
        kind = node.op.kind.value
        factor = calibration.op_factor(node.op.name, variant_of(node), dtype)
        factor *= slowdown(node, calibration)
        if not strided.isdisjoint(node.args):
            factor *= calibration.strided.get(kind, 1.0)
        moved, flops = node_work(node, item)
        time_ms = calibration.launch_ms + factor * calibration.work_ms(kind, dtype, moved, flops)
        num_gradients = sum(arg in differentiable for arg in node.args)
        if num_gradients:
            elements, flops = backward_work(node, num_gradients)
            work_ms = calibration.work_ms(kind, dtype, item * elements, flops)
            work_ms *= factor * calibration.gradients.get(kind, 1.0)
            time_ms += num_gradients * calibration.launch_ms + work_ms
            moved += item * elements
        yield moved, time_ms


def _differentiable(graph: Graph) -> frozenset[int]:
    """Return the values that a gradient task's backward goes through."""
    through = {
        number
        for number, known in enumerate(graph.inputs)
        if number != graph.grad_output and known.dtype == graph.dtype
    }
    for number, node in enumerate(graph.nodes, start=len(graph.inputs)):
        if any(arg in through for arg in node.args):
            through.add(number)
    return frozenset(through)


def predict_peak_bytes(
    graph: Graph, resolution: Resolution, calibration: Calibration | None = None
) -> int:
    """Return the peak memory of an eager call.

    Inputs, parameters and outputs stay. Other values die after their last use, but in a
    gradient task they stay for the backward, with what ops took beside them, and the gradients
    come on top.

    Args:
        graph: The graph.
        resolution: Its shapes.
        calibration: Knows what ops take beside their inputs and output; absent: nothing.
    """
    known = resolution.notes.get("peak")
    if known is None or known[0] is not calibration:
        known = calibration, _peak_bytes(graph, resolution, calibration)
        resolution.notes["peak"] = known
    peak: int = known[1]
    return peak


def _peak_bytes(graph: Graph, resolution: Resolution, calibration: Calibration | None) -> int:
    item = ITEM_BYTES[graph.dtype]
    num_inputs = len(graph.inputs)
    sizes = [
        prod(shape) * (ITEM_BYTES[graph.inputs[i].dtype] if i < num_inputs else item)
        for i, shape in enumerate(resolution.shapes)
    ]
    held = sum(sizes[:num_inputs])
    held += item * sum(node.op.params(node.ins, node.attrs) for node in resolution.nodes)
    last_use = {arg: float(at) for at, node in enumerate(resolution.nodes) for arg in node.args}
    is_gradient = graph.grad_output is not None
    last_use |= dict.fromkeys(range(len(sizes)) if is_gradient else graph.outputs, inf)
    live: set[int] = set()
    peak, saved = held, 0
    for step, node in enumerate(resolution.nodes):
        live.add(num_inputs + step)
        scratch = _scratch_bytes(node, [*node.args, num_inputs + step], sizes, calibration)
        peak = max(peak, held + sum(sizes[value] for value in live) + scratch + saved)
        if is_gradient:
            saved += max(0, scratch)
        live -= {value for value in live if last_use.get(value, -1) <= step}
    if is_gradient:
        held += saved + sum(sizes[num_inputs:])
        peak = max(peak, held + _gradient_bytes(graph, sizes))
    return peak


def _scratch_bytes(
    node: ResolvedNode, around: list[int], sizes: list[int], calibration: Calibration | None
) -> int:
    share = calibration.scratch.get(node.op.name, 0.0) if calibration else 0.0
    return int(share * sum(sizes[value] for value in around)) if share else 0


def _gradient_bytes(graph: Graph, sizes: list[int]) -> int:
    """Return the most that gradients take at once during the backward.

    A value's gradient lives from its first reader's backward until its own node's; those of
    the inputs stay. The gradient that the task is given is an input and not counted.
    """
    num_inputs = len(graph.inputs)
    through = _differentiable(graph)
    live: set[int] = set()
    most = 0
    for number in range(len(sizes) - 1, num_inputs - 1, -1):
        live |= {arg for arg in graph.nodes[number - num_inputs].args if arg in through}
        most = max(most, sum(sizes[value] for value in live))
        live.discard(number)
    return most


def estimate(graph: Graph, resolution: Resolution, calibration: Calibration) -> Estimate:
    """Return all that the model says of a graph under the resolved sizes.

    For a gradient task the outputs are the gradients, and the operations those of both ways.
    """
    item = ITEM_BYTES[graph.dtype]
    moved = sum(
        prod(shape) * ITEM_BYTES[known.dtype]
        for known, shape in zip(graph.inputs, resolution.shapes, strict=False)
    )
    through = _differentiable(graph) if graph.grad_output is not None else frozenset()
    outputs = [each for each in through if each < len(graph.inputs)] or graph.outputs
    moved += item * sum(prod(resolution.shapes[value]) for value in outputs)
    moved += item * sum(node.op.params(node.ins, node.attrs) for node in resolution.nodes)
    flops = sum(node.op.flops(node.ins, node.attrs, node.out) for node in resolution.nodes)
    if through:
        flops += sum(
            int(backward_work(node, sum(arg in through for arg in node.args))[1])
            for node in resolution.nodes
        )
    return Estimate(
        eager_ms=predict_ms(graph, resolution, calibration),
        traffic_bytes=moved,
        flops=flops,
        peak_bytes=predict_peak_bytes(graph, resolution, calibration),
        num_terms=max(node.op.terms(node.ins, node.attrs) for node in resolution.nodes),
    )
