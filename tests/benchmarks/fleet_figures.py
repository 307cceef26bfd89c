"""The arithmetic behind the fleet benchmark's table: pure functions of attempts and times.

What a figure leaves out is said at each. Nothing here knows a bound.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import mean, median, quantiles

from fleet_records import StateSummary

from opsgen.fleet import settle
from opsgen.records import Attempt, MeasureEvidence, Timing

REPEAT_MARK = "~"
"""Stands between a task's id and the number of its repeat in a key."""
AUTOTUNE = "autotune"
BETWEEN = "between parts"
Difference = tuple[float, str]
"""How far two times of a task are apart, and which task."""
NUM_EAGER_CALLS = 1
"""Eager calls that baselines cannot do without: what compiled code is held against."""
NUM_CERTIFIED_CALLS = 6
"""Those that the certificate adds at full size: the first, another draw, two repeats, the
inputs' means, other weights. Calls at smaller sizes and in float64 count as no necessity."""


def final_attempts(attempts: Iterable[Attempt]) -> dict[str, Attempt]:
    """Return for each measured key the attempt that decides; the last where none does."""
    by_key: dict[str, list[Attempt]] = {}
    for attempt in attempts:
        if attempt.job == "measure":
            by_key.setdefault(attempt.key, []).append(attempt)
    decided = {key: settle(tries) for key, tries in by_key.items()}
    return {
        key: settled.attempt if settled is not None else by_key[key][-1]
        for key, settled in decided.items()
    }


def why_failed(attempt: Attempt) -> str | None:
    """Return why an attempt counts as no measurement; None if it is one."""
    if attempt.fault is not None:
        return f"{attempt.fault.reason}: {attempt.fault.detail}"
    evidence = attempt.evidence
    if not isinstance(evidence, MeasureEvidence):
        return "no evidence of a measurement"
    if evidence.failure is not None:
        failure = evidence.failure
        return f"{failure.stage}: {failure.kind}: {failure.message.partition(chr(10))[0]}"
    if evidence.num_graphs != 1:
        return f"{evidence.num_graphs} graphs"
    if evidence.compile_margin is None or not evidence.compile_margin <= 1.0:
        return f"compiled differs: margin {evidence.compile_margin}"
    if {"eager", "compile"} - {timing.mode for timing in evidence.timings}:
        return "a mode was not timed"
    return None


def split_outcomes(
    attempts: Iterable[Attempt],
) -> tuple[dict[str, MeasureEvidence], dict[str, str]]:
    """Return by key the evidence of what was measured, and why the rest was not."""
    measured: dict[str, MeasureEvidence] = {}
    failed: dict[str, str] = {}
    for key, attempt in final_attempts(attempts).items():
        why = why_failed(attempt)
        if why is None and isinstance(attempt.evidence, MeasureEvidence):
            measured[key] = attempt.evidence
        else:
            failed[key] = why or "no evidence"
    return measured, failed


def per_minute(num: int, wall_s: float) -> float | None:
    """Return a rate; None if no time has passed."""
    return 60.0 * num / wall_s if wall_s > 0 else None


def held_s(attempts: Iterable[Attempt]) -> float:
    """Return seconds that devices were held, by attempts of any job and any outcome.

    The supervisor and the child count the same holds; only the supervisor counts those of
    killed children, and only the child those that were too short to be announced.
    """
    total_s = 0.0
    for attempt in attempts:
        lease = attempt.evidence.lease if isinstance(attempt.evidence, MeasureEvidence) else None
        total_s += max(attempt.hold_s, lease.hold_s if lease else 0.0)
    return total_s


def hold_of(evidence: MeasureEvidence) -> float:
    """Return seconds for which a measurement held the device."""
    return evidence.lease.hold_s if evidence.lease else 0.0


def necessary_s(evidence: MeasureEvidence, *, is_certified: bool) -> float:
    """Return seconds of the device that a measurement cannot do without.

    Each timed and warming call at its mode's median; the eager calls that compiled code, and
    with a certificate its checks, need; and autotuning as it took, the first compiled call
    within it. Where there was no autotuning that call counts at its median.
    """
    timings = {timing.mode: timing for timing in evidence.timings}
    total_ms = sum(_timed_ms(timing) for timing in timings.values())
    num_eager = NUM_EAGER_CALLS + (NUM_CERTIFIED_CALLS if is_certified else 0)
    total_ms += num_eager * timings["eager"].median_ms
    tuning_s = part_s(evidence, AUTOTUNE)
    first_s = tuning_s or timings["compile"].median_ms / 1e3
    return total_ms / 1e3 + first_s


