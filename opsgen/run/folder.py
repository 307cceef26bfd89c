"""The run folder: what a seed and a recipe have brought so far, on disk.

Its name holds a hash of all that determines evidence, so that running again
resumes and a changed recipe starts afresh. Files only grow; a line torn by a
crash is cut off before anything is appended.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from opsgen.errors import UsageError
from opsgen.recipe import Recipe, read_recipe, write_recipe
from opsgen.records import (
    Attempt,
    Environment,
    PlanLine,
    Record,
    Verdict,
    decode_line,
    digest,
    encode_line,
    end_of_whole_lines,
    read_lines,
)
from opsgen.run.digest import run_digest


class Session(Record, frozen=True, kw_only=True):
    """One time that the measuring stage was at work, to its last attempt or the next session."""

    started_s: float
    """Start, seconds since the epoch."""
    num_devices: int
    """Devices that shared the work."""


class RunFolder:
    """One run's files.

    Args:
        path: The folder.
        recipe: The recipe, whose thresholds name the verdict file.
    """

    def __init__(self, path: Path, recipe: Recipe) -> None:
        self.path = path
        self.recipe = recipe

    @classmethod
    def of(cls, runs: Path, recipe: Recipe) -> RunFolder:
        """Return a recipe's folder among all runs, whether it is there or not."""
        return cls(runs / f"{recipe.name}-{run_digest(recipe)[:6]}", recipe)

    @classmethod
    def at(cls, path: Path) -> RunFolder:
        """Open the folder of an earlier run with the recipe that it began with.

        Raises:
            UsageError: Its recipe cannot be read.
        """
        return cls(path, read_recipe(path / "recipe.toml"))

    @property
    def journal_path(self) -> Path:
        """One line for each attempt."""
        return self.path / "journal.jsonl"

    @property
    def verdicts_path(self) -> Path:
        """Verdicts under the recipe's thresholds."""
        return self.path / f"verdicts-{digest(self.recipe.admit)[:4]}.jsonl"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Create the folder if need be and keep other processes out of it.

        Raises:
            UsageError: Another process works in it, or it cannot be written.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = os.open(self.path / ".lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise UsageError(f"{self.path}: cannot be written: {error.strerror}") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise UsageError(f"{self.path}: another opsgen process is at work in it") from None
        try:
            recipe = self.path / "recipe.toml"
            if not recipe.exists():
                _replace(recipe, write_recipe(self.recipe).encode())
            yield
        finally:
            os.close(lock)

    def lines(self) -> list[PlanLine]:
        """Return the sampled lines in the order of sampling."""
        return list(read_lines(self.path / "tasks.jsonl", PlanLine))

    def append_lines(self, lines: Iterable[PlanLine]) -> None:
        """Add sampled lines."""
        _append(self.path / "tasks.jsonl", lines)

    def sessions(self) -> list[Session]:
        """Return when measuring began, and on how many devices."""
        return list(read_lines(self.path / "sessions.jsonl", Session))

    def append_session(self, session: Session) -> None:
        """Note that measuring begins."""
        _append(self.path / "sessions.jsonl", [session])

    def attempts(self) -> list[Attempt]:
        """Return all attempts of the journal."""
        return list(read_lines(self.journal_path, Attempt))

    def verdicts(self) -> list[Verdict]:
        """Return the stored verdicts under the recipe's thresholds; empty if there are none."""
        return list(read_lines(self.verdicts_path, Verdict))

    def first_thresholds(self) -> Recipe:
        """Return the recipe that the run began with."""
        path = self.path / "recipe.toml"
        return read_recipe(path) if path.exists() else self.recipe

    def write_verdicts(self, verdicts: Iterable[Verdict]) -> None:
        """Store verdicts under the recipe's thresholds, in place of fewer made earlier."""
        _replace(self.verdicts_path, b"".join(encode_line(each) + b"\n" for each in verdicts))

    def environment(self) -> Environment | None:
        """Return the environment that this run's measurements belong to, if there are any."""
        path = self.path / "environment.json"
        return decode_line(path.read_bytes(), Environment) if path.exists() else None

    def settle_environment(self, environment: Environment) -> None:
        """Fix the run's environment at the first measurement.

        Raises:
            UsageError: The run was measured in another environment.
        """
        known = self.environment()
        if known is None:
            _replace(self.path / "environment.json", encode_line(environment))
        elif known != environment:
            raise UsageError(
                f"{self.path}: was measured on {describe(known)}; this is {describe(environment)}: "
                "measure in another --runs folder"
            )

    def write_report(self, report: bytes) -> None:
        """Store the newest report."""
        _replace(self.path / "report.json", report)


def describe(environment: Environment) -> str:
    """Return an environment in a few words."""
    device = environment.device_name
    return f"{device} with torch {environment.torch} ({digest(environment)[:6]})"


def _append(path: Path, records: Iterable[Record]) -> None:
    with path.open("ab") as file:
        file.truncate(end_of_whole_lines(path))
        for record in records:
            file.write(encode_line(record) + b"\n")
        file.flush()
        os.fsync(file.fileno())


def _replace(path: Path, data: bytes) -> None:
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_bytes(data)
    fresh.replace(path)
