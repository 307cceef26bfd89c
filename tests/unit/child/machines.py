"""Machines that give less than this one: calls are refused, or the user is an ordinary one."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import platform
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

CONTAINER = ("unshare", "mount", "mount_setattr")
"""What a container's own filter commonly refuses."""
OLD = (*CONTAINER, "landlock_create_ruleset", "seccomp")
"""A kernel with none of it, or a filter that refuses it all."""

ORDINARY_USER = 1000

_NUMBERS = {
    "x86_64": {"unshare": 272, "mount": 165, "seccomp": 317},
    "aarch64": {"unshare": 97, "mount": 40, "seccomp": 277},
}
_EVERYWHERE = {"mount_setattr": 442, "landlock_create_ruleset": 444}
_PR_SET_SECCOMP, _MODE_FILTER = 22, 2


def has_numbers() -> bool:
    """The calls of this kind of machine are known here."""
    return platform.machine() in _NUMBERS


def refuse(*calls: str) -> None:
    """Have the kernel refuse calls to this process and all that it starts; as root."""
    numbers = _NUMBERS[platform.machine()] | _EVERYWHERE
    steps = [(0x20, 0, 0, 0)]
    for call in calls:
        steps += [(0x15, 0, 1, numbers[call]), (0x06, 0, 0, 0x50000 | errno.EPERM)]
    steps.append((0x06, 0, 0, 0x7FFF0000))
    program = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *s) for s in steps))
    header = ctypes.create_string_buffer(
        struct.pack("@HxxxxxxQ", len(steps), ctypes.addressof(program))
    )
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    none = ctypes.c_ulong(0)
    assert prctl(_PR_SET_SECCOMP, ctypes.c_ulong(_MODE_FILTER), header, none, none) == 0


def become_ordinary(folder: Path) -> None:
    """Become a user who can read the interpreter and write to `folder` only; as root."""
    from opsgen.child import syscalls, view

    os.chown(folder, ORDINARY_USER, ORDINARY_USER)
    syscalls.unshare(syscalls.CLONE_NEWNS)
    view.detach_mounts()
    view.make_view(view.plan_view(folder))
    syscalls.set_mount("/proc", drop=syscalls.MOUNT_ATTR_RDONLY)
    os.setgroups([])
    os.setresgid(ORDINARY_USER, ORDINARY_USER, ORDINARY_USER)
    os.setresuid(ORDINARY_USER, ORDINARY_USER, ORDINARY_USER)
    os.environ |= {"HOME": str(folder), "TMPDIR": str(folder)}


def on_machine(setting: str, code: str, folder: Path) -> Any:
    """Run `code`, which sets `answer`, in a process for which `setting` was run before.

    Both may use `folder`, which the process can write to.
    """
    script = (
        "import json, sys, os\nfrom pathlib import Path\nfrom machines import *\n"
        f"folder = Path(sys.argv[1])\n{setting}\n{code}\nprint(json.dumps(answer))\n"
    )
    path = [str(Path(__file__).parent), *sys.path]
    done = subprocess.run(
        [sys.executable, "-c", script, str(folder)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120.0,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path)},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])
