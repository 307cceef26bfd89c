"""A graph as networkx sees it, and as a picture."""

from __future__ import annotations

import networkx as nx

from opsgen.records import Graph, Input
from opsgen.sampler.resolution import differentiated


def to_networkx(graph: Graph) -> nx.MultiDiGraph[str]:
    """Return a graph's inputs and nodes with their edges.

    Nodes are named `x` (inputs, by argument name) and `0:relu` (nodes, by place
    and op); they carry `kind` (`input` or `op`), and `op`, `attrs`, `sizes` or
    `dims`, `dtype`, `draw`, `layout`. Edges carry `position`, the argument's place.
    Outputs have `is_output` set and `output`, their place among what is returned.
    A gradient task returns gradients in place of them: of the inputs that have
    `is_differentiated` set. An edge without a position then leads from the
    gradient that the task is given to the output that it belongs to.
    """
    view: nx.MultiDiGraph[str] = nx.MultiDiGraph(dtype=graph.dtype)
    names = [known.name for known in graph.inputs]
    names += [f"{place}:{node.op}" for place, node in enumerate(graph.nodes)]
    for known in graph.inputs:
        view.add_node(
            known.name,
            kind="input",
            dims=known.dims,
            dtype=known.dtype,
            draw=known.draw,
            layout=known.layout,
        )
    for name, node in zip(names[len(graph.inputs) :], graph.nodes, strict=True):
        view.add_node(name, kind="op", op=node.op, attrs=node.attrs, sizes=node.sizes)
        for position, arg in enumerate(node.args):
            view.add_edge(names[arg], name, position=position)
    for place, output in enumerate(graph.outputs):
        view.nodes[names[output]].update(is_output=True, output=place)
    for number in differentiated(graph):
        view.nodes[names[number]]["is_differentiated"] = True
    if graph.grad_output is not None:
        view.add_edge(names[graph.grad_output], names[graph.outputs[0]], position=None)
    return view


def draw_text(graph: Graph) -> str:
    """Return the graph as one line of text for each node, inputs first.

    Orders in memory are told where they are not contiguous, and places among
    the outputs where there are several.

    >>> print(draw_text(graph))  # doctest: +SKIP
    x  (batch_size, features)  normal float32 transposed
    y  (out_features,)  normal float32
    0  linear(x)  out_features=out_features bias=True  -> output 1
    1  mul(0, y)  meets=last  -> output 0

    A gradient task is told by the gradients that it returns:

    >>> print(draw_text(graph))  # doctest: +SKIP
    x  (batch_size, features)  normal float32  -> gradient
    grad_output  (batch_size, features)  normal float32  gradient of 0
    0  gelu(x)  approximate=tanh
    """
    names = [known.name for known in graph.inputs]
    names += [str(place) for place in range(len(graph.nodes))]
    lines = [
        "  ".join(part for part in (_input_text(known), _gradient_text(graph, number)) if part)
        for number, known in enumerate(graph.inputs)
    ]
    for place, node in enumerate(graph.nodes):
        args = ", ".join(names[arg] for arg in node.args)
        chosen = {**node.sizes, **node.attrs}
        attrs = " ".join(f"{key}={value}" for key, value in chosen.items())
        output = _output_text(graph, len(graph.inputs) + place)
        lines.append(
            "  ".join(part for part in (str(place), f"{node.op}({args})", attrs, output) if part)
        )
    return "\n".join(lines)


def _input_text(known: Input) -> str:
    dims = ", ".join(str(dim) for dim in known.dims)
    layout = "" if known.layout == "contiguous" else f" {known.layout}"
    comma = "," if len(known.dims) == 1 else ""
    return f"{known.name}  ({dims}{comma})  {known.draw} {known.dtype}{layout}"


def _gradient_text(graph: Graph, number: int) -> str:
    if number == graph.grad_output:
        return f"gradient of {graph.outputs[0] - len(graph.inputs)}"
    return "-> gradient" if number in differentiated(graph) else ""


def _output_text(graph: Graph, value: int) -> str:
    if value not in graph.outputs or graph.grad_output is not None:
        return ""
    place = f" {graph.outputs.index(value)}" if len(graph.outputs) > 1 else ""
    return f"-> output{place}"
