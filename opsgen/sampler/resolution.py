"""A graph under an assignment of sizes: concrete shapes, or the news that it is illegal."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from opsgen.ops import CATALOGUE, Attrs, Op, Shape, evaluate
from opsgen.records import Graph, TensorSpec
from opsgen.sampler.choices import ReplayDraw


@dataclass(frozen=True, slots=True)
class ResolvedNode:
    """One node with its attributes, sizes filled in, and the shapes around it."""

    op: Op
    attrs: Attrs
    args: tuple[int, ...]
    ins: tuple[Shape, ...]
    out: Shape


@dataclass(frozen=True, slots=True)
class Resolution:
    """Concrete shapes of all values, inputs first, and of the nodes that make them.

    Attributes:
        shapes: Of inputs and nodes.
        nodes: The nodes.
        notes: Where the cost model keeps what it worked out.
    """

    shapes: tuple[Shape, ...]
    nodes: tuple[ResolvedNode, ...]
    notes: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)


def resolve(graph: Graph, sizes: dict[str, int]) -> Resolution:
    """Compute all shapes without asking whether the sizes are legal; see `is_legal`."""
    shapes: list[Shape] = [
        tuple([evaluate(dim, sizes) for dim in known.dims]) for known in graph.inputs
    ]
    nodes = []
    for node in graph.nodes:
        op = CATALOGUE[node.op]
        attrs = node.attrs
        if node.sizes:
            attrs = {**attrs, **{key: evaluate(size, sizes) for key, size in node.sizes.items()}}
        ins = tuple([shapes[arg] for arg in node.args])
        out = op.out(ins, attrs)
        shapes.append(out)
        nodes.append(ResolvedNode(op, attrs, node.args, ins, out))
    return Resolution(tuple(shapes), tuple(nodes))


class Resolver:
    """Resolves one graph under many assignments of sizes, each of them once.

    Attributes:
        graph: The graph.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._seen: dict[tuple[tuple[str, int], ...], Resolution] = {}

    def __call__(self, sizes: dict[str, int]) -> Resolution:
        """Return the resolution under plain numbers, in any order of their names."""
        place = tuple(sorted(sizes.items()))
        found = self._seen.get(place)
        if found is None:
            found = self._seen[place] = resolve(self.graph, sizes)
        return found


def is_legal(resolution: Resolution) -> bool:
    """Replay every attribute on the resolved shapes: legal if each entry still offers it."""
    for node in resolution.nodes:
        if min(node.out, default=1) < 1:
            return False
        replay = ReplayDraw(node.attrs)
        attrs = node.op.attrs(replay, node.ins[:1])
        if attrs is None:
            return False
        operands = node.op.operands(replay, node.ins[:1], attrs)
        if operands is None or tuple(o.shape for o in operands) != node.ins[1:]:
            return False
    return True


def input_specs(graph: Graph, resolution: Resolution) -> tuple[TensorSpec, ...]:
    """Return what `get_inputs` gives under the resolved sizes."""
    return tuple(
        TensorSpec(shape=shape, dtype=known.dtype, layout=known.layout)
        for known, shape in zip(graph.inputs, resolution.shapes, strict=False)
    )


def output_specs(graph: Graph, resolution: Resolution) -> tuple[TensorSpec, ...]:
    """Return the leaves that `forward` gives under the resolved sizes."""
    if graph.grad_output is not None:
        return tuple(
            TensorSpec(shape=resolution.shapes[number], dtype=known.dtype)
            for number, known in enumerate(graph.inputs)
            if number in differentiated(graph)
        )
    num_inputs = len(graph.inputs)
    specs = []
    for value in graph.outputs:
        kind = resolution.nodes[value - num_inputs].op.out_dtype
        dtype = graph.dtype if kind == "float" else kind
        specs.append(TensorSpec(shape=resolution.shapes[value], dtype=dtype))
    return tuple(specs)


def differentiated(graph: Graph) -> tuple[int, ...]:
    """Return the inputs whose gradients a gradient task returns; none for others."""
    if graph.grad_output is None:
        return ()
    return tuple(
        number
        for number, known in enumerate(graph.inputs)
        if number != graph.grad_output and known.dtype == graph.dtype
    )
