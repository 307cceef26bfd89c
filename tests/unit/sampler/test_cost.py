"""The cost model against formulas written out by hand."""

from __future__ import annotations

import msgspec
import pytest

from opsgen.records import Graph, Input, Node
from opsgen.sampler.calibration import Calibration
from opsgen.sampler.cost import estimate, predict_ms, predict_peak_bytes
from opsgen.sampler.resolution import resolve

# One GB/s and one Gflop/s are a million of either in a millisecond.
TABLE = Calibration(
    name="by hand",
    source="nowhere",
    launch_ms=0.5,
    bandwidth_gb_s={"default": 1.0, "matmul": 2.0},
    rate_gflop_s={"float32": {"default": 1e9, "matmul": 4.0}},
)
SIZES = {"rows": 1000, "columns": 500}
ELEMENTS = 500_000
VALUE = 4 * ELEMENTS  # bytes


def an_input(name: str, *dims: str, **fields: str) -> Input:
    return Input(name=name, dims=dims, **{"dtype": "float32", "draw": "normal", **fields})


def a_node(op: str, *args: int, **attrs: object) -> Node:
    return Node(op=op, args=args, attrs=attrs, sizes={})


def graph_of(*nodes: Node, inputs: int = 1, **fields: object) -> Graph:
    known = tuple(an_input(f"x{place}", "rows", "columns") for place in range(inputs))
    last = (inputs + len(nodes) - 1,)
    return Graph(**{"dtype": "float32", "inputs": known, "nodes": nodes, "outputs": last, **fields})


def cost_ms(graph: Graph, table: Calibration = TABLE) -> float:
    return predict_ms(graph, resolve(graph, SIZES), table)


def peak(graph: Graph, table: Calibration | None = None) -> int:
    return predict_peak_bytes(graph, resolve(graph, SIZES), table)


def test_bytes_and_operations() -> None:
    assert cost_ms(graph_of(a_node("relu", 0))) == pytest.approx(0.5 + 2 * VALUE / 1e6)
    graph = graph_of(a_node("relu", 0), a_node("add", 1, 0))
    assert cost_ms(graph) == pytest.approx(2 * 0.5 + 5 * VALUE / 1e6)
    product = Graph(
        dtype="float32",
        inputs=(an_input("x", "rows", "columns"), an_input("y", "columns", "rows")),
        nodes=(Node(op="matmul", args=(0, 1), attrs={}, sizes={"out_features": "rows"}),),
        outputs=(2,),
    )
    assert cost_ms(product) == pytest.approx(0.5 + 2 * 1000 * 1000 * 500 / 4e6)


def test_factors() -> None:
    graph = graph_of(a_node("relu", 0))
    work_ms = 2 * VALUE / 1e6
    slow = msgspec.structs.replace(TABLE, ops={"relu": 3.0})
    assert cost_ms(graph, slow) == pytest.approx(0.5 + 3 * work_ms)
    half = msgspec.structs.replace(graph, dtype="bfloat16")
    halved = msgspec.structs.replace(TABLE, dtypes={"bfloat16": {"pointwise": 1.5}})
    assert cost_ms(half, halved) == pytest.approx(0.5 + 1.5 * work_ms / 2)
    strided = msgspec.structs.replace(
        graph, inputs=(an_input("x", "rows", "columns", layout="transposed"),)
    )
    turned = msgspec.structs.replace(TABLE, strided={"pointwise": 2.0})
    assert cost_ms(strided, turned) == pytest.approx(0.5 + 2 * work_ms)
    assert cost_ms(graph, turned) == pytest.approx(0.5 + work_ms)


def test_short_and_few_folds_are_slow() -> None:
    table = msgspec.structs.replace(
        TABLE,
        half_length={"reduction": 500.0},
        half_number={"reduction": 2000.0},
        ops={"sum:outer": 10.0},
    )
    last = graph_of(a_node("sum", 0, dim=-1, keepdim=False))
    work_ms = 4 * (ELEMENTS + 1000) / 1e6
    assert cost_ms(last, table) == pytest.approx(0.5 + (1 + 500 / 500 + 2000 / 1000) * work_ms)
    outer = graph_of(a_node("sum", 0, dim=0, keepdim=False))
    work_ms = 4 * (ELEMENTS + 500) / 1e6
    assert cost_ms(outer, table) == pytest.approx(0.5 + 10 * (1 + 2000 / 500) * work_ms)


