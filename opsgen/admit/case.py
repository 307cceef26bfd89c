"""All that is known of one task when it is judged, and its place in the plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from opsgen.errors import reason_for
from opsgen.records import Fault, MeasureEvidence, ProbeEvidence, Record, Task


class Case(Record, frozen=True, kw_only=True):
    """A task with what its stages brought; the measurements are of one environment."""

    task: Task
    """The task."""
    probe: ProbeEvidence | None = None
    """What the CPU showed; absent until it did."""
    measure: MeasureEvidence | None = None
    """What the timing device showed; absent until it did."""
    probe_faults: tuple[Fault, ...] = ()
    """Faults of the attempts at probing, in order; without weight once `probe` is there."""
    measure_faults: tuple[Fault, ...] = ()
    """Faults of the attempts at measuring, in order; without weight once `measure` is there."""


def final_fault(faults: Sequence[Fault]) -> Fault | None:
    """Return the last fault if its reason leaves no retries, otherwise None.

    Faults that blame the task confirm each other: a crash followed by a timeout
    cannot run. Faults of the machine count per reason, so that a lost worker
    does not use up the retry that a full device is owed.

    Args:
        faults: Faults of one task in one stage, in the order of the attempts.

    Returns:
        The fault that stands for the task, or None while retries are left.
    """
    if not faults:
        return None
    last = reason_for(faults[-1].reason)
    num_alike = sum(
        reason.name == last.name or reason.verdict == last.verdict == "rejected"
        for reason in (reason_for(fault.reason) for fault in faults)
    )
    return faults[-1] if num_alike > last.num_retries else None


def plan_order(want: Mapping[str, int]) -> Callable[[str, int], tuple[int, str, int]]:
    """Return the sort key of (data_source, line): classes as in `want`, then lines.

    Classes that nobody wants come last, by name.
    """
    ranks = {name: rank for rank, name in enumerate(want)}
    return lambda data_source, line: (ranks.get(data_source, len(ranks)), data_source, line)
