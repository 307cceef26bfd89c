"""Keepers of what a job can leave running or open: threads, helpers, descriptors."""

from __future__ import annotations

import contextlib
import gc
import os
import stat
import threading
import time
from collections.abc import Iterable
from pathlib import Path

from opsgen.child.guard import Check, Keeper

GRACE_S = 0.1
"""A thread that is about to end may do so."""

HELPER_GRACE_S = 0.5
"""A compiler's helpers may still be ending; on a busy machine that takes a while, and no task
is to blame for it."""

MAX_LEFT_OPEN = 32
"""Descriptors beyond those of the first job. Fewer do no harm, and may be a library's."""

_PAUSE_S = 0.002
_LIBRARIES_THREADS = frozenset({"tqdm_monitor"})  # Started by the first compile.
_FOLDER = Path("/dev/fd")


def keep_threads() -> Check:
    """Let no thread outlive the job: it cannot be stopped."""
    before = _threads()

    def check() -> Iterable[str]:
        give_up_s = time.monotonic() + GRACE_S
        while left := _threads() - before:
            if time.monotonic() > give_up_s:
                names = sorted(thread.name for thread in left)
                yield f"left {len(left)} threads running, {names[0]} among them"
                return
            time.sleep(_PAUSE_S)

    return check


def keep_helpers() -> Check:
    """Let no process outlive the job; orphans of its helpers have become our children."""

    def check() -> Iterable[str]:
        give_up_s = time.monotonic() + HELPER_GRACE_S
        while _has_children():
            if time.monotonic() > give_up_s:
                yield "left processes running"
                return
            time.sleep(_PAUSE_S)

    return check


class DescriptorKeeper:
    """Counts what is open, from the first job on; nothing can be closed that may be a library's."""

    def __init__(self) -> None:
        self._num_first: int | None = None

    def __call__(self) -> Check:
        """Take note of what is open."""
        before = _open_descriptors()
        if self._num_first is None:
            self._num_first = len(before)
        limit = self._num_first + MAX_LEFT_OPEN

        def check() -> Iterable[str]:
            now = _open_descriptors()
            if len(now) > limit:
                gc.collect()
                now = _open_descriptors()
            if len(now) > limit:
                yield f"left {len(now) - len(before)} descriptors open"
            if closed := before - now:
                yield f"closed descriptor {min(closed)}"

        return check


def _threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name not in _LIBRARIES_THREADS}


def _has_children() -> bool:
    """Reap the dead and tell whether others live."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
        return True
    return False


def _open_descriptors() -> set[int]:
    names = os.listdir(_FOLDER)  # noqa: PTH208 - a path for each would cost more than the listing
    return {number for number in map(int, names) if _counts(number)}


def _counts(number: int) -> bool:
    # The listing's own is gone by now. Drivers open their devices by the dozen, and keep them.
    try:
        return not stat.S_ISCHR(os.fstat(number).st_mode)
    except OSError:
        return False


def keepers() -> tuple[Keeper, ...]:
    """Return the keepers of one process."""
    return (keep_threads, keep_helpers, DescriptorKeeper())
