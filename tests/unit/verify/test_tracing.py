"""Trace hashes: equal for one computation however it is written, different for another."""

from __future__ import annotations

import functools
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from written_sources import task_source

from opsgen.ops import CATALOGUE
from opsgen.recipe import read_recipe
from opsgen.render import render_source, render_task
from opsgen.sampler import Plan
from opsgen.source import assign_sizes
from opsgen.verify import trace_code

SAME = {
    "function": ("F.relu(x) * y", "pass"),
    "torch": ("torch.relu(x) * y", "pass"),
    "method": ("x.relu().mul(y)", "pass"),
    "module": ("self.act(x) * y", "self.act = nn.ReLU()"),
    "swapped": ("y * F.relu(x)", "pass"),
    "in place": ("F.relu(x.clone(), inplace=True) * y", "pass"),
    "clamp": ("x.clamp(min=0) * y", "pass"),
    "padded": ("(1 * F.relu(x).t().t() + 0) * y", "pass"),
    "copied": ("F.relu(x.contiguous().detach().to(torch.float32)) * y.clone()", "pass"),
    "broadcast": ("F.relu(x) * y.expand_as(x)", "pass"),
}
OTHER = {
    "other op": "torch.sigmoid(x) * y",
    "other combination": "F.relu(x) + y",
    "other edge": "F.relu(y) * x",
    "one input": "F.relu(x) * x",
    "other attribute": "F.leaky_relu(x, 0.2) * y",
    "further op": "F.relu(x) * y * 2",
    "other order": "F.relu(x * y)",
}


def traced(
    expression, inputs="torch.randn(16, 32), torch.randn(16, 32)", init="pass", names="x, y"
):
    trace = trace_code(task_source(f"return {expression}", inputs, init, names))
    assert trace is not None
    return trace


@pytest.fixture(scope="module")
def usual():
    return traced("F.relu(x) * y")


@pytest.mark.parametrize("name", SAME)
def test_spelling_does_not_matter(usual, name):
    expression, init = SAME[name]
    trace = traced(expression, init=init)
    assert (trace.hash, trace.sized_hash) == (usual.hash, usual.sized_hash)
    assert trace.num_nodes == 2
    assert trace.signature == ("float32[2]", "float32[2]", ">", "float32[2]")


@pytest.mark.parametrize("name", OTHER)
def test_another_computation_shows(usual, name):
    assert traced(OTHER[name]).hash != usual.hash


def test_types_and_ranks_count(usual):
    half = ", ".join(["torch.randn(16, 32, dtype=torch.bfloat16)"] * 2)
    assert traced("F.relu(x) * y", half).hash != usual.hash
    assert traced("F.relu(x) * y", "torch.randn(4, 4, 4), torch.randn(4, 4, 4)").hash != usual.hash


def test_sizes_count_only_where_they_are_asked_for(usual):
    other = traced("F.relu(x) * y", "torch.randn(5, 7), torch.randn(5, 7)")
    assert other.hash == usual.hash
    assert other.sized_hash != usual.sized_hash


def test_a_call_goes_by_one_name(usual):
    assert usual.calls == ("torch.nn.functional.relu", "torch.mul")
    for name in ("torch", "method", "module", "swapped", "in place"):
        expression, init = SAME[name]
        assert traced(expression, init=init).calls == usual.calls


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("F.silu(x)", "x * torch.sigmoid(x)"),
        ("x.mean(1, keepdim=True).squeeze(1)", "torch.mean(x, -1)"),
        ("x.sum()", "torch.sum(x, dim=(0, 1))"),
        ("F.softmax(x, -1)", "x.softmax(dim=1)"),
        ("x.view(16, 4, 8).transpose(1, 2).transpose(1, 2).reshape(16, 32)[:, :16]", "x[:, :16]"),
        ("x @ y.t()", "F.linear(x, y)"),
        ("x.exp() + y.sin()", "y.sin() + x.exp()"),
        ("torch.where(x > 0, x, y)", "torch.where(torch.gt(x, 0), x, y)"),
        ("[x.tanh(), x.chunk(2, 1)[1].exp()][1]", "x[:, 16:].exp()"),
    ],
)
def test_one_computation_in_two_ways(left, right):
    assert traced(left).hash == traced(right).hash


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("x.sum(0)", "x.sum(1)"),
        ("x.view(4, 4, 32)", "x.view(16, 4, 8)"),
        ("x[:, :16].exp()", "x[:, 16:].exp()"),
        ("F.gelu(x)", "F.gelu(x, approximate='tanh')"),
        ("torch.sub(x, y)", "torch.sub(y, x)"),
        ("x.cumsum(0)", "x.cumsum(1)"),
        ("F.layer_norm(x, (32,))", "F.layer_norm(x, (32,), eps=1e-3)"),
        ("x.to(torch.float16)", "x.to(torch.bfloat16)"),
    ],
)
def test_attributes_count(left, right):
    assert traced(left).hash != traced(right).hash


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("nn.Conv2d(8, 16, 3)", "nn.Conv2d(8, 4, 3)", True),
        ("nn.Conv2d(8, 16, 3)", "nn.Conv2d(8, 16, 5)", False),
        ("nn.Conv2d(8, 16, 3)", "nn.Conv2d(8, 16, 3, padding=1)", False),
        ("nn.Conv2d(8, 16, 3)", "nn.Conv2d(8, 16, 3, bias=False)", False),
        ("nn.Conv2d(8, 8, 3, groups=8)", "nn.Conv2d(8, 8, 3)", False),
        ("nn.BatchNorm2d(8)", "nn.BatchNorm2d(8, momentum=0.3)", True),
        ("nn.GroupNorm(2, 8)", "nn.GroupNorm(4, 8)", False),
    ],
)
def test_modules(one, other, same):
    traces = [
        traced("self.part(x)", "torch.randn(2, 8, 12, 12)", f"self.part = {part}", "x")
        for part in (one, other)
    ]
    assert (traces[0].hash == traces[1].hash) is same


