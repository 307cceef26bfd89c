"""What the death of a child means: its own doing, its memory, or the machine's."""

from __future__ import annotations

import signal
from pathlib import Path

_VMSTAT = Path("/proc/vmstat")
_MIN_SHARE = 0.5  # Of its limit: a child killed below that died of what others had taken.


def num_oom_kills() -> int:
    """Return how many processes the kernel has killed for want of memory since it started.

    Those killed at a container's limit count as well. Always 0 where the kernel
    does not say (Linux before 4.13, other systems).
    """
    if not _VMSTAT.exists():
        return 0
    for line in _VMSTAT.read_text(encoding="ascii").splitlines():
        name, _, count = line.partition(" ")
        if name == "oom_kill":
            return int(count)
    return 0


def ending_of(
    code: int, *, peak_bytes: int, limit_bytes: float, is_oom_likely: bool
) -> tuple[str, str]:
    """Return reason and detail for a child that ended without an answer.

    A SIGKILL that nobody here sent is the task's own, unless the child was over
    its limit between two looks, or the kernel killed something for memory
    meanwhile: then the child, which is the first to go, is what it killed.

    Args:
        code: Exit code; negative for a signal.
        peak_bytes: The most memory that it was seen to have.
        limit_bytes: The most that it may have.
        is_oom_likely: The kernel killed a process for memory during the job.
    """
    peak = f"peak {peak_bytes / 2**30:.1f} GiB"
    if code >= 0:
        return "crash", f"exit code {code}, {peak}"
    try:
        name = signal.Signals(-code).name
    except ValueError:  # Real-time signals have numbers only.
        name = "real-time"
    ending = f"signal {-code} ({name}), {peak}"
    if code != -signal.SIGKILL:
        return "crash", ending
    if peak_bytes > limit_bytes:
        return "host_oom", f"{ending}, the limit is {limit_bytes / 2**30:g} GiB"
    if not is_oom_likely:
        return "crash", ending
    reason = "host_oom" if peak_bytes > _MIN_SHARE * limit_bytes else "infrastructure"
    return reason, f"{ending}: the kernel ran out of memory"
