"""The journal: one line per attempt, appended as soon as it is known.

The journal is the truth about a run and Dask's futures are disposable: whatever
dies, the lines written so far say what is left to do. One process writes. A
line without its line break was torn by a crash; it is ignored, and cut off
before anything is appended.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

import msgspec

from opsgen.errors import UsageError
from opsgen.records import Attempt, decode_line, encode_line

MAX_UNSYNCED_S = 1.0
_BLOCK_BYTES = 1 << 16


class Journal:
    """An append-only file of attempts, opened for writing.

    Raises:
        UsageError: Another process is writing to it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab", buffering=0)
        self._synced_s = time.monotonic()
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.close()
            raise UsageError(f"{path}: another run is writing to this journal") from None
        self._file.truncate(_end_of_whole_lines(path))

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def append(self, attempt: Attempt) -> None:
        """Write one line; it survives this process at once, and the machine within a second."""
        line = memoryview(encode_line(attempt) + b"\n")
        while line:
            line = line[self._file.write(line) :]
        if time.monotonic() - self._synced_s >= MAX_UNSYNCED_S:
            self._sync()

    def attempts(self) -> Iterator[Attempt]:
        """Read all whole lines, one at a time."""
        return load_attempts(self.path)

    def close(self) -> None:
        """Make everything durable and let another process write."""
        if not self._file.closed:
            self._sync()
            self._file.close()

    def _sync(self) -> None:
        os.fsync(self._file.fileno())
        self._synced_s = time.monotonic()


def load_attempts(path: Path) -> Iterator[Attempt]:
    """Read a journal without writing to it, also while a run is going on.

    Raises:
        UsageError: A line that is whole is no attempt: the file is damaged.
    """
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.endswith(b"\n"):
                return
            try:
                yield decode_line(line, Attempt)
            except (msgspec.ValidationError, ValueError) as error:
                raise UsageError(f"{path}: line {number} is no attempt: {error}") from error


def _end_of_whole_lines(path: Path) -> int:
    """Return the offset behind the last line break."""
    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        while end > 0:
            start = max(0, end - _BLOCK_BYTES)
            file.seek(start)
            found = file.read(end - start).rfind(b"\n")
            if found >= 0:
                return start + found + 1
            end = start
    return 0
