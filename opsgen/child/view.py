"""What a sandboxed child sees of the machine's files: all but people's, and little to write.

In namespaces of its own, home folders and temporary folders are empty but for
what the interpreter needs, everything is read-only, and the work folder is not.
Without namespaces Landlock refuses to read and write the same places.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pwd
import re
import stat
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import opsgen
from opsgen.child.syscalls import (
    MOUNT_ATTR_NOSUID,
    MOUNT_ATTR_RDONLY,
    MS_BIND,
    MS_NODEV,
    MS_NOEXEC,
    MS_NOSUID,
    MS_PRIVATE,
    MS_RDONLY,
    MS_REC,
    MS_REMOUNT,
    mount,
    set_mount,
)

SHARED_MEMORY = Path("/dev/shm")

HIDE_VARIABLE = "OPSGEN_HIDE"
"""Environment variable with further folders to hide: home and temporary folder of the supervisor."""

SHOW_VARIABLE = "OPSGEN_SHOW"
"""Environment variable with files to keep readable wherever they lie."""

_SYSTEM = ("/bin", "/dev", "/etc", "/lib", "/lib64", "/opt", "/proc", "/sbin", "/sys", "/usr")
_DRIVERS = ("/run/nvidia", "/run/opengl-driver")  # Where some systems keep a GPU's libraries.
_PEOPLES = ("/home", "/root", "/tmp", "/var/tmp", "/run")
_DEVICES = ("null", "zero", "full", "random", "urandom", "nvidia*", "nvidia-caps/*")
_SHARED_MEMORY_OPTIONS = "mode=1777,size=1g"
_OCTAL = re.compile(r"\\([0-7]{3})")  # How /proc writes blanks.
_MOUNT_OPTIONS = {"nodev": MS_NODEV, "noexec": MS_NOEXEC}


@dataclass(frozen=True)
class View:
    """Which files a child keeps.

    Attributes:
        needed: What must stay readable wherever it lies.
        hidden: Folders that are emptied, but for what is needed in them; none lies in another.
        work: The one folder that it writes to.
        devices: Device files that it may write to, a GPU's among them.
    """

    needed: tuple[Path, ...]
    hidden: tuple[Path, ...]
    work: Path
    devices: tuple[Path, ...]


def plan_view(work: Path) -> View:
    """Choose what this process keeps; it must see the machine as it is."""
    work = work.resolve()
    needed = tuple(sorted({*_interpreters_folders(), work}))
    kept = (*needed, *map(Path, _SYSTEM), *map(Path, _DRIVERS))
    closed = (ancestor for path in needed for ancestor in path.parents if not _is_open(ancestor))
    hidden = {path.resolve() for path in (*map(Path, _PEOPLES), *_homes(), *closed)}
    hidden = {path for path in hidden if path.is_dir() and not _holds_system(path, needed)}
    hidden.discard(SHARED_MEMORY)  # It is replaced, not emptied.
    outermost = sorted(p for p in hidden if not any(other in p.parents for other in hidden))
    return View(
        needed=tuple(path for path in kept if path.exists()),
        hidden=tuple(outermost),
        work=work,
        devices=tuple(path for name in _DEVICES for path in sorted(Path("/dev").glob(name))),
    )


def make_view(view: View) -> None:
    """Mount the view; needs a mount namespace of its own and the right to mount in it.

    Afterwards this process stands in the work folder: the old working folder would
    show what is hidden.

    Raises:
        OSError: Something cannot be mounted. The process is of no use any more.
    """
    places = [*view.hidden, *([SHARED_MEMORY] if SHARED_MEMORY.is_dir() else [])]
    below = [path for path in view.needed if any(place in path.parents for place in places)]
    with contextlib.ExitStack() as stack:
        stack.callback(os.umask, os.umask(0o022))
        sources = {path: _hold(stack, path) for path in sorted({*below, view.work})}
        for place in places:
            options = _SHARED_MEMORY_OPTIONS if place == SHARED_MEMORY else "mode=755,size=1m"
            mount("none", place, "tmpfs", MS_NOSUID | MS_NODEV, options)
        for path, descriptor in sources.items():
            # A folder inside one that is back already is back with it.
            if path == view.work or not any(other in path.parents for other in below):
                _put_back(path, descriptor)
    mount(str(own_threads()), own_threads(), None, MS_BIND, "")
    _freeze((view.work, SHARED_MEMORY, own_threads()))
    os.chdir(view.work)


def _freeze(writable: tuple[Path, ...]) -> None:
    """Make all that is mounted read-only, but for `writable`."""
    try:
        set_mount("/", add=MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID, is_deep=True)
    except OSError as error:
        if error.errno != errno.ENOSYS:
            raise
        _freeze_each(writable)
        return
    for path in writable:
        if path.is_dir():
            set_mount(path, drop=MOUNT_ATTR_RDONLY)


def _freeze_each(writable: tuple[Path, ...]) -> None:
    """Do as `_freeze` on kernels where each mount takes a call; those out of sight stay so."""
    text = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    for line in text.splitlines():
        _, _, _, _, name, options, *_ = line.split(" ")
        place = Path(_OCTAL.sub(lambda found: chr(int(found[1], 8)), name))
        if place in writable or not place.exists():
            continue
        # What is forbidden already must be said again.
        kept = sum(flag for option, flag in _MOUNT_OPTIONS.items() if option in options.split(","))
        flags = MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | kept
        mount("none", place, None, flags, "")


def own_threads() -> Path:
    """Return the folder of this process's threads: CUDA does not start unless it can name its own.

    That is a write to a file there, and the refusal shows as error 304 (seen with driver 580).
    """
    return Path(f"/proc/{os.getpid()}/task")


def detach_mounts() -> None:
    """Keep what is mounted from now on to this namespace; the first thing to be refused.

    Raises:
        OSError: This process may not mount anything.
    """
    mount(None, "/", None, MS_REC | MS_PRIVATE, "")


def readable_parts(view: View) -> Iterator[Path]:
    """Return folders and files that together hold all that the view leaves readable.

    Devices are left out: who is allowed to read disks would find everything there.
    """
    devices = Path("/dev")
    yield from (path for path in view.needed if path != devices)
    yield from _around(Path("/"), (*view.hidden, devices))


def _around(folder: Path, hidden: Iterable[Path]) -> Iterator[Path]:
    """Return what lies in a folder, hidden folders and the way to them left out."""
    inside = [place for place in hidden if folder in place.parents]
    with contextlib.suppress(PermissionError):
        for path in folder.iterdir():
            target = path.resolve()
            if any(target == place or place in target.parents for place in hidden):
                continue
            if any(path in place.parents for place in inside):
                yield from _around(path, hidden)
            else:
                yield path


def _interpreters_folders() -> Iterator[Path]:
    """Return where the interpreter and what it imports lie, and what it was told to show."""
    package = Path(opsgen.__file__).parent
    libraries = os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)
    shown = os.environ.get(SHOW_VARIABLE, "").split(os.pathsep)
    named = [*shown, sys.prefix, sys.base_prefix, sys.executable, *libraries]
    # Where the package lies in a folder of sources, the rest of the folder is nobody's business.
    named += [entry for entry in sys.path if Path(entry or ".").resolve() != package.parent]
    yield package
    for name in filter(None, named):
        for path in (Path(name).absolute(), Path(name).resolve()):
            if path.exists() and path != Path("/"):
                yield path


def _homes() -> Iterator[Path]:
    for name in filter(None, os.environ.get(HIDE_VARIABLE, "").split(os.pathsep)):
        yield Path(name)
    with contextlib.suppress(KeyError):
        yield Path(pwd.getpwuid(os.getuid()).pw_dir)


def _is_open(folder: Path) -> bool:
    """Tell whether everyone may pass through a folder."""
    return bool(folder.stat().st_mode & stat.S_IXOTH)


def _holds_system(folder: Path, needed: Iterable[Path]) -> bool:
    """Tell whether a folder is, or lies in, what is needed, or holds a part of the system."""
    parts = [Path(name) for name in _SYSTEM]
    is_part = any(folder == part or folder in part.parents for part in parts)
    return is_part or any(folder == path or path in folder.parents for path in needed)


def _hold(stack: contextlib.ExitStack, path: Path) -> int:
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC | os.O_NOFOLLOW)
    stack.callback(os.close, descriptor)
    return descriptor


def _put_back(path: Path, descriptor: int) -> None:
    """Mount what `descriptor` holds at its path again, or repeat a link."""
    status = os.fstat(descriptor)
    if stat.S_ISLNK(status.st_mode):
        with contextlib.suppress(FileExistsError):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.symlink_to(os.readlink("", dir_fd=descriptor))
        return
    if stat.S_ISDIR(status.st_mode):
        path.mkdir(parents=True, exist_ok=True)
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    mount(f"/proc/self/fd/{descriptor}", path, None, MS_BIND | MS_REC, "")
