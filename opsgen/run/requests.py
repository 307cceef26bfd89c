"""What is asked about a task under a recipe, and under which key the journal keeps it."""

from __future__ import annotations

from pathlib import Path

import msgspec

from opsgen.recipe import Recipe
from opsgen.records import Attempt, Environment, MeasureRequest, ProbeRequest, Task, digest

_RETIMED = "retimed:"

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
