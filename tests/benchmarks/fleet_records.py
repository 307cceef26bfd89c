"""What the fleet's benchmark keeps: notes of its runs, times taken alone, rows of its table."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

import msgspec

from opsgen.records import Environment, Record, Task, decode_line, encode_line

REPORT = "fleet.json"
TASKS = "tasks"
WARM = "warm"

T = TypeVar("T")


class RunNote(Record, frozen=True, kw_only=True):
    """One run of the benchmark: how it was set up and how long it took."""

    name: str
    """Its name; its lines stand in `<name>.jsonl.gz`."""
    part: str
    """The part that it belongs to."""
    date: str
    """When it ended, UTC."""
    host: str
    """Which machine ran it, as a digest."""
    environment: Environment
    """Device and software."""
    num_gpus: int
    """GPUs that it used; 1 for a CPU."""
    children: int
    """Child processes on each; 0 for a single process without a fleet."""
    num_requests: int
    """What was asked for, warming not counted."""
    is_certified: bool = False
    """All criteria were looked at, not the baselines alone."""
    setting: str = ""
    """What is off or otherwise than usual; empty for nothing."""
    start_s: float
    """Seconds from nothing to warm children: start, and the warming tasks."""
    wall_s: float
    """Seconds from there to the last attempt."""


class Times(Record, frozen=True, kw_only=True):
    """One mode of a task timed alone."""

    mean_ms: float
    """Mean of the trials, which is what KernelBench publishes."""
    median_ms: float
    """Their median."""
    samples_ms: tuple[float, ...]
    """All of them, in order."""
    queued_ms: float | None = None
    """Median of further trials whose calls were queued whole before the device came to them, so
    that their launches do not count; absent on a CPU."""


class Solo(Record, frozen=True, kw_only=True):
    """One task under the sequential protocol."""

    task_id: str
    """The task."""
    wall_s: float
    """Seconds for all of it, both modes."""
    times: dict[str, Times] = msgspec.field(default_factory=dict)
    """By mode; empty where it failed."""
    failure: str | None = None
    """What it raised; absent where it ran."""


class Gated(Record, frozen=True, kw_only=True):
    """One task compiled twice, behind the gate and plainly, and timed interleaved."""

    task_id: str
    """The task."""
    gated_ms: float | None = None
    """Median of the code behind the gate; absent where the task failed."""
    plain_ms: float | None = None
    """Median of what plain `torch.compile` gives."""
    failure: str | None = None
    """What it raised; absent where it ran."""


class Alone(Record, frozen=True, kw_only=True):
    """What a process without a fleet brings back."""

    environment: Environment
    """Where it ran."""
    start_s: float
    """Seconds that its warming task took."""
    wall_s: float
    """Seconds from there to the end."""
    solos: tuple[Solo, ...] = ()
    """Of the sequential protocol."""
    gates: tuple[Gated, ...] = ()
    """Of the comparison of gates."""


class Row(Record, frozen=True, kw_only=True):
    """One row of the table."""

    part: str
    """What was run."""
    name: str
    """What the figure is."""
    figure: float | None
    """It; absent where there was nothing to take it from."""
    unit: str = ""
    """Its unit."""
    bound: str = ""
    """What it is held against; empty where nothing is asked of it."""
    verdict: str = ""
    """`holds`, or by how much it is short; empty without a bound."""
    note: str = ""
    """What else must be known to read it."""


class StateSummary(Record, frozen=True, kw_only=True):
    """How the device was over a run, read right after each task was timed."""

    num: int
    """Readings."""
    sm_mhz: tuple[float, float, float] | None = None
    """Least, median and greatest clock of the multiprocessors."""
    temperature_c: tuple[float, float, float] | None = None
    """Least, median and greatest temperature."""
    throttle: dict[str, int] = msgspec.field(default_factory=dict)
    """How often each reason for lowered clocks was there."""


class Report(Record, frozen=True, kw_only=True):
    """What the benchmark writes."""

    date: str
    """When it was written, UTC."""
    command: str
    """The command that wrote it, but for where to."""
    runs: dict[str, RunNote]
    """By name; with date, environment and durations of each."""
    rows: tuple[Row, ...] = ()
    """The table."""
    failures: dict[str, dict[str, str]] = msgspec.field(default_factory=dict)
    """By run: tasks that count as failed, and why."""
    states: dict[str, StateSummary] = msgspec.field(default_factory=dict)
    """The device during each run."""
    parts_ms: dict[str, dict[str, tuple[float, float]]] = msgspec.field(default_factory=dict)
    """By run and part of a hold: mean and median milliseconds a task."""
    largest: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    """By run: the three largest parts of a hold."""


class Store:
    """The folder that a benchmark is kept in, read back when it goes on.

    Args:
        folder: Where; made if it is missing.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        path = folder / REPORT
        self.runs: dict[str, RunNote] = (
            decode_line(path.read_bytes(), Report).runs if path.exists() else {}
        )

    def has_tasks(self) -> bool:
        """The tasks were sampled before."""
        return self._path(TASKS).exists() and self._path(WARM).exists()

    def tasks(self, name: str = TASKS) -> list[Task]:
        """Return the tasks of all parts, or those that only warm children."""
        return self.lines(name, Task)

    def lines(self, name: str, kind: type[T]) -> list[T]:
        """Return what a run left."""
        with gzip.open(self._path(name), "rb") as file:
            return [decode_line(line, kind) for line in file]

    def write_lines(self, name: str, records: Iterable[Record]) -> None:
        """Write what a run leaves; whole or not at all."""
        lines = b"".join(encode_line(record) + b"\n" for record in records)
        # No time in the header: the same lines are the same bytes.
        self._write(self._path(name), gzip.compress(lines, mtime=0))

    def add(self, note: RunNote) -> None:
        """Take note of a run whose lines are written."""
        self.runs[note.name] = note

    def write_report(self, report: Report) -> None:
        """Write the report, readable by people too."""
        self._write(self.folder / REPORT, msgspec.json.format(encode_line(report), indent=1))

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.jsonl.gz"

    def _write(self, path: Path, content: bytes) -> None:
        part = path.with_name(f"{path.name}.part-{os.getpid()}")
        part.write_bytes(content)
        part.replace(path)
