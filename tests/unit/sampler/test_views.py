"""A graph rebuilt in networkx has the same edges, and its picture tells what is special."""

from __future__ import annotations

import networkx as nx
from hypothesis import given
from hypothesis import strategies as st

from opsgen.recipe import SampleConfig
from opsgen.records import Graph, Input, Node
from opsgen.sampler import Plan, draw_text, to_networkx
from opsgen.testing import graphs

PLAN = Plan(17, SampleConfig(target_ms=(0.5, 20.0), dags=0.6))


def assert_all_there(graph: Graph) -> None:
    view = to_networkx(graph)
    assert nx.is_directed_acyclic_graph(view)
    assert view.number_of_nodes() == len(graph.inputs) + len(graph.nodes)
    reads = [place for _, _, place in view.edges(data="position") if place is not None]
    assert len(reads) == sum(len(node.args) for node in graph.nodes)
    assert view.number_of_edges() - len(reads) == (graph.grad_output is not None)
    assert [data["op"] for _, data in view.nodes(data=True) if data["kind"] == "op"] == [
        node.op for node in graph.nodes
    ]
    assert len(draw_text(graph).splitlines()) == view.number_of_nodes()


@given(st.integers(min_value=0, max_value=10**5))
def test_networkx_sees_every_node_and_edge(number: int) -> None:
    sampled = PLAN.line("torch#3", number).sampled
    if sampled is None:
        return
    assert_all_there(sampled.graph)
    assert nx.is_weakly_connected(to_networkx(sampled.graph))


@given(graphs())
def test_layouts_outputs_and_gradients_are_told(graph: Graph) -> None:
    assert_all_there(graph)
    view, lines = to_networkx(graph), draw_text(graph).splitlines()
    for known, line in zip(graph.inputs, lines, strict=False):
        assert view.nodes[known.name]["layout"] == known.layout
        assert (known.layout in line.split()) == (known.layout != "contiguous")
    places = {data["output"] for _, data in view.nodes(data=True) if data.get("is_output")}
    assert places == set(range(len(graph.outputs)))
    returned = sum("-> output" in line for line in lines)
    gradients = sum(line.endswith("-> gradient") for line in lines)
    if graph.grad_output is None:
        assert (returned, gradients) == (len(graph.outputs), 0)
    else:
        assert (returned, gradients) == (0, len(graph.inputs) - 1)
        assert lines[graph.grad_output].endswith(f"gradient of {len(graph.nodes) - 1}")


def test_the_pictures_are_those_of_the_docstring() -> None:
    x = Input(
        name="x",
        dims=("batch_size", "features"),
        dtype="float32",
        draw="normal",
        layout="transposed",
    )
    y = Input(name="y", dims=("out_features",), dtype="float32", draw="normal")
    linear = Node(
        op="linear", args=(0,), attrs={"bias": True}, sizes={"out_features": "out_features"}
    )
    mul = Node(op="mul", args=(2, 1), attrs={"meets": "last"}, sizes={})
    graph = Graph(dtype="float32", inputs=(x, y), nodes=(linear, mul), outputs=(3, 2))
    assert draw_text(graph).splitlines() == [
        "x  (batch_size, features)  normal float32 transposed",
        "y  (out_features,)  normal float32",
        "0  linear(x)  out_features=out_features bias=True  -> output 1",
        "1  mul(0, y)  meets=last  -> output 0",
    ]
