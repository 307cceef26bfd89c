"""The graph hash sees the graph and nothing else."""

from __future__ import annotations

import random

import msgspec
from hypothesis import assume, given
from hypothesis import strategies as st

from opsgen.ops import CATALOGUE
from opsgen.recipe import SampleConfig
from opsgen.records import Graph, Input, Node
from opsgen.sampler import Plan, family_hash, graph_hash, task_id

PLAN = Plan(13, SampleConfig(target_ms=(0.5, 20.0), dags=0.5))
replace = msgspec.structs.replace


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    data_source = draw(st.sampled_from(["torch#2", "torch#3"]))
    line = PLAN.line(data_source, draw(st.integers(min_value=0, max_value=10**6)))
    assume(line.sampled is not None)
    assert line.sampled is not None
    return line.sampled.graph


def _renamed_sizes(graph: Graph) -> Graph:
    def rename(size: int | str | None) -> int | str | None:
        return size.replace("e", "e_e") if isinstance(size, str) else size

    inputs = tuple(
        replace(
            known,
            name=known.name + "_in",
            dims=tuple(map(rename, known.dims)),
            high=rename(known.high),
        )
        for known in graph.inputs
    )
    nodes = tuple(
        replace(node, sizes={key: rename(size) for key, size in node.sizes.items()})
        for node in graph.nodes
    )
    return replace(graph, inputs=inputs, nodes=nodes)


@given(graphs(), st.randoms(use_true_random=False))
def test_names_spellings_and_input_order_do_not_matter(graph: Graph, rng: random.Random) -> None:
    order = list(range(len(graph.inputs)))
    rng.shuffle(order)
    place = {old: new for new, old in enumerate(order)}

    def move(arg: int) -> int:
        return place.get(arg, arg)

    nodes = tuple(
        replace(
            node,
            args=tuple(move(arg) for arg in node.args),
            spelling=(node.spelling + 1) % len(CATALOGUE[node.op].spellings),
        )
        for node in graph.nodes
    )
    moved = replace(graph, inputs=tuple(graph.inputs[old] for old in order), nodes=nodes)
    assert graph_hash(_renamed_sizes(moved)) == graph_hash(graph)


@given(graphs(), st.data())
def test_every_attribute_op_and_dtype_matters(graph: Graph, data: st.DataObject) -> None:
    place = data.draw(st.integers(min_value=0, max_value=len(graph.nodes) - 1))
    node = graph.nodes[place]
    other_op = data.draw(st.sampled_from(sorted(CATALOGUE.keys() - {node.op})))
    changes = [replace(node, op=other_op), replace(node, attrs={**node.attrs, "extra": 1})]
    for key, value in node.attrs.items():
        changes.append(replace(node, attrs={**node.attrs, key: f"not {value}"}))
    for change in changes:
        nodes = (*graph.nodes[:place], change, *graph.nodes[place + 1 :])
        assert graph_hash(replace(graph, nodes=nodes)) != graph_hash(graph)
    assert graph_hash(replace(graph, dtype="float64")) != graph_hash(graph)
    extra = replace(node, attrs={**node.attrs, "extra": 1})
    nodes = (*graph.nodes[:place], extra, *graph.nodes[place + 1 :])
    assert family_hash(replace(graph, nodes=nodes)) == family_hash(graph)


def _graph(*nodes: Node, num_inputs: int = 2) -> Graph:
    inputs = tuple(
        Input(name=f"x{i}", dims=("batch_size", "features"), dtype="float32", draw="normal")
        for i in range(num_inputs)
    )
    return Graph(
        dtype="float32", inputs=inputs, nodes=nodes, outputs=(num_inputs + len(nodes) - 1,)
    )


def _node(op: str, *args: int) -> Node:
    return Node(op=op, args=args, attrs={}, sizes={})


def test_commutative_order_does_not_matter_and_edges_do() -> None:
    left = _graph(_node("relu", 0), _node("add", 2, 1))
    right = _graph(_node("relu", 0), _node("add", 1, 2))
    assert graph_hash(left) == graph_hash(right)
    assert graph_hash(left) != graph_hash(_graph(_node("relu", 0), _node("add", 2, 2)))
    assert graph_hash(_graph(_node("sub", 0, 1), _node("mul", 2, 0))) != graph_hash(
        _graph(_node("sub", 0, 1), _node("mul", 2, 1))
    )


def test_a_value_used_twice_is_not_two_equal_values() -> None:
    shared = _graph(_node("relu", 0), _node("mul", 1, 1), num_inputs=1)
    twice = _graph(_node("relu", 0), _node("relu", 0), _node("mul", 1, 2), num_inputs=1)
    other_input = _graph(_node("relu", 0), _node("relu", 1), _node("mul", 2, 3))
    assert len({graph_hash(shared), graph_hash(twice), graph_hash(other_input)}) == 3


def test_equal_dims_stay_visible() -> None:
    dims = (("batch_size", "features"), ("batch_size", "width"))
    found = set()
    for second in dims:
        inputs = (
            Input(name="x", dims=dims[0], dtype="float32", draw="normal"),
            Input(name="y", dims=second, dtype="float32", draw="normal"),
        )
        graph = Graph(dtype="float32", inputs=inputs, nodes=(_node("cat", 0, 1),), outputs=(2,))
        found.add(graph_hash(graph))
    assert len(found) == 2


@given(graphs())
def test_task_ids_see_sizes(graph: Graph) -> None:
    names = {dim: 8 for known in graph.inputs for dim in known.dims if isinstance(dim, str)}
    sizes = dict.fromkeys(_size_names(graph), 8)
    assert names
    first = next(iter(sizes))
    identity = graph_hash(graph)
    assert task_id(graph, sizes, identity) != task_id(graph, {**sizes, first: 9}, identity)
    assert task_id(graph, sizes, identity).startswith(identity[:16])


def _size_names(graph: Graph) -> list[str]:
    from opsgen.sampler import size_names

    return size_names(graph)