def test_a_write_is_seen_by_every_view():
    inputs = "torch.randn(4, 8)"
    written = task_source("z = x * 2\nz[:, 0] = 1.0\nreturn z", inputs)
    unwritten = task_source("z = x * 2\nw = z.clone()\nw[:, 0] = 1.0\nreturn z", inputs)
    plain = task_source("return x * 2", inputs)
    flat = task_source("z = x * 2\nz.view(-1).exp_()\nreturn z", inputs)
    hashes = [trace_code(code).hash for code in (written, unwritten, plain, flat)]
    assert hashes[1] == hashes[2]
    assert len(set(hashes)) == 3


def test_dead_work_does_not_count():
    dead = task_source("z = torch.exp(x)\nreturn F.relu(x)", "torch.randn(4, 8)")
    assert trace_code(dead).hash == traced("F.relu(x)", "torch.randn(4, 8)", names="x").hash
    assert trace_code(dead).num_nodes == 1
    assert trace_code(dead).calls == ("torch.exp", "torch.nn.functional.relu")


def test_what_meta_cannot_run_has_no_trace():
    assert trace_code(task_source("return x[x > x.sum().item()]", "torch.randn(4)")) is None


@functools.cache
def _plan(recipe):
    read = read_recipe(Path(__file__).parents[3] / "pipelines" / f"{recipe}.toml")
    return Plan(read.seed, read.sample)


def _lines(recipe, data_source, numbers):
    plan = _plan(recipe)
    lines = [plan.line(data_source, number) for number in numbers]
    return [line for line in lines if line.sampled is not None]


_CLASSES = ("torch#1", "torch#2", "torch#3", "torch#5", "transformers")


# Ops whose spellings are different programs, for which one hash would be wrong.
_REWRITTEN = frozenset(
    ("gather", "maximum", "minimum", "log_positive", "i1", "sinc", "sign", "repeat_interleave")
)


@pytest.mark.check
@settings(deadline=None)
@given(
    recipe=st.sampled_from(("broad", "ops6k")),
    data_source=st.sampled_from(_CLASSES),
    number=st.integers(0, 400),
    turn=st.integers(1, 3),
)
def test_two_renderings_of_a_graph_have_one_hash(recipe, data_source, number, turn):
    for line in _lines(recipe, data_source, [number]):
        task = render_task(line)
        trace = trace_code(task.code)
        nodes = [
            msgspec.structs.replace(
                node,
                spelling=(node.spelling + turn) % len(CATALOGUE[node.op].spellings),
                label="renamed",
            )
            if node.op not in _REWRITTEN
            else node
            for node in task.graph.nodes
        ]
        respelled = msgspec.structs.replace(task.graph, nodes=tuple(nodes))
        again = trace_code(render_source(respelled, task.workloads[0].sizes))
        assert (trace.hash, trace.sized_hash) == (again.hash, again.sized_hash)


def test_sizes_of_a_sampled_task_do_not_count():
    """Lengths that are as short as counts may be taken for these, so a few are let pass."""
    num_same = num_all = 0
    for line in _lines("broad", "torch#2", range(120)):
        task = render_task(line)
        smaller = trace_code(assign_sizes(task.code, task.workloads[1].sizes))
        num_all += 1
        num_same += trace_code(task.code).hash == smaller.hash
    assert num_all > 100
    assert num_same >= 0.98 * num_all


@pytest.mark.check
def test_different_graphs_have_different_hashes():
    """Of composites some graphs differ in nothing but how their inputs are drawn."""
    found = {}
    for data_source in ("torch#1", "torch#2", "torch#3", "torch#5"):
        for line in _lines("broad", data_source, range(150)):
            task = render_task(line)
            found.setdefault(trace_code(task.code).hash, set()).add(task.graph_hash)
    num_graphs = len(set.union(*found.values()))
    assert num_graphs > 500
    assert len(found) >= 0.99 * num_graphs
