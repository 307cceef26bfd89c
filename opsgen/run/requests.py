"""What is asked about a task under a recipe, and under which key the journal keeps it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from opsgen.ops import CATALOGUE, Kind
from opsgen.recipe import Recipe
from opsgen.records import Attempt, Environment, MeasureRequest, ProbeRequest, Task, digest

_RETIMED = "retimed:"
_SLOW_KINDS = {Kind.SORT: 20, Kind.SCAN: 10}

Asked = tuple[str, ProbeRequest | MeasureRequest]
"""A key and what is asked under it."""


def measure_key(task: Task, environment: Environment) -> str:
    """Return the journal's key of a measurement: the task in one environment."""
    return f"{task.task_id}@{digest(environment)[:12]}"


def retime_key(task: Task, environment: Environment) -> str:
    """Return the journal's key of a second timing, which is no measurement of the task."""
    return _RETIMED + measure_key(task, environment)


def is_retiming(attempt: Attempt) -> bool:
    """Tell whether an attempt was made at a second timing."""
    return attempt.job == "measure" and attempt.key.startswith(_RETIMED)


def slowest_first(tasks: Iterable[Task]) -> list[Task]:
    """Return tasks with those first that take a compiler longest, else in their order.

    So that a fleet does not end with one child compiling what all others wait for: sorts and
    scans take Inductor many times as long as others.
    """
    return sorted(tasks, key=_compile_weight, reverse=True)


def _compile_weight(task: Task) -> int:
    if task.graph is None:
        return task.level
    kinds = [CATALOGUE[node.op].kind for node in task.graph.nodes if node.op in CATALOGUE]
    return len(kinds) + sum(_SLOW_KINDS.get(kind, 0) for kind in kinds)


def table_paths(recipe: Recipe) -> tuple[str, ...]:
    """Return the benchmarks' tables, the user's own with whole paths: children stand elsewhere."""
    return tuple(
        str(Path(name).resolve()) if name.endswith(".parquet") else name
        for name in recipe.probe.benchmarks
    )


def probe_request(task: Task, recipe: Recipe) -> ProbeRequest:
    """Ask what a CPU can show of a task."""
    return ProbeRequest(
        task=task,
        liveness=recipe.probe.liveness,
        lazy_answers=recipe.probe.lazy_answers,
        benchmarks=table_paths(recipe),
        seed=recipe.seed,
    )


def measure_request(task: Task, recipe: Recipe) -> MeasureRequest:
    """Ask for a task's evidence and baselines on the recipe's device."""
    return MeasureRequest(
        task=task,
        device=recipe.measure.device,
        modes=recipe.measure.modes,
        max_s_per_mode=recipe.measure.max_s_per_mode,
        autotuning=recipe.measure.autotuning,
        seed=recipe.seed,
    )


def retime_request(task: Task, recipe: Recipe) -> MeasureRequest:
    """Ask for a task's baselines once more: the evidence of its criteria is there."""
    return msgspec.structs.replace(measure_request(task, recipe), checks=False)
