"""In which order tasks are measured."""

from __future__ import annotations

from opsgen.ops import CATALOGUE, Kind
from opsgen.recipe import SampleConfig
from opsgen.records import Task
from opsgen.render import render_task
from opsgen.run.requests import slowest_first
from opsgen.sampler import Plan

LINES = [Plan(1, SampleConfig()).line("torch#2", number) for number in range(200)]
TASKS = [render_task(line) for line in LINES if line.sampled]


def kinds_of(task: Task) -> list[Kind]:
    assert task.graph is not None
    return [CATALOGUE[node.op].kind for node in task.graph.nodes]


def test_what_takes_a_compiler_longest_comes_first_and_nothing_is_lost() -> None:
    ordered = slowest_first(TASKS)
    assert sorted(task.task_id for task in ordered) == sorted(task.task_id for task in TASKS)
    sorts = [Kind.SORT in kinds_of(task) for task in ordered]
    assert not all(sorts)
    assert any(sorts)
    assert not any(sorts[sum(sorts) :])


def test_equals_keep_their_order() -> None:
    plain = [task for task in TASKS if not {Kind.SORT, Kind.SCAN} & set(kinds_of(task))]
    same = [task for task in plain if len(kinds_of(task)) == 2]
    assert slowest_first(same) == same
