"""What `admit` says of a task."""

from __future__ import annotations

import enum

from opsgen.records.base import Record


class Status(enum.Enum):
    """What becomes of a task."""

    ADMITTED = "admitted"
    """Every criterion holds: it may be released."""
    REJECTED = "rejected"
    """The task is at fault: `reason` says how, `witness` shows it."""
    DEFERRED = "deferred"
    """Resources, the machine or missing evidence stand in the way: it may still be admitted."""


class Finding(Record, frozen=True, kw_only=True):
    """One criterion that does not hold."""

    criterion: str
    """Name of the criterion, or a reason of `opsgen.errors.REASONS`."""
    witness: str
    """What shows it, in one line."""


class Verdict(Record, frozen=True, kw_only=True):
    """A task's fate under one set of thresholds."""

    task_id: str
    """Task it speaks of."""
    data_source: str
    """The task's quota class."""
    line: int
    """The task's place in the plan of its class."""
    status: Status
    """Admitted, rejected or deferred."""
    reason: str | None = None
    """First failing criterion in protocol order; absent when admitted."""
    witness: str | None = None
    """What shows it; absent when admitted."""
    failed: tuple[Finding, ...] = ()
    """All that failed among the measured, first one included; empty when admitted."""

    def __post_init__(self) -> None:
        """Hold that only an admitted task goes without a reason."""
        if (self.status is Status.ADMITTED) != (self.reason is None):
            raise ValueError("a verdict has a reason unless it admits")
