"""A graph as networkx sees it, and as a picture."""

from __future__ import annotations

import networkx as nx

from opsgen.records import Graph


def to_networkx(graph: Graph) -> nx.MultiDiGraph[str]:
    """Return a graph's inputs and nodes with their edges.

    Nodes are named `x` (inputs, by argument name) and `0:relu` (nodes, by place
    and op); they carry `kind` (`input` or `op`), and `op`, `attrs`, `sizes` or
    `dims`, `dtype`, `draw`. Edges carry `position`, the argument's place. What
    the graph returns has `is_output` set.
    """
    view: nx.MultiDiGraph[str] = nx.MultiDiGraph(dtype=graph.dtype)
    names = [known.name for known in graph.inputs]
    names += [f"{place}:{node.op}" for place, node in enumerate(graph.nodes)]
    for known in graph.inputs:
        view.add_node(known.name, kind="input", dims=known.dims, dtype=known.dtype, draw=known.draw)
    for name, node in zip(names[len(graph.inputs) :], graph.nodes, strict=True):
        view.add_node(name, kind="op", op=node.op, attrs=node.attrs, sizes=node.sizes)
        for position, arg in enumerate(node.args):
            view.add_edge(names[arg], name, position=position)
    for output in graph.outputs:
        view.nodes[names[output]]["is_output"] = True
    return view


def draw_text(graph: Graph) -> str:
    """Return the graph as one line of text for each node, inputs first.

    >>> print(draw_text(graph))  # doctest: +SKIP
    x  (batch_size, features)  normal float32
    y  (features,)  normal float32
    0  linear(x)  out_features=out_features bias=True
    1  mul(0, y)  meets=last  -> output
    """
    names = [known.name for known in graph.inputs]
    names += [str(place) for place in range(len(graph.nodes))]
    lines = []
    for known in graph.inputs:
        dims = ", ".join(str(dim) for dim in known.dims)
        lines.append(f"{known.name}  ({dims})  {known.draw} {known.dtype}")
    for place, node in enumerate(graph.nodes):
        args = ", ".join(names[arg] for arg in node.args)
        chosen = {**node.sizes, **node.attrs}
        attrs = " ".join(f"{key}={value}" for key, value in chosen.items())
        is_output = len(graph.inputs) + place in graph.outputs
        parts = (str(place), f"{node.op}({args})", attrs, "-> output" if is_output else "")
        lines.append("  ".join(part for part in parts if part))
    return "\n".join(lines)
