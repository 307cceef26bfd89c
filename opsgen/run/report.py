"""The run's report: rates, rejections, use of the device and where its minutes went."""

from __future__ import annotations

from collections import Counter

from opsgen.admit import Case
from opsgen.errors import REASONS
from opsgen.recipe import Recipe
from opsgen.records import Attempt, PlanLine, Record, Status, Verdict
from opsgen.run.folder import RunFolder


class Report(Record, frozen=True, kw_only=True):
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
    """Attempts by job."""
    child_s: dict[str, float]
    """Seconds of children by job."""
    hold_s: dict[str, float]
    """Seconds that the device was held, by what became of the task."""
    wait_s: float
    """Seconds that children waited for the device."""


def make_report(
    recipe: Recipe,
    lines: list[PlanLine],
    cases: list[Case],
    verdicts: list[Verdict],
    folder: RunFolder,
) -> Report:
    """Add a run up."""
    attempts = folder.attempts()
    environment = folder.environment()
    status = {verdict.task_id: verdict for verdict in verdicts}
    hold_s: dict[str, float] = {}
    wait_s = 0.0
    for case in cases:
        if case.measure and case.measure.lease:
            outcome = status[case.task.task_id].status.value
            hold_s[outcome] = hold_s.get(outcome, 0.0) + case.measure.lease.hold_s
            wait_s += case.measure.lease.wait_s
    return Report(
        name=recipe.name,
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
        num_attempts=dict(Counter(attempt.job for attempt in attempts)),
        child_s=_seconds(attempts),
        hold_s=hold_s,
        wait_s=wait_s,
    )


def _outcome(verdict: Verdict) -> str:
    return f"{verdict.status.value}: {verdict.reason}" if verdict.reason else verdict.status.value


def _seconds(attempts: list[Attempt]) -> dict[str, float]:
    seconds: dict[str, float] = {}
    for attempt in attempts:
        seconds[attempt.job] = seconds.get(attempt.job, 0.0) + attempt.wall_s
    return {job: round(total, 3) for job, total in seconds.items()}
