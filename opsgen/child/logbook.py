"""What the holders of a device's lease leave for the next one: a page beside the lease's file.

A holder that is killed says nothing any more, and its successor must not time
anything on a device that may still be busy with it. So each writes its id down
when it takes the device and clears it when it leaves.

The page is mapped, and its descriptor closed: a task, which shares the process, has
nothing by which to let a file outside its sandbox grow.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import math
import mmap
import os
import struct
import sys
import zlib
from dataclasses import dataclass
from pathlib import Path

from opsgen.child.syscalls import checked, libc

_MAGIC = b"opslog1\0"
# Magic; holder and its birth; holds since the last check; whether one is due; reference.
_PAGE = struct.Struct("<8sIQI?3xd")
_CHECKSUM = struct.Struct("<I")
_SIZE = _PAGE.size + _CHECKSUM.size
_EMPTY = bytes(_SIZE)
_BIRTH_FIELD = 19  # Of /proc/*/stat, behind the name.


@dataclass(frozen=True, slots=True)
class Page:
    """What stands in a logbook.

    Attributes:
        holder: Process that took the device and did not leave it; 0 if it was left cleanly.
        birth: When that process started, in the kernel's ticks; 0 where that is not known.
        num_holds: Holds since the last check of the device.
        is_due: The device must be checked whatever the number of holds.
        reference_ms: What checks compare with; None before one has written it.
    """

    holder: int = 0
    birth: int = 0
    num_holds: int = 0
    is_due: bool = False
    reference_ms: float | None = None


class Logbook:
    """One device's page, shared by all processes; only for whoever holds the lease.

    Args:
        path: Its file, which is made if it is missing. A file that is too short or
            holds something else is a page on which a check is due.

    Raises:
        OSError: The file can be neither made nor mapped.
    """

    def __init__(self, path: Path) -> None:
        self._buffer = _map(path)

    def read(self) -> Page:
        """Return the page. One that was torn by its writer's death asks for a check."""
        data = bytes(self._buffer)
        if data == _EMPTY:
            return Page()
        body, (checksum,) = data[: _PAGE.size], _CHECKSUM.unpack_from(data, _PAGE.size)
        magic, holder, birth, num_holds, is_due, reference_ms = _PAGE.unpack(body)
        if magic != _MAGIC or checksum != zlib.crc32(body):
            return Page(is_due=True)
        return Page(holder, birth, num_holds, is_due, reference_ms or None)

    def write(self, page: Page) -> None:
        """Replace the page.

        Raises:
            ValueError: The reference is no positive time.
        """
        reference_ms = page.reference_ms
        if reference_ms is not None and not (math.isfinite(reference_ms) and reference_ms > 0.0):
            raise ValueError(f"a reference of {reference_ms} ms")
        body = _PAGE.pack(
            _MAGIC, page.holder, page.birth, page.num_holds, page.is_due, reference_ms or 0.0
        )
        self._buffer[:] = body + _CHECKSUM.pack(zlib.crc32(body))

    @property
    def reference_ms(self) -> float | None:
        """What checks compare with, milliseconds; None before one has set it."""
        return self.read().reference_ms

    @reference_ms.setter
    def reference_ms(self, value: float | None) -> None:
        self.write(dataclasses.replace(self.read(), reference_ms=value))


def birth_of(pid: int) -> int:
    """Return when a process started, in ticks since the machine did; 0 if nobody can tell."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        return int(text.rpartition(")")[2].split()[_BIRTH_FIELD])
    return 0


def _map(path: Path) -> memoryview:
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(path, flags, 0o600)
    try:
        # Whoever is here first: it is the same for all.
        os.ftruncate(descriptor, _SIZE)
        if sys.platform == "linux":  # On a full disk this is an error; to write would be a crash.
            os.posix_fallocate(descriptor, 0, _SIZE)
        call = libc()["mmap"]  # By item: a function of its own, whose types nobody else uses.
        call.restype = ctypes.c_ssize_t
        call.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_ssize_t]
        access = mmap.PROT_READ | mmap.PROT_WRITE
        # Python's own keeps a copy of the descriptor, before 3.13 whatever it is told.
        address = checked(call(None, _SIZE, access, mmap.MAP_SHARED, descriptor, 0), f"mmap {path}")
    finally:
        os.close(descriptor)
    # Never unmapped: it lives as long as its lease, and that as long as the process.
    return memoryview((ctypes.c_char * _SIZE).from_address(address)).cast("B")
