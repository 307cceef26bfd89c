"""Records survive their JSON form, NaN and infinities included."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import TypeVar

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from opsgen.records import Graph, NoopEvidence, Task, decode_line, digest, encode_line
from opsgen.testing import graphs, tasks

T = TypeVar("T")

records = st.builds(
    NoopEvidence,
    key=st.text(),
    pid=st.integers(min_value=0, max_value=2**31),
    metrics=st.dictionaries(st.text(), st.floats()),
)


@given(records)
def test_a_line_gives_back_the_record(record: NoopEvidence) -> None:
    line = encode_line(record)
    assert b"\n" not in line
    json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    again = decode_line(line, NoopEvidence)
    assert repr(again) == repr(record)
    assert digest(again) == digest(record)


@given(tasks())
def test_a_task_comes_back_with_layouts_roles_gradients_and_strata(task: Task) -> None:
    again = decode_line(encode_line(task), Task)
    assert again == task
    assert digest(again) == digest(task)


@given(graphs())
def test_drawn_graphs_are_what_records_promise(graph: Graph) -> None:
    num_inputs, num_values = len(graph.inputs), len(graph.inputs) + len(graph.nodes)
    for number, node in enumerate(graph.nodes):
        assert all(arg < num_inputs + number for arg in node.args)
    assert all(num_inputs <= value < num_values for value in graph.outputs)
    for known in graph.inputs:
        assert known.layout in ("contiguous", "transposed", "channels_last")
        assert known.layout != "channels_last" or len(known.dims) in (4, 5)
    if graph.grad_output is not None:
        assert graph.grad_output == num_inputs - 1
        assert len(graph.outputs) == 1
        assert all(graph.grad_output not in node.args for node in graph.nodes)
    assert decode_line(encode_line(graph), Graph) == graph


def test_strategies_reach_every_new_field() -> None:
    reach(graphs(), lambda graph: graph.grad_output is not None)
    reach(graphs(), lambda graph: len(graph.outputs) > 1)
    reach(graphs(), lambda graph: {one.layout for one in graph.inputs} == {"channels_last"})
    reach(tasks(), lambda task: task.stratum == "epilogue")
    reach(tasks(), lambda task: task.data_source == "transformers")
    reach(tasks(), lambda task: [one.role for one in task.workloads][1:] == ["held_out", "twin"])
    reach(
        tasks(),
        lambda task: any(one.layout == "transposed" for w in task.workloads for one in w.inputs),
    )


def reach(strategy: st.SearchStrategy[T], condition: Callable[[T], bool]) -> None:
    """Fail if no example meets the condition; to make one small would take minutes."""
    quick = settings(max_examples=2000, phases=[Phase.generate], database=None)
    find(strategy, condition, settings=quick, random=random.Random(1))