def _timed_ms(timing: Timing) -> float:
    return (timing.num_warmup + len(timing.samples_ms)) * timing.median_ms


def part_s(evidence: MeasureEvidence, part: str) -> float:
    """Return seconds held for one part; 0 if it took none."""
    return evidence.lease.parts_s.get(part, 0.0) if evidence.lease else 0.0


def parts_ms(measured: Iterable[MeasureEvidence]) -> dict[str, tuple[float, float]]:
    """Return mean and median milliseconds a task of each part of a hold, the largest first.

    What is left between parts is a part of its own, and a task without a part counts as 0.
    """
    rows = []
    for evidence in measured:
        parts = dict(evidence.lease.parts_s) if evidence.lease else {}
        parts[BETWEEN] = hold_of(evidence) - sum(parts.values())
        rows.append(parts)
    names = {name for row in rows for name in row}
    table = {}
    for name in names:
        spent_ms = [1e3 * row.get(name, 0.0) for row in rows]
        table[name] = (mean(spent_ms), median(spent_ms))
    return dict(sorted(table.items(), key=lambda each: -each[1][0]))


def outside_s(attempt: Attempt) -> float | None:
    """Return seconds of a child that were neither spent waiting for the device nor holding it."""
    evidence = attempt.evidence
    if not isinstance(evidence, MeasureEvidence) or evidence.lease is None:
        return None
    return attempt.wall_s - evidence.lease.wait_s - evidence.lease.hold_s


def medians_of(evidence: MeasureEvidence) -> dict[str, float]:
    """Return the median of each mode."""
    return {timing.mode: timing.median_ms for timing in evidence.timings}


def relative_difference(left: float, right: float) -> float:
    """Return the distance of two times as a share of the mean of both."""
    return abs(left - right) / ((left + right) / 2)


def differences(
    left: Mapping[str, MeasureEvidence], right: Mapping[str, MeasureEvidence], mode: str
) -> tuple[list[Difference], list[Difference]]:
    """Return relative differences of medians over common tasks, with the tasks, in order.

    First of pairs that autotuning gave the same picks, then of the others. Eager code has no
    picks, so all its pairs are of the first kind.
    """
    same: list[Difference] = []
    other: list[Difference] = []
    for key in left.keys() & right.keys():
        ours, theirs = medians_of(left[key]), medians_of(right[key])
        is_same = mode == "eager" or left[key].picks == right[key].picks
        found = (relative_difference(ours[mode], theirs[mode]), key)
        (same if is_same else other).append(found)
    return sorted(same), sorted(other)


def count_picks(
    left: Mapping[str, MeasureEvidence], right: Mapping[str, MeasureEvidence]
) -> tuple[int, int]:
    """Return how many common tasks have picks, and how many of them the same in both runs."""
    pairs = [(left[key].picks, right[key].picks) for key in left.keys() & right.keys()]
    with_picks = [pair for pair in pairs if any(pair)]
    return len(with_picks), sum(ours == theirs for ours, theirs in with_picks)


def ratios(
    left: Mapping[str, MeasureEvidence], right: Mapping[str, MeasureEvidence], mode: str
) -> list[float]:
    """Return time in `left` over time in `right` for every common task."""
    common = sorted(left.keys() & right.keys())
    return [medians_of(left[key])[mode] / medians_of(right[key])[mode] for key in common]


def percentile(values: Sequence[float], percent: int) -> float | None:
    """Return a percentile between the values around it; None of none."""
    if len(values) < 2:
        return values[0] if values else None
    return quantiles(values, n=100, method="inclusive")[percent - 1]


def middle(values: Sequence[float]) -> float | None:
    """Return the median; None of none."""
    return median(values) if values else None


def average(values: Sequence[float]) -> float | None:
    """Return the mean; None of none."""
    return mean(values) if values else None


def summarize_states(measured: Iterable[MeasureEvidence]) -> StateSummary:
    """Return how the device was over a run."""
    states = [evidence.state for evidence in measured if evidence.state is not None]
    return StateSummary(
        num=len(states),
        sm_mhz=_spread([state.sm_mhz for state in states]),
        temperature_c=_spread([state.temperature_c for state in states]),
        throttle=dict(Counter(reason for state in states for reason in state.throttle)),
    )


def _spread(values: Sequence[int | None]) -> tuple[float, float, float] | None:
    there = [float(value) for value in values if value is not None]
    return (min(there), median(there), max(there)) if there else None
