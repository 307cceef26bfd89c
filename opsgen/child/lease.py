"""The one exclusive lease per physical device.

A `flock` on a local file named by the device. The kernel gives it up with the
process that holds it, however that process ends, and hands it to a waiter
within milliseconds; lock services with time-outs can be over-booked instead.
The file must lie on a local disk that everyone on the device shares.

Every so many holds, and after a holder that died in its hold, whoever takes the
device next and has a verifier checks it first. Nobody else need watch over it, and
a device that nobody uses is not disturbed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import re
import stat
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from opsgen.child.flock import flock_of
from opsgen.child.logbook import Logbook, Page, birth_of
from opsgen.child.nvml import list_pids
from opsgen.errors import MeasureError
from opsgen.records import Lease

CHECK_EVERY = 50
"""Holds between two checks of the device."""

CHECK_PART = "canary"
"""What the time of a check is charged to."""

MAX_WAIT_FOR_DEAD_S = 10.0
"""How long a driver may take to clear away a killed process. Then the device is stuck."""

_PAUSE_S = 0.02
_birth_of_own = functools.lru_cache(maxsize=1)(birth_of)


def default_directory() -> Path:
    """Return this user's folder of lease files, shared by all runs on this host.

    Raises:
        MeasureError: The folder belongs to someone else or is open to others.
    """
    path = Path(tempfile.gettempdir()) / f"opsgen-lease-{os.getuid()}"
    path.mkdir(mode=0o700, exist_ok=True)
    status = path.lstat()
    is_private = stat.S_ISDIR(status.st_mode) and not stat.S_IMODE(status.st_mode) & 0o022
    if status.st_uid != os.getuid() or not is_private:
        raise MeasureError(f"{path} must be a folder that only user {os.getuid()} can write to")
    return path


class DeviceLease:
    """Exclusive use of one device, re-entrant within a process.

    All leases of one process on one device are the same hold, so an inner
    `hold()` in a library hook neither waits nor counts. Threads of a process do
    not exclude each other.

    Args:
        device_id: A GPU's UUID, or `cpu`.
        directory: Where the lease files lie; by default `default_directory()`.
        on_wait: Called with True when a wait begins and with False when it ends;
            not called when the device is free.
        on_hold: Called with True when the device was taken and with False when it was
            left; not called for inner holds.

    Attributes:
        verifier: Checks the device at the beginning of a hold, and raises if it is not as
            it should be. Its argument is True after a holder that died in its hold or a
            check that failed, False when `CHECK_EVERY` holds have passed. Without one a
            check that is due is left to the next holder.
        on_check: Called with True when a check begins, and with False when it has passed.
        list_pids: Returns the processes on the device by its id; None if nobody can say.
    """

    def __init__(
        self,
        device_id: str,
        directory: Path | None = None,
        on_wait: Callable[[bool], None] | None = None,
        on_hold: Callable[[bool], None] | None = None,
    ) -> None:
        self.verifier: Callable[[bool], None] | None = None
        self.on_check: Callable[[bool], None] | None = None
        self.list_pids: Callable[[str], Collection[int] | None] = list_pids
        self.device_id = device_id
        name = re.sub(r"[^A-Za-z0-9_.-]", "_", device_id) + ".lock"
        self.path = ((directory or default_directory()) / name).resolve()
        self._on_wait = on_wait
        self._on_hold = on_hold
        self._flock = flock_of(self.path)
        self._since_s: float | None = None
        self._charged_s = 0.0
        self.reset_counters()

    @property
    def is_held(self) -> bool:
        """This process holds the device."""
        return self._flock.depth > 0

    @property
    def hold_s(self) -> float:
        """Seconds held through this object since the last reset, up to now if held."""
        now_s = time.monotonic()
        return self._hold_s + (now_s - self._since_s if self._since_s is not None else 0.0)

    @property
    def logbook(self) -> Logbook:
        """What holders leave for each other; to be read and written in a hold only."""
        return self._flock.logbook()

    def prepare(self) -> None:
        """Open the lease's files now instead of in the first hold."""
        self._flock.open()
        self._flock.logbook()

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Wait for the device and keep it until the block ends.

        Raises:
            MeasureError: A process that died is still on the device: try later, or elsewhere.
            Exception: What the verifier raises. The device is free again, and its check due.
        """
        is_outermost = self._enter()
        try:
            if is_outermost:
                self._begin()
            yield
        finally:
            self._leave()

    def charge(self, part: str) -> None:
        """Count what was held since the last charge, or since the hold began, as spent on `part`.

        Device work runs on behind the caller's back: wait for it first.
        """
        hold_s = self.hold_s
        self._parts_s[part] = self._parts_s.get(part, 0.0) + hold_s - self._charged_s
        self._charged_s = hold_s

    def usage(self) -> Lease:
        """Return the counters as a record."""
        return Lease(
            wait_s=self.wait_s,
            hold_s=self.hold_s,
            num_holds=self.num_holds,
            parts_s={part: round(spent_s, 6) for part, spent_s in self._parts_s.items()},
        )

    def reset_counters(self) -> None:
        """Start counting anew; a hold in progress counts from now."""
        self.wait_s = 0.0
        self.num_holds = 0
        self._hold_s = 0.0
        self._charged_s = 0.0
        self._parts_s: dict[str, float] = {}
        if self._since_s is not None:
            self._since_s = time.monotonic()

    def _enter(self) -> bool:
        """Take the device; return False if this process had it already."""
        with self._flock.mutex:
            is_outermost = self._flock.depth == 0
            if is_outermost:
                self._acquire()
                self._flock.holder = self
                self._since_s = time.monotonic()
                self._charged_s = self._hold_s
                self.num_holds += 1
            self._flock.depth += 1
            return is_outermost

    def _begin(self) -> None:
        """Do what comes before all use of the device in a hold."""
        if self._on_hold is not None:
            self._on_hold(True)
        page = self.logbook.read()
        if page.holder:
            with self._checking():
                self._wait_for_end_of(page)
        is_due = page.is_due or page.holder != 0
        own = os.getpid()
        page = dataclasses.replace(page, holder=own, birth=_birth_of_own(own), is_due=is_due)
        self.logbook.write(page)
        if self.verifier is not None and (is_due or page.num_holds >= CHECK_EVERY):
            # Due until it has passed, whatever becomes of it.
            self.logbook.write(dataclasses.replace(page, is_due=True))
            with self._checking():
                self.verifier(is_due)
            page = dataclasses.replace(self.logbook.read(), is_due=False, num_holds=0)
        self.logbook.write(dataclasses.replace(page, num_holds=page.num_holds + 1))

    @contextlib.contextmanager
    def _checking(self) -> Iterator[None]:
        if self.on_check is not None:
            self.on_check(True)
        try:
            yield
        finally:
            self.charge(CHECK_PART)
        if self.on_check is not None:
            self.on_check(False)

    def _wait_for_end_of(self, page: Page) -> None:
        """Wait until the driver has cleared away a holder that died."""
        give_up_s = time.monotonic() + MAX_WAIT_FOR_DEAD_S
        while self._is_on_device(page):
            if time.monotonic() > give_up_s:
                raise MeasureError(f"process {page.holder} still holds the device")
            time.sleep(_PAUSE_S)

    def _is_on_device(self, page: Page) -> bool:
        if page.holder == os.getpid() or page.holder not in (self.list_pids(self.device_id) or ()):
            return False
        # Long after, the id may be another's, that waits for the device as we do.
        birth = birth_of(page.holder)
        return birth == 0 or page.birth in (0, birth)

    def _leave(self) -> None:
        with self._flock.mutex:
            self._flock.depth = max(0, self._flock.depth - 1)
            holder = self._flock.holder
            if self._flock.depth > 0 or holder is None:
                return
            page = self.logbook.read()
            if page.holder == os.getpid():  # Not one whose end was waited for in vain.
                self.logbook.write(dataclasses.replace(page, holder=0, birth=0))
            self._flock.unlock()
            self._flock.holder = None
            holder._hold_s, holder._since_s = holder.hold_s, None
            if holder._on_hold is not None:
                holder._on_hold(False)

    def _acquire(self) -> None:
        self.prepare()  # What cannot be opened must not be missed with the device in hand.
        if self._flock.try_lock():
            return
        begin_s = time.monotonic()
        if self._on_wait is not None:
            self._on_wait(True)
        try:
            self._flock.lock()
        finally:
            self.wait_s += time.monotonic() - begin_s
            if self._on_wait is not None:
                self._on_wait(False)
