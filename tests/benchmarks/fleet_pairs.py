"""Rows that compare two runs of the fleet's benchmark: repeats, protocols, settings, gates."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from statistics import mean

import fleet_figures as figures
from fleet_records import Row, Solo
from fleet_rows import Found, at_least, at_most, noted, unbound

MIN_SPEEDUP = 15.0
MAX_REPEAT_PERCENT = {"eager": (0.3, 1.5), "compile": (0.3, 2.5)}
"""Median and 95th percentile of differences between two runs."""
MAX_SOLO_PERCENT = (1.0, 3.0)
"""The same against the sequential protocol."""
MIN_SECOND_GPU = 1.8
PAIRS = (("race", "full"), ("preload-on", "preload-off"), ("cores-on", "cores-off"))


def pair_rows(found: Found) -> Iterator[Row]:
    """Yield the rows of all pairs of which both runs are there."""
    yield from _speedup_rows(found)
    yield from _repeat_rows(found, "first", "second")
    yield from _against_solo_rows(found)
    yield from _two_rows(found)
    yield from _ablation_rows(found)
    yield from _gate_rows(found)


def solo_rate(solos: Iterable[Solo]) -> float | None:
    """Return tasks a minute of the sequential protocol, over the tasks that ran."""
    ran = [solo.wall_s for solo in solos if solo.failure is None]
    return figures.per_minute(len(ran), sum(ran))


def _speedup_rows(found: Found) -> Iterator[Row]:
    solo = solo_rate(found.solos)
    if solo is None:
        return
    for name, what in (("slice", "same tasks"), ("first", "all tasks")):
        if name in found.runs:
            rate = found.runs[name].rate
            speedup = None if rate is None else rate / solo
            row = at_least(name, f"rate / sequential rate, {what}", speedup, MIN_SPEEDUP, "x")
            yield noted(row, found.whether_one_host(name, "sequential"))


def _repeat_rows(found: Found, left: str, right: str) -> Iterator[Row]:
    if not {left, right} <= found.runs.keys():
        return
    part = f"{left}, {right}"
    warning = found.whether_one_host(left, right)
    ours, theirs = found.runs[left].measured, found.runs[right].measured
    for mode, (middle, tail) in MAX_REPEAT_PERCENT.items():
        same, other = figures.differences(ours, theirs, mode)
        for row in difference_rows(part, mode, same, (middle, tail)):
            yield noted(row, f"{len(same)} pairs", warning, row.note)
        if other:
            for row in difference_rows(part, f"{mode}, other picks", other, (1.0, 1.0)):
                yield noted(unbound(row), f"{len(other)} pairs", row.note)


def difference_rows(
    part: str, mode: str, found: list[figures.Difference], bounds: tuple[float, float]
) -> Iterator[Row]:
    """Yield median, 95th percentile and maximum of differences; the first two have bounds."""
    percents = [100 * value for value, _ in found]
    middle, tail = figures.middle(percents), figures.percentile(percents, 95)
    yield at_most(part, f"{mode}: difference, median", middle, bounds[0], "%")
    yield at_most(part, f"{mode}: difference, p95", tail, bounds[1], "%")
    greatest, task = max(found, default=(None, ""))
    greatest = None if greatest is None else 100 * greatest
    yield Row(part=part, name=f"{mode}: difference, max", figure=greatest, unit="%", note=task)


def _against_solo_rows(found: Found) -> Iterator[Row]:
    if "first" not in found.runs or not found.solos:
        return
    measured = found.runs["first"].measured
    warning = found.whether_one_host("first", "sequential")
    readings = (
        ("first, sequential", "", lambda times: times.median_ms),
        ("first, sequential queued", "launches do not count", lambda times: times.queued_ms),
    )
    for part, what, read in readings:
        for mode in MAX_REPEAT_PERCENT:
            solos = [
                (solo.task_id, read(solo.times[mode]))
                for solo in found.solos
                if solo.task_id in measured and mode in solo.times
            ]
            values = [
                (figures.relative_difference(figures.medians_of(measured[task])[mode], ms), task)
                for task, ms in solos
                if ms is not None
            ]
            for row in difference_rows(part, mode, values, MAX_SOLO_PERCENT) if values else ():
                yield noted(row, f"{len(values)} tasks", what, warning, row.note)


def _two_rows(found: Found) -> Iterator[Row]:
    if not {"first", "two"} <= found.runs.keys():
        note = found.why_not_two
        yield Row(part="two", name="rate / rate of one GPU", figure=None, note=note)
        return
    one, two = found.runs["first"].rate, found.runs["two"].rate
    ratio = two / one if one and two else None
    row = at_least("two", "rate / rate of one GPU", ratio, MIN_SECOND_GPU, "x")
    yield noted(row, found.whether_one_host("first", "two"))
    yield from _repeat_rows(found, "first", "two")


def _ablation_rows(found: Found) -> Iterator[Row]:
    names = [name for pair in PAIRS if set(pair) <= found.runs.keys() for name in pair]
    if "full-again" in found.runs:
        names.insert(names.index("full") + 1 if "full" in names else 0, "full-again")
    for name in names:
        run = found.runs[name]
        setting = run.note.setting or "everything on"
        note = f"{setting}; {len(run.measured)} of {run.note.num_requests} measured"
        yield Row(part=name, name="tasks a minute", figure=run.rate, unit="/min", note=note)
        if run.measured:
            hold_ms = 1e3 * run.hold_s / len(run.measured)
            tuning_ms = [
                1e3 * figures.part_s(each, figures.AUTOTUNE) for each in run.measured.values()
            ]
            note = f"of it autotuning {mean(tuning_ms):.1f} ms"
            yield Row(part=name, name="held a task", figure=hold_ms, unit="ms", note=note)
    yield from _picks_rows(found, "race", "full")
    yield from _picks_rows(found, "full", "full-again")


def _picks_rows(found: Found, left: str, right: str) -> Iterator[Row]:
    if not {left, right} <= found.runs.keys():
        return
    part = f"{left}, {right}"
    ours, theirs = found.runs[left].measured, found.runs[right].measured
    num, num_same = figures.count_picks(ours, theirs)
    share = 100 * num_same / num if num else None
    yield Row(
        part=part, name="same picks", figure=share, unit="%", note=f"of {num} tasks with picks"
    )
    found_ratios = figures.ratios(ours, theirs, "compile")
    yield Row(part=part, name="compile: ratio, median", figure=figures.middle(found_ratios))
    off = [100 * abs(ratio - 1) for ratio in found_ratios]
    for what, figure in (
        ("median", figures.middle(off)),
        ("p95", figures.percentile(off, 95)),
        ("max", max(off, default=None)),
    ):
        yield Row(part=part, name=f"compile: |ratio - 1|, {what}", figure=figure, unit="%")


def _gate_rows(found: Found) -> Iterator[Row]:
    if not found.gates:
        return
    ran = [
        each.gated_ms / each.plain_ms
        for each in found.gates
        if each.gated_ms is not None and each.plain_ms is not None
    ]
    note = f"{len(ran)} of {len(found.gates)} tasks"
    yield Row(
        part="gate", name="gated / plain, median", figure=figures.middle(ran), unit="x", note=note
    )
    off = max((100 * abs(ratio - 1) for ratio in ran), default=None)
    yield Row(part="gate", name="|gated / plain - 1|, max", figure=off, unit="%")
