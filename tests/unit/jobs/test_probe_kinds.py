"""The probe on what the replica lacks: half precision, several outputs, gradients, layouts."""

from __future__ import annotations

import itertools

import msgspec
import pytest

from opsgen.jobs import probe
from opsgen.ops import CATALOGUE
from opsgen.records import Graph, Input, Node, ProbeEvidence, ProbeRequest, Task
from opsgen.render import render_source
from opsgen.sampler.plan import workload

SIZES = ({"batch_size": 128, "features": 64}, {"batch_size": 4, "features": 16})
EPS = {"float32": 2**-23, "bfloat16": 2**-7, "float16": 2**-10}
DIMS = ("batch_size", "features")


def task_of(graph: Graph) -> Task:
    return Task(
        task_id=f"{graph.dtype}-{len(graph.outputs)}",
        data_source=f"torch#{len(graph.nodes)}",
        line=0,
        level=len(graph.nodes),
        ops=tuple(CATALOGUE[node.op].spellings[0].name for node in graph.nodes),
        code=render_source(graph, SIZES[0]),
        workloads=tuple(workload(graph, sizes) for sizes in SIZES),
        graph=graph,
        graph_hash="0",
        family="0",
    )


def graph_of(dtype: str, *ops: str, outputs: tuple[int, ...] = (), **fields) -> Graph:
    """A chain of ops without attributes behind a linear layer."""
    first = Input(name="x", dims=DIMS, dtype=dtype, draw="normal")
    nodes = [Node(op="linear", args=(0,), attrs={"bias": True}, sizes={"out_features": "features"})]
    nodes += [Node(op=op, args=(place,), attrs={}, sizes={}) for place, op in enumerate(ops, 1)]
    settings = {"inputs": (first,), "outputs": outputs or (len(nodes),), **fields}
    return Graph(dtype=dtype, nodes=tuple(nodes), **settings)


def gradient_of(dtype: str, *ops: str) -> Graph:
    graph = graph_of(dtype, *ops)
    given = Input(name="grad_output", dims=DIMS, dtype=dtype, draw="normal")
    nodes = [
        msgspec.structs.replace(node, args=tuple(arg + (arg > 0) for arg in node.args))
        for node in graph.nodes
    ]
    return msgspec.structs.replace(
        graph,
        inputs=(*graph.inputs, given),
        nodes=tuple(nodes),
        outputs=(len(nodes) + 1,),
        grad_output=1,
    )


def probed(graph: Graph, context) -> ProbeEvidence:
    evidence = probe.run(ProbeRequest(task=task_of(graph), seed=3), context)
    assert evidence.failure is None, evidence.failure
    assert evidence.source_faults == ()
    assert evidence.observed == evidence.predicted
    assert evidence.ops_difference is None
    assert (evidence.num_draws, evidence.num_nonfinite) == (15, 0)
    assert evidence.is_repeatable
    assert evidence.is_pure
    assert evidence.has_stable_inputs
    return evidence


@pytest.mark.parametrize("dtype", EPS)
def test_tolerances_follow_the_working_type(dtype, context):
    evidence = probed(graph_of(dtype, "tanh", "sin"), context)
    (tolerance,) = evidence.tolerances
    assert not tolerance.is_assumed
    # Against float64: rounding of the working type, and not of a finer or a coarser one.
    assert EPS[dtype] / 16 < tolerance.error < 8 * EPS[dtype]
    assert 4 * EPS[dtype] <= tolerance.value < 64 * EPS[dtype]
    assert min(effect.margin for effect in evidence.effects) > 1
    assert min(answer.margin for answer in evidence.answers) > 1


@pytest.mark.parametrize("dtype", EPS)
def test_every_output_is_judged(dtype, context):
    evidence = probed(graph_of(dtype, "tanh", "sin", outputs=(2, 3)), context)
    assert len(evidence.tolerances) == len(evidence.observed) == 2
    assert not any(tolerance.is_assumed for tolerance in evidence.tolerances)
    assert min(effect.margin for effect in evidence.effects) > 1
    # The last op shows in one output alone, which is enough.
    assert {effect.subject for effect in evidence.effects} >= {"node 2 (sin)", "input x"}


@pytest.mark.parametrize("dtype", EPS)
def test_gradients_are_judged_as_outputs(dtype, context):
    evidence = probed(gradient_of(dtype, "tanh", "sin"), context)
    (tolerance,) = evidence.tolerances
    assert not tolerance.is_assumed
    assert EPS[dtype] / 16 < tolerance.error < 16 * EPS[dtype]
    subjects = {(effect.subject, effect.change) for effect in evidence.effects}
    assert subjects >= {("input x", "redrawn"), ("input grad_output", "redrawn")}
    assert subjects >= {("node 1 (tanh)", "deleted"), ("node 2 (sin)", "frozen")}
    assert min(effect.margin for effect in evidence.effects) > 1


def test_what_a_gradient_forgets_is_dead(context):
    """A linear layer alone: its gradient knows neither the input nor the bias."""
    evidence = probed(gradient_of("float32"), context)
    dead = {effect.subject for effect in evidence.effects if not effect.margin > 1}
    assert dead == {"input x", "parameter linear.bias"}


def test_inputs_may_lie_otherwise_in_memory(context):
    graph = graph_of("float32", "tanh")
    turned = msgspec.structs.replace(graph.inputs[0], layout="transposed")
    evidence = probed(msgspec.structs.replace(graph, inputs=(turned,)), context)
    assert min(effect.margin for effect in evidence.effects) > 1


def test_the_same_evidence_whatever_was_probed_before(context):
    graphs = [gradient_of("bfloat16", "tanh"), graph_of("float16", "tanh", outputs=(1, 2))]
    first = [probed(graph, context) for graph in graphs]
    again = [probed(graph, context) for graph in reversed(graphs)]
    for one, other in itertools.zip_longest(first, reversed(again)):
        assert one == other
