"""How well two timings of the same tasks agree, mode by mode. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median, quantiles

from opsgen.records import MAX_DRIFT, MeasureEvidence, Record

Pair = tuple[MeasureEvidence, MeasureEvidence]
"""The first and the second timing of one task."""


class ModeAgreement(Record, frozen=True, kw_only=True):
    """How the medians of one mode agree, relative to the first ones."""

    num_pairs: int
    """Tasks that were timed twice in this mode."""
    median: float
    """Median of the relative differences, without their signs."""
    p95: float
    """Their 95th percentile."""
    largest: float
    """The largest of them."""
    shift: float
    """Median of the differences with their signs: above 0 where the second times are longer."""
    share_beyond: float
    """Share of the pairs that differ by more than 3 %."""


class Agreement(Record, frozen=True, kw_only=True):
    """How two timings of the same tasks agree."""

    num_tasks: int
    """Tasks that were timed twice."""
    modes: dict[str, ModeAgreement]
    """By mode; `compile` of the tasks for which autotuning chose the same both times."""
    other_picks: dict[str, ModeAgreement]
    """`compile` of the tasks for which it did not."""

    @property
    def complaint(self) -> str | None:
        """One line about the mode that drifted most, if one did beyond 3 % in the median."""
        if not self.modes:
            return None
        mode, worst = max(self.modes.items(), key=lambda item: item[1].median)
        if worst.median <= MAX_DRIFT:
            return None
        plural = "" if worst.num_pairs == 1 else "s"
        return (
            f"times drift: {mode} of {worst.num_pairs} task{plural} timed again differs by "
            f"{worst.median:.1%} in the median ({worst.shift:+.1%}), {MAX_DRIFT:.0%} is the limit"
        )


def compare_timings(pairs: Iterable[Pair]) -> Agreement:
    """Compare the medians of both timings of each task, in the modes that both have."""
    same: dict[str, list[float]] = {}
    other: dict[str, list[float]] = {}
    num_tasks = 0
    for first, second in pairs:
        again = {timing.mode: timing.median_ms for timing in second.timings}
        num_tasks += 1
        for timing in first.timings:
            if timing.mode not in again or not timing.median_ms > 0.0:
                continue
            # Picks are those of this mode alone.
            is_picked = timing.mode == "compile" and first.picks != second.picks
            differences = (other if is_picked else same).setdefault(timing.mode, [])
            differences.append(again[timing.mode] / timing.median_ms - 1.0)
    return Agreement(
        num_tasks=num_tasks,
        modes={mode: _agreement(values) for mode, values in same.items()},
        other_picks={mode: _agreement(values) for mode, values in other.items()},
    )


def _agreement(differences: Sequence[float]) -> ModeAgreement:
    sizes = [abs(difference) for difference in differences]
    is_single = len(sizes) == 1
    return ModeAgreement(
        num_pairs=len(sizes),
        median=median(sizes),
        p95=sizes[0] if is_single else quantiles(sizes, n=20, method="inclusive")[-1],
        largest=max(sizes),
        shift=median(differences),
        share_beyond=sum(size > MAX_DRIFT for size in sizes) / len(sizes),
    )
