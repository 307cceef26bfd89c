"""The fleet runs of the benchmark: how each is set up, and one timed run of it.

A run starts a fleet of its own. Its children are warmed on tasks that are not
of the set before the clock starts; the clock stops at the last attempt.
Imports no torch, which workers would import with it.
"""

from __future__ import annotations

import contextlib
import os
import socket
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from fleet_figures import REPEAT_MARK
from fleet_records import RunNote
from msgspec.structs import replace

from opsgen.child import list_gpus
from opsgen.errors import MeasureError
from opsgen.fleet import Fleet, Journal
from opsgen.recipe import FleetConfig, Recipe
from opsgen.records import (
    Attempt,
    Environment,
    EnvironmentRequest,
    MeasureRequest,
    Request,
    Task,
    digest,
)
from opsgen.run.requests import slowest_first

MODES = ("eager", "compile")
WARM_PER_CHILD = 2
NUM_REPEATS = 5
NO_CACHES = {"TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"}
"""Repeats of a task in one child would find its code compiled and tuned."""


@dataclass(frozen=True, slots=True)
class Setup:
    """How a run of the fleet differs from the usual one.

    Attributes:
        name: The run's name.
        tasks: Which tasks: `all`, `slice` or `ablation`.
        is_certified: Look at all criteria.
        autotuning: As in requests.
        preload: As in requests.
        timing_cores: As in the recipe's section `fleet`; None for its default.
        num_gpus: Devices to use.
        num_repeats: How often every task is asked for.
        setting: What is otherwise than usual, in words.
    """

    name: str
    tasks: str = "all"
    is_certified: bool = False
    autotuning: str = "race"
    preload: bool = True
    timing_cores: int | None = None
    num_gpus: int = 1
    num_repeats: int = 1
    setting: str = ""


PARTS: dict[str, tuple[Setup, ...]] = {
    "slice": (
        Setup(
            "slice",
            tasks="slice",
            num_repeats=NUM_REPEATS,
            setting=f"each task {NUM_REPEATS} times, compilers' caches off",
        ),
    ),
    "first": (Setup("first"),),
    "second": (Setup("second"),),
    "certified": (Setup("certified", is_certified=True),),
    "autotuning": (
        Setup("race", tasks="ablation"),
        Setup("full", tasks="ablation", autotuning="full", setting="autotuning in full"),
        Setup("full-again", tasks="ablation", autotuning="full", setting="autotuning in full"),
    ),
    "preload": (
        Setup("preload-on", tasks="ablation"),
        Setup("preload-off", tasks="ablation", preload=False, setting="no preloading"),
    ),
    "cores": (
        Setup("cores-on", tasks="ablation"),
        Setup("cores-off", tasks="ablation", timing_cores=0, setting="no timing cores"),
    ),
    "two": (Setup("two", num_gpus=2, setting="two GPUs"),),
}
"""Parts that are runs of the fleet; those of one part go one right after the other."""


@dataclass(frozen=True, slots=True)
class Bench:
    """What all runs share.

    Attributes:
        recipe: Whose tasks they are.
        device: `cpu` or `cuda`.
        children: Child processes on each device.
        tasks: By what `Setup.tasks` names.
        warm: Tasks that are in none of them.
    """

    recipe: Recipe
    device: str
    children: int
    tasks: Mapping[str, list[Task]]
    warm: list[Task]

    def config(self, timing_cores: int | None = None) -> FleetConfig:
        """Return the recipe's fleet with this many children; nothing is timed twice."""
        fleet = replace(self.recipe.fleet, children_per_device=self.children, retimed=0.0)
        return fleet if timing_cores is None else replace(fleet, timing_cores=timing_cores)

    def request(self, task: Task, setup: Setup) -> MeasureRequest:
        """Return what is asked about a task."""
        return MeasureRequest(
            task=task,
            device=self.device,
            modes=MODES,
            max_s_per_mode=self.recipe.measure.max_s_per_mode,
            seed=self.recipe.seed,
            checks=setup.is_certified,
            autotuning=setup.autotuning,
            preload=setup.preload,
        )

    def warming(self, setup: Setup) -> Iterator[tuple[str, Request]]:
        """Yield requests that give every child something before the clock starts."""
        for number in range(WARM_PER_CHILD * self.children * setup.num_gpus):
            task = self.warm[number % len(self.warm)]
            yield f"warm{REPEAT_MARK}{number}", self.request(task, setup)


