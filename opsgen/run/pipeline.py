"""The whole way from a recipe to a release, in rounds, and a way into single stages."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

import msgspec

from opsgen.admit import Case, Funnel, funnel
from opsgen.errors import UsageError
from opsgen.fleet import Fleet
from opsgen.recipe import Recipe
from opsgen.records import PlanLine, Record, Verdict
from opsgen.run.folder import RunFolder
from opsgen.run.requests import table_paths
from opsgen.run.stages import Stages, check_machine
from opsgen.sampler import Plan, num_ops

# Rough costs behind `--dry-run`: seconds of one child for a candidate on a CPU, candidates a
# minute on one GPU, candidates for each admitted task, bytes that a candidate leaves on disk.
_CPU_S_PER_CANDIDATE = 4.0
_GPU_CANDIDATES_PER_MIN = 180.0  # on an H200 with 16 cores; see data/fleet
_CANDIDATES_PER_ADMITTED = 1.25
_DISK_BYTES_PER_CANDIDATE = 16_000


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run came to.

    Attributes:
        recipe: The recipe.
        folder: The run folder.
        release: The release folder.
        lines: All sampled lines.
        cases: All tasks with their evidence.
        verdicts: All verdicts.
        funnel: Their counts.
        num_faulted: Tasks that a fault of the machine or of opsgen deferred.
        wall_s: Seconds this call took.
    """

    recipe: Recipe
    folder: Path
    release: Path
    lines: list[PlanLine]
    cases: list[Case]
    verdicts: list[Verdict]
    funnel: Funnel
    num_faulted: int
    wall_s: float

    def to_plain(self) -> dict[str, Any]:
        """Return what scripts want of it."""
        return {
            "folder": str(self.folder),
            "release": str(self.release),
            "funnel": msgspec.to_builtins(self.funnel),
            "num_faulted": self.num_faulted,
            "wall_s": round(self.wall_s, 3),
        }


class RunEstimate(Record, frozen=True, kw_only=True):
    """What a run would take, roughly."""

    folder: str
    """Run folder."""
    num_wanted: int
    """Admitted tasks wanted."""
    num_candidates: int
    """Lines that will be sampled."""
    num_known: int
    """Lines sampled already."""
    device_minutes: float
    """Minutes of the measuring device."""
    disk_mb: float
    """Run folder's size, megabytes."""


def run_recipe(
    recipe: Recipe,
    runs: Path,
    *,
    scheduler: str | None = None,
    announce: Callable[[str], None] = lambda line: None,
) -> Outcome:
    """Sample, probe and measure in rounds until every class is full, then release.

    Args:
        recipe: The recipe.
        runs: Folder of all runs.
        scheduler: Address of a Dask scheduler; None starts a local cluster.
        announce: Gets a line at the beginning of each stage.

    Raises:
        UsageError: The recipe or this machine will not do; nothing is lost.
    """
    start_s = time.monotonic()
    _validate(recipe)
    folder = RunFolder.of(runs, recipe)
    with ExitStack() as stack:
        is_new = not folder.path.exists()
        if not is_new:
            # A busy folder is told of before a fleet is started for nothing.
            stack.enter_context(folder.locked())
        if is_new or not Stages(folder).is_complete():
            with _fleet(recipe, scheduler) as fleet:
                environment = check_machine(fleet, recipe.measure.device)
                announce(f"device     {environment.device_name}")
                announce(f"dashboard  {fleet.dashboard or 'none'}")
                if is_new:
                    # Only now: a machine that will not do leaves nothing behind.
                    stack.enter_context(folder.locked())
                _fill(Stages(folder, fleet), announce)
        return _finish(Stages(folder), start_s, announce)


def _fleet(recipe: Recipe, scheduler: str | None) -> Fleet:
    return Fleet(recipe.fleet, recipe.measure.device, scheduler, table_paths(recipe))


def _finish(stages: Stages, start_s: float, announce: Callable[[str], None]) -> Outcome:
    """Release, report and return what a full run came to."""
    folder, recipe = stages.folder, stages.recipe
    verdicts = stages.admit()
    release = stages.release(verdicts)
    cases = stages.cases()
    report = stages.report(verdicts)
    if report.drift:
        announce(report.drift)
    return Outcome(
        recipe=recipe,
        folder=folder.path,
        release=release,
        lines=stages.lines(),
        cases=cases,
        verdicts=verdicts,
        funnel=funnel(verdicts),
        num_faulted=report.num_faulted,
        wall_s=time.monotonic() - start_s,
    )


def _fill(stages: Stages, announce: Callable[[str], None]) -> None:
    announce(f"run        {stages.folder.path}")
    stages.sample()
    number = 1
    while True:
        announce(f"round {number}    {len(stages.tasks())} tasks sampled")
        stages.probe()
        stages.measure()
        if not stages.sample_more():
            return
        number += 1


@contextmanager
def open_stages(recipe: Recipe, runs: Path, *, is_new: bool = False) -> Iterator[Stages]:
    """Open a recipe's run folder for stages that need no fleet.

    Args:
        recipe: The recipe.
        runs: Folder of all runs.
        is_new: Whether the folder may be made.

    Raises:
        UsageError: The recipe will not do, nothing was sampled for it yet, or another process
            is at work in its folder.
    """
    _validate(recipe)
    folder = RunFolder.of(runs, recipe)
    if not is_new and not folder.lines():
        raise UsageError(
            f"{folder.path}: nothing is sampled for this recipe yet; begin with `opsgen sample`"
        )
    with folder.locked():
        yield Stages(folder)


@contextmanager
def open_fleet_stages(recipe: Recipe, runs: Path, scheduler: str | None = None) -> Iterator[Stages]:
    """Open a recipe's run folder with a fleet, for probing and measuring.

    Raises:
        UsageError: As `open_stages`.
    """
    with (
        open_stages(recipe, runs) as stages,
        _fleet(recipe, scheduler) as fleet,
    ):
        stages.fleet = fleet
        yield stages


def plan_run(recipe: Recipe, runs: Path) -> RunEstimate:
    """Return what a run would take, without starting anything.

    Raises:
        UsageError: The recipe will not do.
    """
    _validate(recipe)
    folder = RunFolder.of(runs, recipe)
    num_wanted = sum(recipe.release.want.values())
    num_candidates = ceil(num_wanted * _CANDIDATES_PER_ADMITTED)
    is_cpu = recipe.measure.device == "cpu"
    per_minute = (
        60.0 * recipe.fleet.children_per_device / _CPU_S_PER_CANDIDATE
        if is_cpu
        else _GPU_CANDIDATES_PER_MIN
    )
    return RunEstimate(
        folder=str(folder.path),
        num_wanted=num_wanted,
        num_candidates=num_candidates,
        num_known=len(folder.lines()),
        device_minutes=num_candidates / per_minute,
        disk_mb=num_candidates * _DISK_BYTES_PER_CANDIDATE / 1e6,
    )


def _validate(recipe: Recipe) -> None:
    """Refuse what the schema cannot: unknown classes, calibrations and dtypes."""
    for name in recipe.release.want:
        num_ops(name)
    Plan(recipe.seed, recipe.sample)
