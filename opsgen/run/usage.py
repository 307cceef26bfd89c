"""What became of the device's time: who held it, for what, and how it was meanwhile. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from opsgen.records import Attempt, DeviceState, Lease, MeasureEvidence, Record
from opsgen.run.folder import Session
from opsgen.run.requests import is_retiming

BETWEEN = "between"
"""The part of a hold that none of its parts accounts for."""

_QUANTITIES = ("sm_mhz", "memory_mhz", "temperature_c", "power_w")


class Spread(Record, frozen=True, kw_only=True):
    """Where readings of one quantity lie."""

    smallest: float
    """The smallest."""
    median: float
    """Their median."""
    largest: float
    """The largest."""


class DeviceUse(Record, frozen=True, kw_only=True):
    """What measuring did with its devices."""

    gpu_min: dict[str, float]
    """Minutes that a device was held, by what came of it: a task's verdict, `retimed` for second
    timings, `fault:` with its reason for attempts that ended in one."""
    lease_use: float | None
    """Share of the measuring stages' time for which a device was held, over all devices; absent
    before the first measurement."""
    measured_per_min: float | None
    """Tasks measured in a minute of those stages, the start of children included; absent then."""
    parts_s: dict[str, float]
    """Seconds held by what they went into, the dearest first; `between` is the rest."""
    wait_s: float
    """Seconds that children waited for a device, added up."""
    max_wait_s: float
    """Longest that one task's child waited, seconds."""
    states: dict[str, Spread]
    """Clocks (MHz), temperature (degrees Celsius) and power (watts) right after timing; empty on a
    CPU."""
    throttle: dict[str, int]
    """Reasons for lowered clocks, with how many timings met them."""


def held_s(attempt: Attempt) -> float:
    """Return the seconds for which an attempt held its device."""
    lease = _lease(attempt)
    # Attempts of older journals, and of workers that do not watch, say it in the evidence alone.
    return attempt.hold_s or (lease.hold_s if lease else 0.0)


def device_use(
    attempts: Iterable[Attempt], sessions: Sequence[Session], outcomes: Mapping[str, str]
) -> DeviceUse:
    """Add up the attempts at measuring.

    Args:
        attempts: All attempts of a run.
        sessions: When its measuring stages began.
        outcomes: The verdict on each task in words, by the key of its measurement.
    """
    made = [attempt for attempt in attempts if attempt.job == "measure"]
    gpu_s: defaultdict[str, float] = defaultdict(float)
    for attempt in made:
        gpu_s[_outcome(attempt, outcomes)] += held_s(attempt)
    wall_s, device_s = _stage_s(made, sessions)
    num_measured = sum(a.evidence is not None and not is_retiming(a) for a in made)
    waits_s = [lease.wait_s for lease in map(_lease, made) if lease]
    states = [a.evidence.state for a in made if isinstance(a.evidence, MeasureEvidence)]
    seen = [state for state in states if state is not None]
    return DeviceUse(
        gpu_min={name: round(spent_s / 60.0, 4) for name, spent_s in _dearest(gpu_s)},
        lease_use=round(sum(gpu_s.values()) / device_s, 4) if device_s else None,
        measured_per_min=round(60.0 * num_measured / wall_s, 2) if wall_s else None,
        parts_s=_parts(made),
        wait_s=round(sum(waits_s), 3),
        max_wait_s=round(max(waits_s, default=0.0), 3),
        states=_spreads(seen),
        throttle=dict(Counter(reason for state in seen for reason in state.throttle).most_common()),
    )


def _lease(attempt: Attempt) -> Lease | None:
    return attempt.evidence.lease if isinstance(attempt.evidence, MeasureEvidence) else None


def _outcome(attempt: Attempt, outcomes: Mapping[str, str]) -> str:
    if attempt.fault is not None:
        return f"fault: {attempt.fault.reason}"
    return "retimed" if is_retiming(attempt) else outcomes.get(attempt.key, "not judged")


def _stage_s(made: Sequence[Attempt], sessions: Sequence[Session]) -> tuple[float, float]:
    """Return how long the measuring stages took, and the same times their devices, seconds.

    A stage ends with its last attempt, however the process that ran it ended.
    """
    wall_s = device_s = 0.0
    ordered = sorted(sessions, key=lambda session: session.started_s)
    ends = (*(session.started_s for session in ordered[1:]), float("inf"))
    for session, end_s in zip(ordered, ends, strict=False):
        last_s = max(
            (a.started_s + a.wall_s for a in made if session.started_s <= a.started_s < end_s),
            default=session.started_s,
        )
        wall_s += last_s - session.started_s
        device_s += (last_s - session.started_s) * session.num_devices
    first_s = ordered[0].started_s if ordered else float("inf")
    early_s = _covered_s([a for a in made if a.started_s < first_s])
    return wall_s + early_s, device_s + early_s


def _covered_s(made: Iterable[Attempt]) -> float:
    """Return for how long any attempt was in progress: all there is to go by without sessions."""
    covered_s, until_s = 0.0, float("-inf")
    for start_s, end_s in sorted((a.started_s, a.started_s + a.wall_s) for a in made):
        covered_s += max(0.0, end_s - max(start_s, until_s))
        until_s = max(until_s, end_s)
    return covered_s


def _parts(made: Iterable[Attempt]) -> dict[str, float]:
    parts_s: defaultdict[str, float] = defaultdict(float)
    for lease in filter(None, map(_lease, made)):
        between_s = max(0.0, lease.hold_s - sum(lease.parts_s.values()))
        for part, spent_s in (*lease.parts_s.items(), (BETWEEN, between_s)):
            parts_s[part] += spent_s
    return {part: round(spent_s, 3) for part, spent_s in _dearest(parts_s)}


def _dearest(spent_s: Mapping[str, float]) -> list[tuple[str, float]]:
    return sorted(spent_s.items(), key=lambda item: -item[1])


def _spreads(states: Sequence[DeviceState]) -> dict[str, Spread]:
    spreads = {}
    for name in _QUANTITIES:
        values = [float(value) for state in states if (value := getattr(state, name)) is not None]
        if values:
            spreads[name] = Spread(smallest=min(values), median=median(values), largest=max(values))
    return spreads
