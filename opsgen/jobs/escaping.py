"""What foreign code may try to get out of its process, one attempt each, for trying the sandbox out."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import resource
import signal
import socket
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

_PTRACE_SEIZE, _PTRACE_DETACH = 0x4206, 17
_NEW_USER = 0x10000000
_CONNECT_S = 1.0
_OPEN: list[int] = []


def attempt(what: str) -> float:
    """Try `name,argument` and return the error number that came of it, 0 for success."""
    name, _, argument = what.partition(",")
    try:
        ATTEMPTS[name](argument)
    except OSError as error:
        return float(error.errno or errno.EIO)
    return 0.0


def _connect(place: str) -> None:
    host, _, port = place.rpartition(":")
    socket.create_connection((host, int(port)), _CONNECT_S).close()


def _send_datagram(place: str) -> None:
    host, _, port = place.rpartition(":")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
        end.sendto(b"out", (host, int(port)))


def _connect_local(name: str) -> None:
    """Connect to a socket in a folder, or to one without a file if `name` begins with @."""
    with socket.socket(socket.AF_UNIX) as end:
        end.connect(name.replace("@", "\0", 1))


def _write(path: str) -> None:
    with Path(path).open("ab") as file:
        file.write(b"written by a task\n")


def _list(path: str) -> None:
    if not list(Path(path).iterdir()):
        raise FileNotFoundError(errno.ENOENT, "empty")


def _signal(pid: str) -> None:
    os.kill(int(pid), signal.SIGUSR1)


def _trace(pid: str) -> None:
    trace = ctypes.CDLL(None, use_errno=True).ptrace
    trace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    _check(trace(_PTRACE_SEIZE, int(pid), None, None))
    trace(_PTRACE_DETACH, int(pid), None, None)


def _open_memory(pid: str) -> None:
    os.close(os.open(f"/proc/{pid}/mem", os.O_RDONLY))


def _become(user: str) -> None:
    os.seteuid(int(user))
    os.setresuid(0, 0, 0)


def _mount(path: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    _check(libc.mount(b"none", path.encode(), b"tmpfs", ctypes.c_ulong(0), None))
    _check(libc.umount(path.encode()))


def _unshare(argument: str) -> None:
    """Become the administrator of a namespace of its own, in a helper."""
    pid = os.fork()
    if pid == 0:
        libc = ctypes.CDLL(None, use_errno=True)
        os._exit(ctypes.get_errno() if libc.unshare(_NEW_USER) else 0)
    _check_exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


def _run_as_owner(program: str) -> None:
    """Run a program that takes its owner's rights, and fail unless it prints a 0 as its user."""
    shown = subprocess.run([program, "-u"], capture_output=True, check=False).stdout.strip()
    if shown != b"0":
        raise PermissionError(errno.EPERM, shown.decode())


def _read_variable(name: str) -> None:
    if name not in os.environ:
        raise FileNotFoundError(errno.ENOENT, name)


def _grow(gibibytes: str) -> None:
    path = Path("large")
    with path.open("wb") as file:
        try:
            file.truncate(int(gibibytes) << 30)
        finally:
            path.unlink()


def _open_many(number: str) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    try:
        _OPEN.extend(os.open(os.devnull, os.O_RDONLY) for _ in range(int(number)))
    finally:
        while _OPEN:
            os.close(_OPEN.pop())


def _start_threads(number: str) -> None:
    done = threading.Event()
    threads = [threading.Thread(target=done.wait) for _ in range(int(number))]
    try:
        for thread in threads:
            thread.start()
    except RuntimeError as error:
        raise BlockingIOError(errno.EAGAIN, str(error)) from error
    finally:
        done.set()
        with contextlib.suppress(RuntimeError):
            for thread in threads:
                thread.join()


def _check(result: int) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _check_exit(number: int) -> None:
    if number:
        raise OSError(number, os.strerror(number))


ATTEMPTS: dict[str, Callable[[str], object]] = {
    "connect": _connect,
    "send_datagram": _send_datagram,
    "connect_local": _connect_local,
    "write": _write,
    "truncate": lambda path: os.truncate(path, 0),
    "remove": os.unlink,
    "make_folder": os.mkdir,
    "change_mode": lambda path: os.chmod(path, 0o777),  # noqa: PTH101
    "read": lambda path: Path(path).read_bytes(),
    "list": _list,
    "signal": _signal,
    "trace": _trace,
    "open_memory": _open_memory,
    "become": _become,
    "mount": _mount,
    "unshare": _unshare,
    "run_as_owner": _run_as_owner,
    "read_variable": _read_variable,
    "grow": _grow,
    "open_many": _open_many,
    "start_threads": _start_threads,
}
"""What can be tried, by name; each raises `OSError` where it fails."""
