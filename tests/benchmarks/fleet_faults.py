"""Tasks that break devices, among good ones: what became of either.

The good ones run alone first and then, in the same fleet, with the others among
them. A canary says before and after whether the device is right.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType

import fleet_figures as figures
from fleet_pairs import MAX_REPEAT_PERCENT, difference_rows
from fleet_records import Row, RunNote
from fleet_rows import Found, Loaded, at_least, noted, unbound
from fleet_running import Bench, Setup, make_note, warm_fleet
from msgspec.structs import replace

from opsgen.records import Attempt, CanaryEvidence, CanaryRequest, Request

FAULTS = "faults"
ALONE = "faults-alone"
FAULTY_TASKS = Path(__file__).parents[1] / "unit" / "fleet" / "faulty_tasks.py"
FAULTY = "faulty:"
"""Stands before the name of a faulty task in a key."""
LEFT_OUT = frozenset({"long_sleep"})
"""Does as `hang` does, for as long."""
DEADLINES_S = {"build": 20.0, "eager": 10.0, "compile": 60.0, "time": 10.0}
CANARIES = ("before", "after")
NO_FAULT = "evidence"


def run_faults(bench: Bench) -> list[tuple[RunNote, list[Attempt]]]:
    """Run the good tasks alone, then with faulty ones among them.

    Raises:
        MeasureError: The fleet is gone, or nothing could be warmed.
    """
    alone, mixed = Setup(ALONE), Setup(FAULTS, setting="with faulty tasks among them")
    good = [(task.task_id, bench.request(task, alone)) for task in bench.tasks["gate"]]
    requests = list(mix(good, list(_faulty_requests(bench.device))))
    config = bench.config()
    config = replace(config, deadlines_s={**config.deadlines_s, **DEADLINES_S})
    before, after = ([(name, CanaryRequest(device=bench.device))] for name in CANARIES)
    with warm_fleet(alone, bench, config) as opened:
        undisturbed, alone_s = opened.run(good)
        first, _ = opened.run(before)
        attempts, mixed_s = opened.run(requests)
        last, _ = opened.run(after)
    return [
        (make_note(alone, FAULTS, bench, opened, (len(good), alone_s)), undisturbed),
        (
            make_note(mixed, FAULTS, bench, opened, (len(requests), mixed_s)),
            [*first, *attempts, *last],
        ),
    ]


def mix(
    good: list[tuple[str, Request]], faulty: list[tuple[str, Request]]
) -> Iterator[tuple[str, Request]]:
    """Yield good requests with the faulty ones spread evenly among them."""
    num_mixed = 0
    for place, request in enumerate(good, start=1):
        yield request
        while num_mixed < len(faulty) * place // len(good):
            yield faulty[num_mixed]
            num_mixed += 1


def _faulty_requests(device: str) -> Iterator[tuple[str, Request]]:
    tasks = _faulty_tasks()
    for name in tasks.FAULTY:
        if name not in LEFT_OUT:
            yield FAULTY + name, tasks.faulty_request(name, device)


def _faulty_tasks() -> ModuleType:
    name = FAULTY_TASKS.stem
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, FAULTY_TASKS)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module  # dataclasses look themselves up
        spec.loader.exec_module(module)
    return sys.modules[name]


def fault_rows(found: Found) -> Iterator[Row]:
    """Yield what became of faulty tasks, of their neighbours, and of the device."""
    if not {FAULTS, ALONE} <= found.runs.keys() or not FAULTY_TASKS.exists():
        return
    alone, mixed = found.runs[ALONE], found.runs[FAULTS]
    # On a CPU these tasks do nothing amiss.
    does_harm = mixed.note.environment.device == "cuda"
    expected = {
        FAULTY + name: (faulty.reason if does_harm else None) or NO_FAULT
        for name, faulty in _faulty_tasks().FAULTY.items()
    }
    yield from _reason_rows(mixed.attempts, expected)
    yield from _neighbour_rows(alone, mixed)
    yield from _canary_rows(mixed.attempts)


def _reason_rows(attempts: Iterable[Attempt], expected: dict[str, str]) -> Iterator[Row]:
    tries: dict[str, list[Attempt]] = {}
    for attempt in attempts:
        tries.setdefault(attempt.key, []).append(attempt)
    for key, attempt in figures.final_attempts(attempts).items():
        if key in expected:
            reason = NO_FAULT if attempt.fault is None else attempt.fault.reason
            pids = {each.pid for each in tries[key]}
            yield Row(
                part=FAULTS,
                name=f"{key.removeprefix(FAULTY)}: ends in",
                figure=None,
                bound=expected[key],
                verdict="holds" if reason == expected[key] else "differs",
                note=f"{reason}; {len(tries[key])} attempts in {len(pids)} processes",
            )


def _neighbour_rows(alone: Loaded, mixed: Loaded) -> Iterator[Row]:
    numbers = figures.final_attempts(mixed.attempts)
    good = [key for key in alone.measured if key in numbers]
    untouched = [key for key in good if key in mixed.measured and numbers[key].number == 0]
    share = 100 * len(untouched) / len(alone.measured) if alone.measured else None
    row = at_least(FAULTS, "neighbours measured at once", share, 100.0, "%")
    yield noted(row, f"of {len(alone.measured)} that were measured alone")
    for mode, bounds in MAX_REPEAT_PERCENT.items():
        same, _ = figures.differences(alone.measured, mixed.measured, mode)
        for row in difference_rows(FAULTS, mode, same, bounds):
            yield noted(unbound(row), f"{len(same)} neighbours, without and with", row.note)


def _canary_rows(attempts: Iterable[Attempt]) -> Iterator[Row]:
    for attempt in attempts:
        if attempt.key in CANARIES and attempt.job == "canary":
            canary = attempt.evidence
            is_right = isinstance(canary, CanaryEvidence) and canary.is_right
            yield Row(
                part=FAULTS,
                name=f"canary {attempt.key}",
                figure=canary.median_ms if isinstance(canary, CanaryEvidence) else None,
                unit="ms",
                bound="right",
                verdict="holds" if is_right else "differs",
                note="" if attempt.fault is None else attempt.fault.detail,
            )
