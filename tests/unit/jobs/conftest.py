"""Hand-written tasks, and a context whose lease nobody else holds."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from opsgen.child import list_gpus
from opsgen.child.context import LocalContext
from opsgen.ops import CATALOGUE
from opsgen.records import Estimate, Graph, Input, Node, Task, TensorSpec, Workload
from opsgen.render import render_source
from opsgen.source import foreign_task

SIZES = ({"batch_size": 256, "features": 128}, {"batch_size": 64, "features": 64})
TWIN = {"batch_size": 8, "features": 16}


@pytest.fixture
def context(tmp_path) -> LocalContext:
    return LocalContext("cpu", "cpu", tmp_path)


@pytest.fixture
def gpu_context(tmp_path) -> LocalContext:
    return LocalContext("cuda", list_gpus()[0].uuid, tmp_path)


@pytest.fixture
def chain() -> Callable[..., Task]:
    """Return a function from op names that keep shapes to a sampled task."""

    def make(*ops: str) -> Task:
        shape = Input(name="x", dims=("batch_size", "features"), dtype="float32", draw="normal")
        nodes = tuple(_node(op, place) for place, op in enumerate(ops))
        graph = Graph(dtype="float32", inputs=(shape,), nodes=nodes, outputs=(len(ops),))
        return Task(
            task_id="-".join(ops),
            data_source=f"torch#{len(ops)}",
            line=0,
            level=len(ops),
            ops=tuple(CATALOGUE[op].spellings[0].name for op in ops),
            code=render_source(graph, SIZES[0]),
            workloads=tuple(_workload(sizes) for sizes in (*SIZES, TWIN)),
            graph=graph,
            graph_hash="0",
            family="0",
            estimate=Estimate(
                eager_ms=1.0, traffic_bytes=1, flops=1, peak_bytes=1, num_terms=10_000
            ),
        )

    return make


@pytest.fixture
def foreign() -> Callable[..., Task]:
    """Return a function from forward's body and the inputs to a task of unknown origin."""

    def make(forward: str, inputs: str, init: str = "pass") -> Task:
        return foreign_task(_FOREIGN.format(forward=forward, inputs=inputs, init=init), origin="t")

    return make


_FOREIGN = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, x):
        {forward}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""


def _node(op: str, place: int) -> Node:
    attrs: dict[str, object] = {"bias": True} if op == "linear" else {}
    sizes: dict[str, int | str] = {"out_features": "features"} if op == "linear" else {}
    return Node(op=op, args=(place,), attrs=attrs, sizes=sizes)


def _workload(sizes: dict[str, int]) -> Workload:
    spec = TensorSpec(shape=(sizes["batch_size"], sizes["features"]), dtype="float32")
    return Workload(sizes=sizes, inputs=(spec,), outputs=(spec,))
