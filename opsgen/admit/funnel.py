"""Counts of verdicts, and what another set of thresholds changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from opsgen.admit.criteria import CRITERIA
from opsgen.errors import REASONS
from opsgen.records import Record, Status, Verdict

_ORDER = {name: rank for rank, name in enumerate([*(row.name for row in CRITERIA), *REASONS])}


class ReasonCount(Record, frozen=True, kw_only=True):
    """How many tasks share a reason."""

    reason: str
    """Criterion or reason; timeouts are counted by stage."""
    count: int
    """Tasks."""


class ClassFunnel(Record, frozen=True, kw_only=True):
    """The counts of one quota class."""

    data_source: str
    """The class."""
    sampled: int
    """Tasks judged."""
    admitted: int
    """Of these, admitted."""
    rejected: int
    """Of these, rejected."""
    deferred: int
    """Of these, deferred."""


class Funnel(Record, frozen=True, kw_only=True):
    """What became of all sampled tasks; admitted, rejected and deferred add up to sampled."""

    sampled: int
    """Tasks judged."""
    admitted: int
    """Tasks that may be released."""
    rejected: tuple[ReasonCount, ...]
    """Rejected tasks by reason, in the protocol's order."""
    deferred: tuple[ReasonCount, ...]
    """Deferred tasks by reason."""
    classes: tuple[ClassFunnel, ...]
    """The same by quota class, in the order of the verdicts."""

    @property
    def num_rejected(self) -> int:
        """Rejected tasks, whatever the reason."""
        return sum(entry.count for entry in self.rejected)

    @property
    def num_deferred(self) -> int:
        """Deferred tasks, whatever the reason."""
        return sum(entry.count for entry in self.deferred)


class Change(Record, frozen=True, kw_only=True):
    """One task whose verdict differs between two sets of verdicts."""

    task_id: str
    """The task."""
    data_source: str
    """Its quota class."""
    line: int
    """Its place in the plan of its class."""
    old_status: Status | None
    """Earlier status; absent for a task that was not judged."""
    old_reason: str | None
    """Earlier reason; absent if there was none."""
    new_status: Status
    """Status now."""
    new_reason: str | None
    """Reason now; absent when admitted."""
    witness: str | None
    """What shows the new reason, or what showed the old one if the task is admitted now."""


def reason_order(reason: str) -> tuple[int, str]:
    """Sort key of reasons: criteria in the protocol's order, then the other reasons."""
    return _ORDER.get(reason.partition(":")[0], len(_ORDER)), reason


def funnel(verdicts: Iterable[Verdict]) -> Funnel:
    """Count verdicts by status, reason and class."""
    verdicts = list(verdicts)
    by_class: dict[str, Counter[Status]] = {}
    for verdict in verdicts:
        by_class.setdefault(verdict.data_source, Counter())[verdict.status] += 1
    return Funnel(
        sampled=len(verdicts),
        admitted=sum(verdict.status is Status.ADMITTED for verdict in verdicts),
        rejected=_count(verdicts, Status.REJECTED),
        deferred=_count(verdicts, Status.DEFERRED),
        classes=tuple(
            ClassFunnel(
                data_source=name,
                sampled=counts.total(),
                admitted=counts[Status.ADMITTED],
                rejected=counts[Status.REJECTED],
                deferred=counts[Status.DEFERRED],
            )
            for name, counts in by_class.items()
        ),
    )


def compare(old: Iterable[Verdict], new: Iterable[Verdict]) -> list[Change]:
    """Return the tasks of `new` whose status or reason differs from `old`, in its order."""
    before = {(verdict.data_source, verdict.line): verdict for verdict in old}
    changes = []
    for verdict in new:
        earlier = before.get((verdict.data_source, verdict.line))
        if earlier is None or (earlier.status, earlier.reason) != (verdict.status, verdict.reason):
            changes.append(_change(earlier, verdict))
    return changes


def _change(old: Verdict | None, new: Verdict) -> Change:
    return Change(
        task_id=new.task_id,
        data_source=new.data_source,
        line=new.line,
        old_status=old.status if old else None,
        old_reason=old.reason if old else None,
        new_status=new.status,
        new_reason=new.reason,
        witness=new.witness if new.witness or old is None else old.witness,
    )


def _count(verdicts: Sequence[Verdict], status: Status) -> tuple[ReasonCount, ...]:
    counts = Counter(verdict.reason or "" for verdict in verdicts if verdict.status is status)
    return tuple(
        ReasonCount(reason=reason, count=counts[reason])
        for reason in sorted(counts, key=reason_order)
    )
