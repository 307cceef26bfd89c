"""A filter of system calls: no connections, no tracing, no namespaces, no odd corners of the kernel.

It needs no privilege, so that it closes the network where namespaces are refused.
What it denies fails with `EPERM`, which a task may see and survive.
"""

from __future__ import annotations

import ctypes
import errno
import platform
import struct

from opsgen.child.syscalls import syscall

_SET_MODE_FILTER = 1
_ALLOW_SPECULATION = 4  # Else older kernels slow the whole process, whose times are measured.
_AF_UNIX = 1
_MAX_NUMBER_X86 = 0x40000000  # Above lie the calls of another, equally valid table.
_NEW_NAMESPACES = 0x7E020000  # All flags of clone() that make namespaces.

# seccomp(2), the architecture's id, and for each call its number on x86-64 and on ARM64.
_MACHINES = {"x86_64": (0, 317, 0xC000003E), "aarch64": (1, 277, 0xC00000B7)}
_DENIED = {
    "connect": (42, 203),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsmount": (432, 432),
    "mount_setattr": (442, 442),
    "open_by_handle_at": (304, 265),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "kexec_load": (246, 104),
}
_SOCKET, _CLONE, _CLONE3 = (41, 198), (56, 220), (435, 435)

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16  # Offsets in struct seccomp_data.
_PASS, _FAIL = 0x7FFF0000, 0x00050000


def filter_calls() -> None:
    """Deny system calls to this process and all that it starts; `no_new_privs` must be set.

    Raises:
        OSError: The kernel has no filters, or this is a machine without a table here.
    """
    machine = _MACHINES.get(platform.machine())
    if machine is None:
        raise OSError(errno.ENOSYS, f"no table of system calls for {platform.machine()}")
    column, number, architecture = machine
    program = b"".join(_program(column, architecture))
    buffer = ctypes.create_string_buffer(program, len(program))
    # struct sock_fprog: the number of instructions, and where they are.
    header = ctypes.create_string_buffer(
        struct.pack("@HxxxxxxQ", len(program) // 8, ctypes.addressof(buffer))
    )
    pointer = ctypes.cast(header, ctypes.c_void_p)
    syscall(number, _SET_MODE_FILTER, _ALLOW_SPECULATION, pointer, what="seccomp")


def can_call() -> bool:
    """Tell whether a call that the filter denies gets past it; asks for nothing that exists."""
    machine = _MACHINES.get(platform.machine())
    if machine is None:
        return True
    try:
        syscall(_DENIED["setns"][machine[0]], -1, 0, what="setns")
    except OSError as error:
        return error.errno != errno.EPERM
    return True


def _program(column: int, architecture: int) -> list[bytes]:
    deny = _step(_RETURN, _FAIL | errno.EPERM)
    lines = [
        _step(_LOAD, _ARCHITECTURE),
        _step(_EQUAL, architecture, then=1),
        deny,
        _step(_LOAD, _NUMBER),
        _step(_AT_LEAST, _MAX_NUMBER_X86, otherwise=1),
        deny,
        # The C library then takes clone, whose flags can be seen.
        _step(_EQUAL, _CLONE3[column], otherwise=1),
        _step(_RETURN, _FAIL | errno.ENOSYS),
    ]
    for numbers in _DENIED.values():
        lines += [_step(_EQUAL, numbers[column], otherwise=1), deny]
    lines += [
        _step(_EQUAL, _CLONE[column], otherwise=4),
        _step(_LOAD, _FIRST_ARGUMENT),
        _step(_ANY_BIT, _NEW_NAMESPACES, otherwise=1),
        deny,
        _step(_RETURN, _PASS),
        _step(_EQUAL, _SOCKET[column], then=1),
        _step(_RETURN, _PASS),
        _step(_LOAD, _FIRST_ARGUMENT),
    ]
    # CUDA does not start without a local socket to listen on, though nobody can connect.
    return [*lines, _step(_EQUAL, _AF_UNIX, otherwise=1), _step(_RETURN, _PASS), deny]


def _step(code: int, value: int, then: int = 0, otherwise: int = 0) -> bytes:
    """Return one instruction; a comparison skips as many of the next as said."""
    return struct.pack("=HBBI", code, then, otherwise, value)
