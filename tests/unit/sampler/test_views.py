"""A graph rebuilt in networkx has the same edges."""

from __future__ import annotations

import networkx as nx
from hypothesis import given
from hypothesis import strategies as st

from opsgen.recipe import SampleConfig
from opsgen.sampler import Plan, draw_text, to_networkx

PLAN = Plan(17, SampleConfig(target_ms=(0.5, 20.0), dags=0.6))


@given(st.integers(min_value=0, max_value=10**5))
def test_networkx_sees_every_node_and_edge(number: int) -> None:
    sampled = PLAN.line("torch#3", number).sampled
    if sampled is None:
        return
    graph = sampled.graph
    view = to_networkx(graph)
    assert nx.is_directed_acyclic_graph(view)
    assert nx.is_weakly_connected(view)
    assert view.number_of_nodes() == len(graph.inputs) + len(graph.nodes)
    assert view.number_of_edges() == sum(len(node.args) for node in graph.nodes)
    assert [data["op"] for _, data in view.nodes(data=True) if data["kind"] == "op"] == [
        node.op for node in graph.nodes
    ]
    assert len(draw_text(graph).splitlines()) == view.number_of_nodes()
