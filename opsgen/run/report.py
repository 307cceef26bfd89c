"""The run's report: rates, rejections, use of the device, and whether its times repeat."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from opsgen.admit import Case
from opsgen.errors import REASONS
from opsgen.records import (
    Attempt,
    Environment,
    MeasureEvidence,
    PlanLine,
    Status,
    Verdict,
)
from opsgen.run.agreement import Agreement, Pair, compare_timings
from opsgen.run.folder import RunFolder
from opsgen.run.requests import is_retiming, measure_key, retime_key
from opsgen.run.usage import DeviceUse, device_use


class Report(DeviceUse, frozen=True, kw_only=True):
    """What a run cost and what it brought."""

    name: str
    """The recipe's name."""
    environment: str | None
    """Device and torch version; absent before the first measurement."""
    num_lines: int
    """Plan lines sampled."""
    tries: dict[str, int]
    """Rejected tries of the sampler by reason."""
    verdicts: dict[str, int]
    """Tasks by status and reason."""
    num_faulted: int
    """Tasks deferred by a fault of the machine or of opsgen."""
    num_attempts: dict[str, int]
    """Attempts by job; second timings count as `retime`."""
    child_s: dict[str, float]
    """Seconds of children by job."""
    retimed: Agreement
    """How first and second timings agree."""
    drift: str | None
    """In a line what did not repeat; absent where the median difference is within 3 %."""


def make_report(
    folder: RunFolder,
    lines: Sequence[PlanLine],
    cases: Sequence[Case],
    verdicts: Iterable[Verdict],
    attempts: Sequence[Attempt],
) -> Report:
    """Add a run up.

    Args:
        folder: Its recipe, environment and sessions are read.
        lines: Plan lines sampled.
        cases: All tasks with their evidence.
        verdicts: What is held of them.
        attempts: All attempts at them.
    """
    environment = folder.environment()
    verdicts = list(verdicts)
    use = device_use(attempts, folder.sessions(), _outcomes(cases, verdicts, environment))
    retimed = compare_timings(_pairs(cases, attempts, environment))
    return Report(
        **msgspec.structs.asdict(use),
        name=folder.recipe.name,
        environment=f"{environment.device_name}, torch {environment.torch}"
        if environment
        else None,
        num_lines=len(lines),
        tries=dict(Counter(reason for line in lines for reason in line.tries).most_common()),
        verdicts=dict(Counter(_outcome(verdict) for verdict in verdicts).most_common()),
        num_faulted=sum(
            verdict.status is Status.DEFERRED
            and (verdict.reason or "").partition(":")[0] in REASONS.keys() - {"unmeasured"}
            for verdict in verdicts
        ),
        num_attempts=dict(Counter(map(_job, attempts))),
        child_s=_seconds(attempts),
        retimed=retimed,
        drift=retimed.complaint,
    )


def _outcomes(
    cases: Iterable[Case], verdicts: Iterable[Verdict], environment: Environment | None
) -> dict[str, str]:
    """Return the verdicts on measured tasks in words, by the key of the measurement."""
    if environment is None:
        return {}
    by_line = {(each.data_source, each.line): _outcome(each) for each in verdicts}
    return {
        measure_key(case.task, environment): by_line[case.task.data_source, case.task.line]
        for case in cases
        if case.measure is not None
    }


def _pairs(
    cases: Iterable[Case], attempts: Iterable[Attempt], environment: Environment | None
) -> list[Pair]:
    """Return both timings of each task that has two."""
    if environment is None:
        return []
    again: dict[str, MeasureEvidence] = {}
    for attempt in filter(is_retiming, attempts):
        if isinstance(attempt.evidence, MeasureEvidence) and attempt.evidence.timings:
            again.setdefault(attempt.key, attempt.evidence)
    pairs: dict[str, Pair] = {}
    for case in cases:
        key = retime_key(case.task, environment)
        if case.measure is not None and key in again:
            # A collection may hold a task several times; it was timed as one.
            pairs.setdefault(key, (case.measure, again[key]))
    return list(pairs.values())


def _outcome(verdict: Verdict) -> str:
    return f"{verdict.status.value}: {verdict.reason}" if verdict.reason else verdict.status.value


def _job(attempt: Attempt) -> str:
    return "retime" if is_retiming(attempt) else attempt.job


def _seconds(attempts: Iterable[Attempt]) -> dict[str, float]:
    seconds: dict[str, float] = {}
    for attempt in attempts:
        seconds[_job(attempt)] = seconds.get(_job(attempt), 0.0) + attempt.wall_s
    return {job: round(total, 3) for job, total in seconds.items()}
