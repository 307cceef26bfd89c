"""The table of the fleet's benchmark: every figure that its runs give, with its bound if it has one.

A figure whose runs are not there yet has no row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import fleet_figures as figures
from fleet_faults import FAULTS, FAULTY, fault_rows
from fleet_pairs import pair_rows, solo_rate
from fleet_records import Report, Row, StateSummary
from fleet_rows import Found, Loaded, at_least, at_most, noted, unbound

MIN_RATE = {"first": 150.0, "second": 150.0, "certified": 100.0}
MOONSHOT_RATE = 240.0
MIN_HELD_PERCENT = 95.0
MAX_HOLD_RATIO = 1.25
NUM_LARGEST = 3
NUM_SHOWN = 8
NUM_KEPT = 40
MAX_WHY = 200
BROKEN_DOWN = ("first", "certified")
RUN_ORDER = ("first", "second", "certified", "slice", "two")


def make_report(found: Found, date: str, command: str) -> Report:
    """Return everything that is worth keeping beside the attempts."""
    parts_ms = {
        name: figures.parts_ms(run.measured.values())
        for name, run in found.runs.items()
        if run.measured
    }
    return Report(
        date=date,
        command=command,
        runs=found.notes,
        rows=tuple(_rows(found)),
        failures=_failures(found),
        states=states_of(found),
        parts_ms=parts_ms,
        largest={name: largest_parts(parts) for name, parts in parts_ms.items()},
    )


def _failures(found: Found) -> dict[str, dict[str, str]]:
    failed = {name: run.failed for name, run in found.runs.items()}
    failed["sequential"] = {each.task_id: each.failure for each in found.solos if each.failure}
    failed["gate"] = {each.task_id: each.failure for each in found.gates if each.failure}
    if FAULTS in failed:  # what has to fail there has rows of its own
        failed[FAULTS] = {
            key: why for key, why in failed[FAULTS].items() if not key.startswith(FAULTY)
        }
    return {name: _cut(why) for name, why in failed.items() if why}


def _cut(failed: dict[str, str]) -> dict[str, str]:
    """Return the first failures, shortened: the attempts hold all of them in full."""
    kept = {key: why[:MAX_WHY] for key, why in list(failed.items())[:NUM_KEPT]}
    num_left = len(failed) - len(kept)
    return kept | ({"further": f"{num_left} tasks"} if num_left else {})


def _rows(found: Found) -> Iterator[Row]:
    yield from _solo_rows(found)
    for name in RUN_ORDER:
        if name in found.runs:
            yield from _run_rows(found.runs[name])
    yield from pair_rows(found)
    yield from fault_rows(found)
    for name in BROKEN_DOWN:
        if name in found.runs:
            yield from _part_rows(found.runs[name])
    yield from _state_rows(found)


def _solo_rows(found: Found) -> Iterator[Row]:
    ran = [solo for solo in found.solos if solo.failure is None]
    if not found.solos:
        return
    yield Row(
        part="sequential",
        name="tasks a minute",
        figure=solo_rate(found.solos),
        unit="/min",
        note=f"{len(ran)} of {len(found.solos)} tasks",
    )
    wall_s = figures.average([solo.wall_s for solo in ran])
    yield Row(part="sequential", name="wall a task", figure=wall_s, unit="s")


def _run_rows(run: Loaded) -> Iterator[Row]:
    note, name = run.note, run.note.name
    asked = f"{len(run.measured)} of {note.num_requests} measured"
    if name in MIN_RATE:
        row = at_least(name, "tasks a minute", run.rate, MIN_RATE[name], "/min")
        yield noted(row, asked, f"{(run.rate or 0.0) / MOONSHOT_RATE:.0%} of the moonshot")
    else:
        row = Row(part=name, name="tasks a minute", figure=run.rate, unit="/min")
        yield noted(row, asked, note.setting)
    with_start = figures.per_minute(len(run.measured), note.start_s + note.wall_s)
    yield Row(part=name, name="the same with the start", figure=with_start, unit="/min")
    yield Row(part=name, name="start and warming", figure=note.start_s, unit="s")
    if not run.measured:
        return
    held = figures.held_s(run.attempts) / (note.wall_s * note.num_gpus)
    holds = [
        at_least(name, "device held, of the wall", 100 * held, MIN_HELD_PERCENT, "%"),
        at_most(name, "held / necessary", _hold_ratio(run), MAX_HOLD_RATIO, "x"),
    ]
    # Repeats of a few tasks are too short a run to judge how busy the device is kept.
    yield from holds if name != "slice" else [unbound(row) for row in holds]
    yield from _effort_rows(run)


def _effort_rows(run: Loaded) -> Iterator[Row]:
    name = run.note.name
    yield Row(
        part=name,
        name="held a task",
        figure=1e3 * run.hold_s / len(run.measured),
        unit="ms",
        note=f"necessary {1e3 * _necessary_s(run) / len(run.measured):.1f} ms",
    )
    attempts = figures.final_attempts(run.attempts).values()
    outside = [spent for each in attempts if (spent := figures.outside_s(each)) is not None]
    compiling = [each.compile_s for each in run.measured.values() if each.compile_s is not None]
    for what, spent_s in (("child outside the lease", outside), ("compile", compiling)):
        median_s = figures.middle(spent_s)
        yield Row(
            part=name,
            name=f"{what}, a task",
            figure=figures.average(spent_s),
            unit="s",
            note="" if median_s is None else f"median {median_s:.2f} s",
        )


def _necessary_s(run: Loaded) -> float:
    is_certified = run.note.is_certified
    return sum(
        figures.necessary_s(each, is_certified=is_certified) for each in run.measured.values()
    )


def _hold_ratio(run: Loaded) -> float | None:
    necessary_s = _necessary_s(run)
    return run.hold_s / necessary_s if necessary_s else None


def _part_rows(run: Loaded) -> Iterator[Row]:
    for part, (mean_ms, median_ms) in figures.parts_ms(run.measured.values()).items():
        note = f"median {median_ms:.1f} ms"
        yield Row(part=run.note.name, name=f"held for {part}", figure=mean_ms, unit="ms", note=note)


def _state_rows(found: Found) -> Iterator[Row]:
    for name, state in states_of(found).items():
        spreads = (("clock", state.sm_mhz, "MHz"), ("temperature", state.temperature_c, "C"))
        for what, spread, unit in spreads:
            if spread is not None:
                note = f"{spread[0]:g} to {spread[2]:g} in {state.num} readings"
                if what == "clock" and state.throttle:
                    reasons = (f"{reason} {num}" for reason, num in state.throttle.items())
                    note += f"; lowered: {', '.join(reasons)}"
                yield Row(part=name, name=f"{what}, median", figure=spread[1], unit=unit, note=note)


def states_of(found: Found) -> dict[str, StateSummary]:
    """Return how the device was during each run that read it."""
    states = {
        name: figures.summarize_states(run.measured.values()) for name, run in found.runs.items()
    }
    return {name: state for name, state in states.items() if state.num}


def largest_parts(parts_ms: Mapping[str, tuple[float, float]]) -> tuple[str, ...]:
    """Return the largest parts of a hold, each with its mean and its share."""
    whole = sum(spent for spent, _ in parts_ms.values())
    ordered = sorted(parts_ms.items(), key=lambda each: -each[1][0])[:NUM_LARGEST]
    return tuple(
        f"{name} {spent:.1f} ms ({spent / whole:.0%})" for name, (spent, _) in ordered if whole
    )


def print_report(report: Report) -> None:
    """Print the table, what failed, and where holds went."""
    print(f"{'part':18} {'figure':38} {'':>10} {'':6} {'bound':9} {'':16}")
    for row in report.rows:
        value = "-" if row.figure is None else f"{row.figure:.4g}"
        line = f"{row.part:18} {row.name:38} {value:>10} {row.unit:6} {row.bound:9} "
        print(f"{line}{row.verdict:16} {row.note}".rstrip())
    for name, failed in report.failures.items():
        for key, why in list(failed.items())[:NUM_SHOWN]:
            print(f"failed in {name}: {key}: {why}")
        if len(failed) > NUM_SHOWN:
            print(f"failed in {name}: and {len(failed) - NUM_SHOWN} more")
    for name in BROKEN_DOWN:
        if name in report.largest:
            print(f"largest parts of a hold in {name}: {', '.join(report.largest[name])}")
