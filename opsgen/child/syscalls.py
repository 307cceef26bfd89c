"""The few calls to Linux that the sandbox needs and Python does not offer.

Each raises `OSError` as Python's own calls do. Numbers that are the same on all
machines stand here; what differs between them is in `seccomp`.
"""

from __future__ import annotations

import ctypes
import functools
import os
from pathlib import Path

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWNET = 0x40000000

MS_RDONLY = 1
MS_NOSUID = 2
MS_NODEV = 4
MS_NOEXEC = 8
MS_REMOUNT = 32
MS_BIND = 4096
MS_REC = 16384
MS_PRIVATE = 1 << 18

MOUNT_ATTR_RDONLY = 1
MOUNT_ATTR_NOSUID = 2

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_CAPBSET_DROP = 24
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_CLEAR_ALL = 4

_AT_FDCWD = -100
_AT_RECURSIVE = 0x8000
_MOUNT_SETATTR = 442
_CAPABILITY_VERSION = 0x20080522


@functools.cache
def libc() -> ctypes.CDLL:
    """Return the C library of this process."""
    return ctypes.CDLL(None, use_errno=True)


def checked(result: int, what: str) -> int:
    """Return the result of a call.

    Raises:
        OSError: It failed.
    """
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)
    return result


def syscall(number: int, *arguments: int | ctypes.c_void_p | None, what: str) -> int:
    """Make a system call; numbers are passed as C longs.

    Raises:
        OSError: It failed.
    """
    passed = [ctypes.c_long(one) if isinstance(one, int) else one for one in arguments]
    return checked(int(libc().syscall(ctypes.c_long(number), *passed)), what)


def prctl(option: int, value: int, *more: int) -> None:
    """Set a property of this process.

    Raises:
        OSError: It cannot be set.
    """
    rest = (*more, 0, 0, 0)[:3]
    passed = [ctypes.c_ulong(one) for one in (value, *rest)]
    checked(int(libc().prctl(option, *passed)), "prctl")


def unshare(flags: int) -> None:
    """Move this process, which must have a single thread, into namespaces of its own.

    Raises:
        OSError: Not allowed here.
    """
    checked(int(libc().unshare(flags)), "unshare")


def mount(source: str | None, target: Path | str, kind: str | None, flags: int, data: str) -> None:
    """Mount what is described in the words of mount's manual page.

    Raises:
        OSError: Not allowed, or no such thing.
    """
    names = [None if one is None else os.fsencode(one) for one in (source, target, kind)]
    passed = ctypes.c_ulong(flags)
    checked(int(libc().mount(*names, passed, data.encode() or None)), f"mount {target}")


def set_mount(target: Path | str, *, add: int = 0, drop: int = 0, is_deep: bool = False) -> None:
    """Change the properties of a mount, or of all below it as well.

    Raises:
        OSError: Not allowed, or Linux is older than 5.12.
    """
    # struct mount_attr: set, clear, propagation, user namespace.
    attributes = (ctypes.c_uint64 * 4)(add, drop, 0, 0)
    name = ctypes.create_string_buffer(os.fsencode(target))
    flags = _AT_RECURSIVE if is_deep else 0
    syscall(
        _MOUNT_SETATTR,
        _AT_FDCWD,
        ctypes.cast(name, ctypes.c_void_p),
        flags,
        ctypes.cast(attributes, ctypes.c_void_p),
        ctypes.sizeof(attributes),
        what=f"mount_setattr {target}",
    )


def drop_bounding() -> None:
    """Let no program that is started later gain a capability; needs one itself.

    Raises:
        OSError: Not allowed.
    """
    last = int(Path("/proc/sys/kernel/cap_last_cap").read_text(encoding="ascii"))
    for capability in range(last + 1):
        prctl(PR_CAPBSET_DROP, capability)


def drop_capabilities() -> None:
    """Give up all capabilities of this process.

    Raises:
        OSError: The kernel refuses, which it should not.
    """
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    # Effective, permitted and inheritable, in two words each.
    checked(int(libc().capset(header, (ctypes.c_uint32 * 6)())), "capset")
