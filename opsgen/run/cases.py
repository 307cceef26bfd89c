"""Tasks joined with what the journal holds of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from opsgen.admit import Case, final_fault
from opsgen.errors import reason_for
from opsgen.records import (
    Attempt,
    Environment,
    Fault,
    MeasureEvidence,
    ProbeEvidence,
    Task,
)
from opsgen.run.requests import measure_key


def join_cases(
    tasks: Iterable[Task], attempts: Iterable[Attempt], environment: Environment | None
) -> list[Case]:
    """Return a case for every task.

    Args:
        tasks: The tasks.
        attempts: All attempts at any task, in journal order.
        environment: Whose measurements count; None if there are none yet.
    """
    by_key: dict[tuple[str, str], list[Attempt]] = {}
    for attempt in attempts:
        by_key.setdefault((attempt.job, attempt.key), []).append(attempt)
    cases = []
    for task in tasks:
        probes = by_key.get(("probe", task.task_id), [])
        measures = (
            by_key.get(("measure", measure_key(task, environment)), []) if environment else []
        )
        cases.append(
            Case(
                task=task,
                probe=_first(probes, ProbeEvidence),
                measure=_first(measures, MeasureEvidence),
                probe_faults=_faults(probes),
                measure_faults=_faults(measures),
            )
        )
    return cases


def forgive(attempts: Sequence[Attempt]) -> list[Attempt]:
    """Leave out the faults of keys that they only deferred, so that the keys are tried again."""
    by_key: dict[tuple[str, str], list[Fault]] = {}
    for attempt in attempts:
        if attempt.fault:
            by_key.setdefault((attempt.job, attempt.key), []).append(attempt.fault)
    forgiven = set()
    for key, faults in by_key.items():
        last = final_fault(faults)
        if last is not None and reason_for(last.reason).verdict == "deferred":
            forgiven.add(key)
    return [
        attempt
        for attempt in attempts
        if attempt.evidence is not None or (attempt.job, attempt.key) not in forgiven
    ]


T = TypeVar("T")


def _first(attempts: Iterable[Attempt], kind: type[T]) -> T | None:
    return next((each.evidence for each in attempts if isinstance(each.evidence, kind)), None)


def _faults(attempts: Iterable[Attempt]) -> tuple[Fault, ...]:
    return tuple(attempt.fault for attempt in attempts if attempt.fault is not None)
