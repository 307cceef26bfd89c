"""What a task repeats of the set it stands in: its source, its graph or its trace."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass

from opsgen.admit.case import Case
from opsgen.admit.outcome import Outcome
from opsgen.records import Task, Trace


@dataclass(frozen=True, slots=True)
class Repeat:
    """An earlier task that is the same.

    Attributes:
        task: The earlier one.
        what: What both have in common, in words.
    """

    task: Task
    what: str


def novel(task: Task, repeat: Repeat | None) -> Outcome:
    """Hold when no earlier line of the plan is the same task.

    The earlier line wins whatever became of it: if it were asked for its own
    verdict, a looser threshold could turn a later admitted line into a
    rejected one, and every duplicate would have to be measured first.
    """
    if repeat is None:
        return None
    earlier = repeat.task
    origin = f", {earlier.origin}" if _is_foreign(earlier) and earlier.origin else ""
    place = f"{earlier.data_source} line {earlier.line} ({earlier.task_id}){origin}"
    return f"same {repeat.what} as {place}"


def find_repeats(cases: Iterable[Case]) -> list[Repeat | None]:
    """Return for each case, given in plan order, the first earlier one that is the same task.

    Sampled tasks are the same by their graph, of a single op with its sizes; foreign ones by
    their normalised source. Where one of the two is foreign, so they are by their trace, of a
    single call with its sizes.
    """
    by_identity: dict[Hashable, Task] = {}
    by_trace: dict[tuple[Hashable, bool], Task] = {}
    repeats: list[Repeat | None] = []
    for case in cases:
        task, trace = case.task, case.probe.trace if case.probe else None
        earlier = by_identity.setdefault(_identity(task), task)
        repeat = None if earlier is task else Repeat(earlier, _identity_name(task))
        if trace is not None:
            repeat = repeat or _same_trace(task, trace, by_trace)
            by_trace.setdefault((_trace_identity(trace), _is_foreign(task)), task)
        repeats.append(repeat)
    return repeats


def _same_trace(
    task: Task, trace: Trace, by_trace: dict[tuple[Hashable, bool], Task]
) -> Repeat | None:
    origins = (True, False) if _is_foreign(task) else (True,)
    found = [by_trace.get((_trace_identity(trace), origin)) for origin in origins]
    earlier = next((each for each in found if each is not None), None)
    what = "trace and sizes" if _is_single(trace) else "trace"
    return None if earlier is None else Repeat(earlier, what)


def _trace_identity(trace: Trace) -> Hashable:
    return trace.sized_hash if _is_single(trace) else trace.hash


def _is_single(trace: Trace) -> bool:
    return len(trace.calls) <= 1


def _is_foreign(task: Task) -> bool:
    return task.graph_hash is None


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
