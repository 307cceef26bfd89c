"""The file that a device's lease locks: what a process has of it, however many leases it has."""

from __future__ import annotations

import fcntl
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from opsgen.child.logbook import Logbook

if TYPE_CHECKING:
    from opsgen.child.lease import DeviceLease

_FLOCKS: dict[Path, Flock] = {}
_MUTEX = threading.Lock()


class Flock:
    """The process-wide state of one lease file.

    Attributes:
        path: The file.
        mutex: Guards `depth` and `holder`.
        depth: Holds within each other; 0 while this process has not got the device.
        holder: The lease that took it; None while none has.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.mutex = threading.Lock()
        self.depth = 0
        self.holder: DeviceLease | None = None
        self._descriptor: int | None = None
        self._logbook: Logbook | None = None
        # A forked process that does not exec would share the open file and keep
        # the lock alive; closing its copy does not unlock ours.
        os.register_at_fork(after_in_child=self._forget)

    def try_lock(self) -> bool:
        """Lock the file if it is free, and tell whether it was."""
        try:
            fcntl.flock(self.open(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def lock(self) -> None:
        """Wait until the file is free and lock it."""
        fcntl.flock(self.open(), fcntl.LOCK_EX)

    def unlock(self) -> None:
        """Give the file up."""
        fcntl.flock(self.open(), fcntl.LOCK_UN)

    def open(self) -> int:
        """Open the file if it is not open, and return its descriptor."""
        if self._descriptor is None:
            # Not for writing: a task has this descriptor too.
            flags = os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            self._descriptor = os.open(self.path, flags, 0o600)
        return self._descriptor

    def logbook(self) -> Logbook:
        """Return the logbook beside the file, mapped at the first call."""
        if self._logbook is None:
            self._logbook = Logbook(self.path.with_suffix(".logbook"))
        return self._logbook

    def _forget(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor = None
        self.depth = 0
        self.holder = None
        self.mutex = threading.Lock()


def flock_of(path: Path) -> Flock:
    """Return this process's one state of a lease file."""
    with _MUTEX:
        if path not in _FLOCKS:
            _FLOCKS[path] = Flock(path)
        return _FLOCKS[path]
