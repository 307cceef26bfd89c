"""Landlock: a process gives up access to files, TCP and strangers, with no privilege needed."""

from __future__ import annotations

import contextlib
import ctypes
import os
import stat
import struct
from collections.abc import Iterable
from pathlib import Path

from opsgen.child.syscalls import syscall

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION_FLAG = 1
_RULE_PATH_BENEATH = 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_MAKE_CHAR, _MAKE_BLOCK = 1 << 6, 1 << 11
_REFER, _TRUNCATE = 1 << 13, 1 << 14
_ALL_OF_ABI_1 = (1 << 13) - 1
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE
_TCP = 3  # Bind and connect.
_STRANGERS = 3  # Abstract sockets and signals.

MIN_ABI_MOVES = 2
"""Before, no file could be moved between folders, which compilers do."""


def landlock_abi() -> int:
    """Return the version that the kernel offers; 0 where there is none."""
    try:
        return syscall(_CREATE_RULESET, None, 0, _VERSION_FLAG, what="landlock")
    except OSError:
        return 0


def restrict_files(
    abi: int, *, readable: Iterable[Path], writable: Iterable[Path], devices: Iterable[Path]
) -> None:
    """Leave this process and all that it starts only what is named; for good.

    From version 4 on TCP is refused altogether, from 6 on signals and abstract
    sockets reach none but those that share the restriction. Paths that do not
    exist are left out. `no_new_privs` must be set.

    Args:
        abi: What `landlock_abi` returned, at least 1.
        readable: Folders and files that may be read and executed.
        writable: Folders in which everything but making devices is allowed.
        devices: Files that may be read and written, or folders of such files.

    Raises:
        OSError: The kernel refuses.
    """
    handled = _ALL_OF_ABI_1 | (_REFER if abi >= 2 else 0) | (_TRUNCATE if abi >= 3 else 0)
    words = [handled]
    if abi >= 4:
        words.append(_TCP)
    if abi >= 6:
        words.append(_STRANGERS)
    ruleset = _create(words)
    try:
        for path in readable:
            _allow(ruleset, path, handled & (_EXECUTE | _READ_FILE | _READ_DIR))
        for path in writable:
            _allow(ruleset, path, handled & ~(_MAKE_CHAR | _MAKE_BLOCK))
        for path in devices:
            _allow(ruleset, path, handled & (_READ_FILE | _WRITE_FILE | _TRUNCATE))
        syscall(_RESTRICT_SELF, ruleset, 0, what="landlock_restrict_self")
    finally:
        os.close(ruleset)


def _create(words: list[int]) -> int:
    attributes = (ctypes.c_uint64 * len(words))(*words)
    pointer = ctypes.cast(attributes, ctypes.c_void_p)
    return syscall(_CREATE_RULESET, pointer, ctypes.sizeof(attributes), 0, what="landlock")


def _allow(ruleset: int, path: Path, rights: int) -> None:
    with contextlib.suppress(FileNotFoundError, PermissionError):
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
                rights &= _OF_FILES
            rule = ctypes.create_string_buffer(struct.pack("=Qi", rights, descriptor), 12)
            pointer = ctypes.cast(rule, ctypes.c_void_p)
            syscall(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, pointer, 0, what=f"landlock {path}")
        finally:
            os.close(descriptor)
