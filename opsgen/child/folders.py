"""Folders that vanish with their owner, or are swept away by the next one.

An owner holds a `flock` on a file in its folder, which the kernel gives up
however the owner ends. A folder whose lock is free belongs to nobody.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LOCK_NAME = "owner.lock"

_MAX_LOCKLESS_S = 3600.0  # An owner between making its folder and locking it takes no hour.


@contextmanager
def owned_folder(
    prefix: str, parent: str | None = None, *, is_passable: bool = False
) -> Iterator[Path]:
    """Make a folder of our own, and remove it at the end of the block.

    Args:
        prefix: Start of its name, the same for all folders that may be swept together.
        parent: Where to make it; by default the host's temporary folder.
        is_passable: Other users may pass through to folders of theirs inside.

    Raises:
        OSError: The folder cannot be made.
    """
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    descriptor = _lock(folder, os.O_CREAT)
    if descriptor is None:
        raise OSError(f"{folder} was taken away while it was made")
    if is_passable:
        folder.chmod(0o711)
    try:
        yield folder
    finally:
        # Removed before the lock is given up, so that nobody else does it as well.
        _remove(folder)
        os.close(descriptor)


def sweep_folders(prefix: str, parent: str | None = None) -> int:
    """Remove the folders of owners that are gone and return how many there were."""
    num_swept = 0
    for folder in Path(parent or tempfile.gettempdir()).glob(f"{prefix}*"):
        descriptor = _lock(folder, 0)
        if descriptor is None and not _is_abandoned(folder):
            continue
        _remove(folder)
        if descriptor is not None:
            os.close(descriptor)
        num_swept += 1
    return num_swept


def _remove(folder: Path) -> None:
    """Remove a folder whatever a task made of it; what cannot be removed stays."""
    with contextlib.suppress(RecursionError):  # From about a thousand levels on.
        shutil.rmtree(folder, ignore_errors=True)
    if folder.is_dir():
        _flatten(folder)
        shutil.rmtree(folder, ignore_errors=True)


def _flatten(folder: Path) -> None:
    """Move all that lies in subfolders up, so that no depth and no mode stands in the way."""
    numbers = itertools.count()
    left = [Path(entry.path) for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False)]
    while left:
        inner = left.pop()
        with contextlib.suppress(OSError):
            inner.chmod(0o700)  # Nobody else can put a link in its place: all who could are dead.
            for entry in list(os.scandir(inner)):
                is_folder = entry.is_dir(follow_symlinks=False)
                if is_folder:
                    os.chmod(entry.path, 0o700)  # noqa: PTH101
                moved = folder / f"{folder.name}-{next(numbers)}"
                os.rename(entry.path, moved)  # noqa: PTH104
                if is_folder:
                    left.append(moved)


def _lock(folder: Path, extra_flags: int) -> int | None:
    """Return a locked descriptor of the folder's lock file; None if another has it, or none can."""
    path = folder / LOCK_NAME
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | extra_flags, 0o600)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    if os.fstat(descriptor).st_nlink == 0:  # Swept between the two calls above.
        os.close(descriptor)
        return None
    return descriptor


def _is_abandoned(folder: Path) -> bool:
    with contextlib.suppress(OSError):
        status = folder.lstat()
        is_ours = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
        is_old = time.time() - status.st_mtime > _MAX_LOCKLESS_S
        return is_ours and is_old and not (folder / LOCK_NAME).exists()
    return False
