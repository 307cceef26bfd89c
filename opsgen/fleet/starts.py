"""What began and did not end: a job that takes host or driver down is caught by it.

Such a job leaves no attempt behind, so the journal alone would start it again
on every resume. Each start is a line of a file beside the journal, and so is
each end. One process writes, the one that writes the journal.

Whoever was in flight with a killer did not end either. A job that did not end
twice is a suspect: it runs when nothing else is left, with nothing beside it,
so a third time speaks against it alone.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from opsgen.records import Record, encode_line, end_of_whole_lines, read_lines

NUM_STARTS_OF_SUSPECT = 2
NUM_STARTS_OF_CRASH_LOOP = 3

_MAX_LINES = 10_000
_MIN_SYNC_INTERVAL_S = 0.05

JobKey = tuple[str, str]


class StartLine(Record, frozen=True, kw_only=True):
    """How often a job began without ending; a job's last line counts."""

    job: str
    """Tag of the request."""
    key: str
    """Whom the job is about."""
    num_starts: int
    """Starts since the job last came to an end, of whatever kind."""


class Starts:
    """The starts without an end, in memory and in a file that stays small.

    Args:
        path: The file; None to remember nothing.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._counts: dict[JobKey, int] = {}
        self._running: set[JobKey] = set()
        self._descriptor: int | None = None
        self._num_lines = 0
        self._is_synced = True
        self._synced_s = 0.0
        if path is not None:
            self._open(path)

    def count(self, place: JobKey) -> int:
        """Return how often a job began in vain."""
        return self._counts.get(place, 0)

    def begin(self, place: JobKey) -> None:
        """Note that a job begins; `sync` makes it last."""
        self._running.add(place)
        self._note(place, self.count(place) + 1)

    def end(self, place: JobKey) -> None:
        """Note that a job came to an end, good or bad: it is no crash loop."""
        self._running.discard(place)
        if place in self._counts:
            self._note(place, 0)

    def withdraw(self) -> None:
        """Note that what is running was given up in an orderly way, which is nobody's fault."""
        for place in list(self._running):
            self._running.discard(place)
            self._note(place, self.count(place) - 1)

    def sync(self) -> None:
        """Make the starts outlast the machine, at most every `_MIN_SYNC_INTERVAL_S`.

        Called before each wait and again during it: what ends sooner than a sync
        took no machine down.
        """
        if self._descriptor is None or self._is_synced:
            return
        if time.monotonic() - self._synced_s >= _MIN_SYNC_INTERVAL_S:
            os.fdatasync(self._descriptor)
            self._is_synced, self._synced_s = True, time.monotonic()

    def close(self) -> None:
        """Give up what is running and close the file; later calls change nothing on disk."""
        self.withdraw()
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _open(self, path: Path) -> None:
        path.touch()
        for line in read_lines(path, StartLine):
            self._set((line.job, line.key), line.num_starts)
        os.truncate(path, end_of_whole_lines(path))
        self._rewrite(path)

    def _note(self, place: JobKey, num_starts: int) -> None:
        self._set(place, num_starts)
        if self._descriptor is None or self._path is None:
            return
        if self._num_lines >= _MAX_LINES:
            self._rewrite(self._path)
            return
        os.write(self._descriptor, _line(place, num_starts))
        self._num_lines += 1
        self._is_synced = False

    def _set(self, place: JobKey, num_starts: int) -> None:
        if num_starts > 0:
            self._counts[place] = num_starts
        else:
            self._counts.pop(place, None)

    def _rewrite(self, path: Path) -> None:
        """Put only what counts in the file."""
        fresh = path.with_name(f".{path.name}.new")
        fresh.write_bytes(b"".join(_line(*item) for item in self._counts.items()))
        descriptor = os.open(fresh, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        os.fsync(descriptor)
        fresh.replace(path)
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor = descriptor
        self._num_lines = len(self._counts)


def _line(place: JobKey, num_starts: int) -> bytes:
    return encode_line(StartLine(job=place[0], key=place[1], num_starts=num_starts)) + b"\n"
