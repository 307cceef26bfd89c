"""A child shuts itself in before it runs a task, for good: no way leads back.

Each layer is tried, then attacked from inside: `holds` is what the attacks showed,
not what the kernel promised. Nothing here runs a task, and nothing needs a program
beside the interpreter. Linux only; elsewhere no layer holds.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import msgspec

from opsgen.child import syscalls
from opsgen.child.folders import LOCK_NAME
from opsgen.child.landlock import MIN_ABI_MOVES, landlock_abi, restrict_files
from opsgen.child.layers import NAMES, Layer, layer_of, no_layers
from opsgen.child.seccomp import can_call, filter_calls
from opsgen.child.view import (
    SHARED_MEMORY,
    View,
    detach_mounts,
    make_view,
    own_threads,
    plan_view,
    readable_parts,
)
from opsgen.errors import MeasureError

FIRST_USER = 0x6F700000
"""A child of an administrator runs as this user plus its process id: one that no other has."""

NOBODY = 65534

MAX_TASKS_OF_USER = 512
MAX_OPEN_FILES = 4096
MAX_FILE_BYTES = 8 << 30

_CHANGING_USERS = (0, 1, 5, 6, 7)  # CAP_CHOWN, DAC_OVERRIDE, KILL, SETGID, SETUID.
_NAMESPACES = syscalls.CLONE_NEWNS | syscalls.CLONE_NEWIPC | syscalls.CLONE_NEWUTS
_GPU_FILES = ("/dev/nvidia[0-9]*", "/dev/nvidiactl", "/dev/nvidia-uvm")
_LANDLOCKS = "files hidden strangers"  # The layers that it serves.
_HEAVY = "torch"  # Known by name only: whether another user could read it.


class _Entry:
    """What was achieved on the way in, and what stood in the way, by layer."""

    def __init__(self) -> None:
        self.obstacles: dict[str, str] = {}

    def attempt(self, layers: str, act: Callable[[], object]) -> bool:
        """Do something that a machine may refuse; note for which layers it is missed."""
        try:
            act()
        except OSError as error:
            for name in layers.split():
                self.obstacles.setdefault(name, f"{error.filename or act}: {error.strerror}")
            return False
        return True


def lone_user(pid: int) -> int:
    """Return the user that a child with this process id becomes if it can."""
    return FIRST_USER + pid


def enter_sandbox(work: Path, device: str) -> tuple[Layer, ...]:
    """Shut this process in and return what holds; it must have a single thread.

    Whatever is to be used of the outside must be open. Afterwards the process
    stands in its work folder.

    Args:
        work: The one folder that stays writable; its content is handed to the new user.
        device: `cpu` or `cuda`.

    Raises:
        MeasureError: It failed half way; the process must not go on.
    """
    if sys.platform != "linux":
        return no_layers("not Linux")
    entry = _Entry()
    view = plan_view(work)
    outside = _Outside(view)
    has_mounts = _enter_namespaces(entry)
    try:
        if has_mounts:
            make_view(view)
        os.chdir(view.work)
        _set_limits()
        has_changed_user = _change_user(entry, view, device)
        _give_up_privileges()
    except OSError as error:
        raise MeasureError(f"the sandbox failed half way: {error}") from error
    _restrict(entry, view, has_mounts=has_mounts, has_changed_user=has_changed_user)
    entry.attempt("calls", filter_calls)
    return outside.attack(entry.obstacles, has_changed_user=has_changed_user)


def _restrict(entry: _Entry, view: View, *, has_mounts: bool, has_changed_user: bool) -> None:
    """Refuse files and strangers by Landlock, as a second line or the only one."""
    abi = landlock_abi()
    if abi >= MIN_ABI_MOVES or (abi and not has_mounts):
        is_simple = has_mounts and has_changed_user
        readable = [Path("/")] if is_simple else list(readable_parts(view))
        writable = [view.work, *([SHARED_MEMORY] if has_mounts else [])]
        devices = (*view.devices, own_threads())
        entry.attempt(
            _LANDLOCKS,
            lambda: restrict_files(abi, readable=readable, writable=writable, devices=devices),
        )
    else:
        for name in _LANDLOCKS.split():
            entry.obstacles.setdefault(name, "this kernel's Landlock is too old or off")


def _enter_namespaces(entry: _Entry) -> bool:
    """Leave network, IPC and mounts of the machine; tell whether mounting is possible."""
    user, group = os.geteuid(), os.getegid()
    may_mount = user == 0 or (
        entry.attempt("files hidden", lambda: syscalls.unshare(syscalls.CLONE_NEWUSER))
        and entry.attempt("files hidden", lambda: _map_user(user, group))
    )
    entry.attempt("network", lambda: syscalls.unshare(syscalls.CLONE_NEWNET))
    return (
        may_mount
        and entry.attempt("files hidden", lambda: syscalls.unshare(_NAMESPACES))
        and entry.attempt("files hidden", detach_mounts)
    )


def _map_user(user: int, group: int) -> None:
    Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1", encoding="ascii")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1", encoding="ascii")


def _set_limits() -> None:
    for limit, most in (
        (resource.RLIMIT_NOFILE, MAX_OPEN_FILES),
        (resource.RLIMIT_FSIZE, MAX_FILE_BYTES),
        (resource.RLIMIT_CORE, 0),
    ):
        _lower(limit, most)


def _lower(limit: int, most: int) -> None:
    def least(value: int) -> int:
        return most if value == resource.RLIM_INFINITY else min(value, most)

    now = resource.getrlimit(limit)
    resource.setrlimit(limit, (least(now[0]), least(now[1])))


def _change_user(entry: _Entry, view: View, device: str) -> bool:
    """Become a user that owns nothing, if it can still read what a child needs."""
    effective = int(_status()["CapEff"], 16)
    if os.geteuid() != 0 or not all(effective >> number & 1 for number in _CHANGING_USERS):
        entry.obstacles.setdefault("user", "only an administrator can become another user")
        return False
    owner = view.work.stat()
    for user in (lone_user(os.getpid()), NOBODY):
        with contextlib.suppress(OSError):
            _hand_over(view.work, user, user)
            if _can_work_as(user, view, device):
                if user != NOBODY:  # The limit counts all of a user's threads.
                    _lower(resource.RLIMIT_NPROC, MAX_TASKS_OF_USER)
                syscalls.drop_bounding()
                _become(user)
                return True
    _hand_over(view.work, owner.st_uid, owner.st_gid)
    entry.obstacles["user"] = "another user cannot read the interpreter, the libraries or a device"
    return False


def _hand_over(folder: Path, user: int, group: int) -> None:
    for path in (folder, *folder.rglob("*")):
        os.chown(path, user, group, follow_symlinks=False)


def _can_work_as(user: int, view: View, device: str) -> bool:
    """Let a process try whether a user can read and write what a child has to."""
    pid = os.fork()
    if pid == 0:
        try:
            _become(user)
            os._exit(0 if _can_work(view, device) else 1)
        finally:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def _can_work(view: View, device: str) -> bool:
    torch = find_spec(_HEAVY)
    files = [sys.executable, *(entry for entry in sys.path if Path(entry).exists())]
    files += [str(Path(__file__).parent), *([torch.origin] if torch and torch.origin else [])]
    used = ("/dev/null", "/dev/urandom", *(_GPU_FILES if device == "cuda" else ()))
    devices = [path for path in view.devices if any(path.match(name) for name in used)]
    return (
        all(os.access(path, os.R_OK) for path in files)
        and os.access(sys.executable, os.X_OK)
        and all(os.access(path, os.R_OK | os.W_OK) for path in (*devices, view.work))
    )


def _become(user: int) -> None:
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)


def _give_up_privileges() -> None:
    with contextlib.suppress(OSError):  # Who has none cannot, and need not.
        syscalls.drop_bounding()
    syscalls.drop_capabilities()
    syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
    # Both were lost with the user: the second lets the child see its own entry in /proc.
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 1)


class _Outside:
    """What lies outside the sandbox, remembered from before, and attacked from inside."""

    def __init__(self, view: View) -> None:
        work = view.work
        self._parent = os.getppid()
        self._folder = work.parent
        self._hidden = view.hidden
        self._shared_memory = _device_of(SHARED_MEMORY)
        self._kept = {part for path in view.needed for part in (path, *path.parents)}
        self._places = (work.parent, Path(__file__).parent, Path("/"), *view.hidden)

    def attack(self, obstacles: dict[str, str], *, has_changed_user: bool) -> tuple[Layer, ...]:
        """Return all layers, and whether each withstands."""
        found = {
            "network": not _reaches_network(),
            "files": not any(map(_can_write, self._places)) and not self._can_spoil(),
            "privileges": _has_no_privileges(),
            "user": has_changed_user and not _can_return(),
            "hidden": not any(map(self._can_see, self._hidden)),
            "strangers": not self._can_signal() and not self._can_inspect(),
            "calls": not can_call(),
            "limits": resource.getrlimit(resource.RLIMIT_FSIZE)[1] == MAX_FILE_BYTES,
        }
        return tuple(
            layer_of(name, holds=found[name], obstacle=obstacles.get(name)) for name in NAMES
        )

    def _can_see(self, folder: Path) -> bool:
        """Tell whether a folder shows more than the way to what is needed in it."""
        with contextlib.suppress(OSError):
            return any(path not in self._kept for path in folder.iterdir())
        return False

    def _can_spoil(self) -> bool:
        """Tell whether files that exist can be changed, on disks or in the shared memory of all."""
        if any(path.is_block_device() and _can_open(path) for path in Path("/dev").glob("*")):
            return True
        if _device_of(SHARED_MEMORY) == self._shared_memory and _can_write(SHARED_MEMORY):
            return True
        # The lock of the folder's owner is empty: it loses nothing.
        with contextlib.suppress(OSError):
            os.truncate(self._folder / LOCK_NAME, 0)
            return True
        return False

    def _can_signal(self) -> bool:
        with contextlib.suppress(OSError):
            os.kill(self._parent, 0)
            return True
        return False

    def _can_inspect(self) -> bool:
        with contextlib.suppress(OSError):
            Path(f"/proc/{self._parent}/environ").read_bytes()
            return True
        return False


def _reaches_network() -> bool:
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM):
        lines = Path("/proc/self/net/dev").read_text(encoding="ascii").splitlines()[2:]
        return {line.partition(":")[0].strip() for line in lines} != {"lo"}
    return False


def _can_open(disk: Path) -> bool:
    with contextlib.suppress(OSError):
        os.close(os.open(disk, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC))
        return True
    return False


def _device_of(folder: Path) -> int | None:
    return folder.stat().st_dev if folder.exists() else None


def _can_write(folder: Path) -> bool:
    path = folder / f"opsgen-trial-{os.getpid()}"
    with contextlib.suppress(OSError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        path.unlink()
        return True
    return False


def _can_return() -> bool:
    with contextlib.suppress(OSError):
        os.setuid(0)
        return True
    return False


def _has_no_privileges() -> bool:
    status = _status()
    held = [int(status[f"Cap{name}"], 16) for name in ("Inh", "Prm", "Eff", "Bnd", "Amb")]
    return status.get("NoNewPrivs") == "1" and not any(held[:3]) and not held[4]


def _status() -> dict[str, str]:
    lines = Path("/proc/self/status").read_text(encoding="utf-8", errors="replace").splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def try_out(folder: str, device: str) -> None:
    """Enter the sandbox with a work folder in `folder`, and print the layers as JSON."""
    work = Path(folder) / "work"
    work.mkdir()
    layers = enter_sandbox(work, device)
    sys.stdout.buffer.write(msgspec.json.encode(layers))
    sys.stdout.flush()
