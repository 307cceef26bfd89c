"""The table of criteria in the protocol's order.

A new criterion is a function in `probing`, `measuring` or both, and a row here.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass

from opsgen.admit import measuring, probing
from opsgen.admit.outcome import Absent, Outcome
from opsgen.recipe import Recipe
from opsgen.records import MeasureEvidence, ProbeEvidence, Task

__all__ = ["CRITERIA", "Absent", "Criterion", "Outcome", "earlier_twins", "novel"]


def novel(task: Task, twin: Task | None) -> Outcome:
    """Hold when no earlier line of the plan has the same identity.

    The earlier line wins whatever became of it: if it were asked for its own
    verdict, a looser threshold could turn a later admitted line into a
    rejected one, and every duplicate would have to be measured first.
    """
    if twin is None:
        return None
    return f"same {_identity_name(task)} as {twin.data_source} line {twin.line} ({twin.task_id})"


@dataclass(frozen=True, slots=True)
class Criterion:
    """Where a criterion is read.

    Attributes:
        name: The protocol's name, as it stands in verdicts.
        plan: Reads it off the task and the earlier line that it repeats.
        probe: Reads it off the probe's evidence.
        measure: Reads it off the timing device's evidence.
    """

    name: str
    plan: Callable[[Task, Task | None], Outcome] | None = None
    probe: Callable[[Task, ProbeEvidence, Recipe], Outcome] | None = None
    measure: Callable[[Task, MeasureEvidence, Recipe], Outcome] | None = None


CRITERIA: tuple[Criterion, ...] = (
    Criterion("self_contained", probe=probing.self_contained),
    Criterion("novel", plan=novel),
    Criterion("ops_true", probe=probing.ops_true),
    Criterion("executes", probe=probing.executes, measure=measuring.executes),
    Criterion("finite", probe=probing.finite, measure=measuring.finite),
    Criterion("deterministic", probe=probing.deterministic, measure=measuring.deterministic),
    Criterion("judgeable", probe=probing.judgeable, measure=measuring.judgeable),
    Criterion("nontrivial", measure=measuring.nontrivial),
    Criterion("live", probe=probing.live, measure=measuring.live),
    Criterion("stable_inputs", probe=probing.stable_inputs, measure=measuring.stable_inputs),
    Criterion("runtime_window", measure=measuring.runtime_window),
    Criterion("memory", probe=probing.memory, measure=measuring.memory),
)


def earlier_twins(tasks: Iterable[Task]) -> list[Task | None]:
    """Return for each task, given in plan order, the first earlier one of the same identity."""
    first: dict[Hashable, Task] = {}
    twins: list[Task | None] = []
    for task in tasks:
        earlier = first.setdefault(_identity(task), task)
        twins.append(None if earlier is task else earlier)
    return twins


def _identity(task: Task) -> Hashable:
    # A single op is worth several sizes, a fusion is not. The task_id of
    # foreign code is the hash of its normalised source.
    if task.graph_hash is None or task.level == 1:
        return ("task_id", task.task_id)
    return ("graph_hash", task.graph_hash)


def _identity_name(task: Task) -> str:
    if task.graph_hash is None:
        return "normalised source"
    return "graph and sizes" if task.level == 1 else "graph"
