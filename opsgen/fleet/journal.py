"""The journal: one line per attempt, appended as soon as it is known.

The journal is the truth about a run and Dask's futures are disposable: whatever
dies, the lines written so far say what is left to do. One process writes.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from opsgen.errors import UsageError
from opsgen.fleet.starts import Starts
from opsgen.records import Attempt, encode_line, end_of_whole_lines, read_lines

MAX_UNSYNCED_S = 1.0


class Journal:
    """An append-only file of attempts, opened for writing.

    Attributes:
        starts: What began and did not end, in a file of its own beside the journal.

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
        self._file.truncate(end_of_whole_lines(path))
        self.starts = Starts(path.with_name(f"{path.stem}-started{path.suffix}"))

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
        return read_lines(self.path, Attempt)

    def close(self) -> None:
        """Make everything durable and let another process write."""
        if not self._file.closed:
            self._sync()
            self.starts.close()
            self._file.close()

    def _sync(self) -> None:
        os.fsync(self._file.fileno())
        self._synced_s = time.monotonic()
