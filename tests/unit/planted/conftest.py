"""Runs planted tasks the real way: the jobs in this process, then `admit_all`."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from opsgen.admit import Case, admit_all
from opsgen.child.context import LocalContext
from opsgen.jobs import measure, probe
from opsgen.recipe import Recipe, convert_recipe
from opsgen.records import (
    MeasureEvidence,
    MeasureRequest,
    ProbeEvidence,
    ProbeRequest,
    Verdict,
)
from opsgen.source import foreign_task

SEED = 20
BENCHMARKS = ("kernelbench",)


@pytest.fixture(scope="session")
def recipe() -> Recipe:
    """Return thresholds as they ship, but for the clock: tasks here are as small as a CPU is slow."""
    return convert_recipe(
        {
            "name": "planted",
            "seed": SEED,
            "admit": {"runtime_window_ms": [1e-6, 1e5], "launch_floor_ratio": 1e-6},
            "release": {"want": {"foreign": 1}},
        },
        "a test",
    )


@pytest.fixture(scope="session")
def context(tmp_path_factory) -> LocalContext:
    return LocalContext("cpu", "cpu", tmp_path_factory.mktemp("lease"))


@pytest.fixture(scope="session")
def probed(context) -> Callable[[str], ProbeEvidence]:
    """Return a function from source to what the probe sees; each source is probed once."""

    @functools.cache
    def look(code: str) -> ProbeEvidence:
        task = foreign_task(code, origin="planted")
        request = ProbeRequest(task=task, benchmarks=BENCHMARKS, seed=SEED)
        return probe.run(request, context)

    return look


@pytest.fixture(scope="session")
def measured(context) -> Callable[..., MeasureEvidence]:
    """Return a function from source, and modes, to what the CPU measures."""

    @functools.cache
    def look(code: str, modes: tuple[str, ...] = ("eager",)) -> MeasureEvidence:
        task = foreign_task(code, origin="planted")
        request = MeasureRequest(
            task=task, device="cpu", modes=modes, max_s_per_mode=0.01, seed=SEED
        )
        return measure.run(request, context)

    return look


@pytest.fixture(scope="session")
def judged(recipe) -> Callable[..., Verdict]:
    """Return a function from source and evidence to the verdict on a set of this task alone."""

    def look(
        code: str, probe: ProbeEvidence, measure: MeasureEvidence | None = None, **admit: object
    ) -> Verdict:
        task = foreign_task(code, origin="planted")
        asked = replace(recipe, admit=replace(recipe.admit, **admit))
        (verdict,) = admit_all([Case(task=task, probe=probe, measure=measure)], asked)
        return verdict

    return look