@dataclass(frozen=True, slots=True)
class Opened:
    """A fleet whose children are warm.

    Attributes:
        fleet: It.
        journal: What its runs are recorded in.
        environment: What its children run on.
        start_s: Seconds from nothing to here.
    """

    fleet: Fleet
    journal: Journal
    environment: Environment
    start_s: float

    def run(self, requests: Iterable[tuple[str, Request]]) -> tuple[list[Attempt], float]:
        """Do all requests; all attempts, without hosts' names, and the seconds to the last."""
        begin_s = last_s = time.monotonic()
        attempts = []
        for attempt in self.fleet.run(requests, self.journal):
            last_s = time.monotonic()
            attempts.append(msgspec.structs.replace(attempt, host=host_id()))
        return attempts, last_s - begin_s


@contextlib.contextmanager
def warm_fleet(setup: Setup, bench: Bench, config: FleetConfig) -> Iterator[Opened]:
    """Start a fleet and warm its children on a task or two each.

    Raises:
        MeasureError: Nothing could be warmed.
    """
    begin_s = time.monotonic()
    with (
        visible(bench.device, setup.num_gpus, NO_CACHES if setup.num_repeats > 1 else {}),
        Fleet(config, bench.device) as fleet,
        tempfile.TemporaryDirectory(prefix="opsgen-fleet-benchmark-") as folder,
        Journal(Path(folder) / "journal.jsonl") as journal,
    ):
        warmed = list(fleet.run(bench.warming(setup), journal))
        if not any(attempt.evidence for attempt in warmed):
            fault = next((each.fault for each in warmed if each.fault), None)
            raise MeasureError(f"{setup.name}: no child could be warmed: {fault}")
        environment = fleet.ask(EnvironmentRequest(device=bench.device))
        assert isinstance(environment, Environment)
        yield Opened(fleet, journal, environment, time.monotonic() - begin_s)


def run_setup(setup: Setup, part: str, bench: Bench) -> tuple[RunNote, list[Attempt]]:
    """Make one run; its note and all attempts but those that warmed children.

    Raises:
        MeasureError: The fleet is gone, or nothing could be warmed.
    """
    with warm_fleet(setup, bench, bench.config(setup.timing_cores)) as opened:
        requests = list(_requests(setup, bench))
        attempts, wall_s = opened.run(requests)
    note = make_note(setup, part, bench, opened, (len(requests), wall_s))
    return note, attempts


def make_note(
    setup: Setup, part: str, bench: Bench, opened: Opened, done: tuple[int, float]
) -> RunNote:
    """Return the note of a run; `done` are its requests and seconds."""
    return RunNote(
        name=setup.name,
        part=part,
        date=now(),
        host=host_id(),
        environment=opened.environment,
        num_gpus=setup.num_gpus,
        children=bench.children,
        num_requests=done[0],
        is_certified=setup.is_certified,
        setting=setup.setting,
        start_s=round(opened.start_s, 3),
        wall_s=round(done[1], 3),
    )


def _requests(setup: Setup, bench: Bench) -> Iterator[tuple[str, Request]]:
    for number in range(setup.num_repeats):
        for task in slowest_first(bench.tasks[setup.tasks]):
            mark = f"{REPEAT_MARK}{number}" if setup.num_repeats > 1 else ""
            yield task.task_id + mark, bench.request(task, setup)


def spread_evenly(tasks: Iterable[Task], num: int) -> list[Task]:
    """Return `num` tasks spread evenly over all, sorted by predicted time."""
    ordered = sorted(tasks, key=_predicted_ms)
    num = min(num, len(ordered))
    return [ordered[int((place + 0.5) * len(ordered) / num)] for place in range(num)]


def _predicted_ms(task: Task) -> float:
    assert task.estimate is not None
    return task.estimate.eager_ms


def cheapest(tasks: Iterable[Task], num: int) -> list[Task]:
    """Return the `num` tasks that are predicted to take the least time."""
    return sorted(tasks, key=_predicted_ms)[:num]


def host_id() -> str:
    """Return what tells this machine, since it was booted, from others; it names nobody."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    return digest(socket.gethostname(), boot.read_text() if boot.exists() else "")[:8]


def now() -> str:
    """Return the date and time, UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


@contextlib.contextmanager
def visible(device: str, num_gpus: int, more: Mapping[str, str]) -> Iterator[None]:
    """Let processes that start in the block see the first GPUs only, and what `more` says."""
    values = dict(more)
    if device == "cuda":
        values["CUDA_VISIBLE_DEVICES"] = ",".join(gpu.uuid for gpu in list_gpus()[:num_gpus])
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