def test_values_die_after_their_last_use_and_outputs_do_not() -> None:
    chain = (a_node("relu", 0), a_node("tanh", 1), a_node("exp", 2))
    assert peak(graph_of(*chain)) == 3 * VALUE  # the input and two values at a time
    both = graph_of(*chain, outputs=(1, 3))
    assert peak(both) == 4 * VALUE
    unread = graph_of(a_node("relu", 0), a_node("tanh", 0), a_node("exp", 2))
    assert peak(unread) == 3 * VALUE
    residual = graph_of(*chain, a_node("add", 3, 1))
    assert peak(residual) == 4 * VALUE


def test_scratch_and_views() -> None:
    graph = graph_of(a_node("relu", 0), a_node("tanh", 1))
    table = msgspec.structs.replace(TABLE, scratch={"tanh": 0.25, "relu": -0.5})
    assert peak(graph, table) == 3 * VALUE + VALUE // 2
    assert peak(graph_of(a_node("relu", 0)), table) == 2 * VALUE - VALUE


def gradient_of(*nodes: Node, inputs: int) -> Graph:
    graph = graph_of(*nodes, inputs=inputs)
    return msgspec.structs.replace(graph, grad_output=inputs - 1)


def test_a_gradient_task_keeps_what_its_backward_reads() -> None:
    # x0, the gradient, relu, tanh; then the gradients of relu's value and of x0.
    assert peak(gradient_of(a_node("relu", 0), a_node("tanh", 2), inputs=2)) == 6 * VALUE
    # What tanh took beside its input and output is kept for its backward.
    table = msgspec.structs.replace(TABLE, scratch={"tanh": 0.5})
    assert peak(gradient_of(a_node("relu", 0), a_node("tanh", 2), inputs=2), table) == 7 * VALUE
    # x0, x1, the gradient, the product and both gradients.
    assert peak(gradient_of(a_node("mul", 0, 1), inputs=3)) == 6 * VALUE


def test_a_gradient_task_pays_for_both_ways() -> None:
    relu = gradient_of(a_node("relu", 0), inputs=2)
    # Forward reads and writes; backward reads gradient and input, writes a gradient.
    assert cost_ms(relu) == pytest.approx(2 * 0.5 + (2 + 3) * VALUE / 1e6)
    slower = msgspec.structs.replace(TABLE, gradients={"pointwise": 2.0})
    assert cost_ms(relu, slower) == pytest.approx(2 * 0.5 + (2 + 2 * 3) * VALUE / 1e6)
    product = gradient_of(a_node("mul", 0, 1), inputs=3)
    assert cost_ms(product) == pytest.approx(3 * 0.5 + (3 + 2 * 3) * VALUE / 1e6)


def test_masks_and_indices_get_no_gradient() -> None:
    inputs = (
        an_input("x", "rows", "columns"),
        an_input("mask", "rows", "columns", dtype="bool", draw="mask"),
        an_input("grad_output", "rows", "columns"),
    )
    graph = Graph(
        dtype="float32",
        inputs=inputs,
        nodes=(a_node("masked_fill", 0, 1, value=0.0),),
        outputs=(3,),
        grad_output=2,
    )
    assert peak(graph) == 4 * VALUE + ELEMENTS
    plain = msgspec.structs.replace(graph, grad_output=None)
    backward_ms = cost_ms(graph) - cost_ms(plain)
    assert backward_ms == pytest.approx(0.5 + (2 + 2) * VALUE / 1e6)  # of one gradient


def test_estimates() -> None:
    graph = graph_of(a_node("relu", 0), a_node("tanh", 1), outputs=(1, 2))
    plain = estimate(graph, resolve(graph, SIZES), TABLE)
    assert plain.traffic_bytes == 3 * VALUE
    assert plain.flops == 2 * ELEMENTS
    assert plain.eager_ms == pytest.approx(cost_ms(graph))
    pulled = gradient_of(a_node("relu", 0), inputs=2)
    gradient = estimate(pulled, resolve(pulled, SIZES), TABLE)
    assert gradient.traffic_bytes == 3 * VALUE
    assert gradient.flops == 2 * ELEMENTS
