"""From an exception in a child to a reason of the table, without importing torch."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Iterator

from opsgen.errors import MeasureError
from opsgen.records import Fault

MAX_DETAIL_CHARS = 500
NUM_LOG_LINES = 20

# Only what leaves the context unusable (codes 700, 710, 716, 719, 999 and ECC):
# taking every CUDA error for a broken device would charge plain bugs to it.
_STICKY = (
    "illegal memory access",
    "device-side assert",
    "misaligned address",
    "unspecified launch failure",
    "illegal instruction",
    "invalid program counter",
    "hardware stack error",
    "uncorrectable ecc error",
    "cuda error: unknown error",
)
_GPU_OOM = ("cuda out of memory", "cuda error: out of memory", "cublas_status_alloc_failed")
_HOST_OOM = ("can't allocate memory", "not enough memory: you tried to allocate")

SPOILING_REASONS = frozenset({"cuda_sticky", "gpu_oom", "host_oom"})
"""After these a process must not serve another job."""


def reason_of(error: BaseException) -> str:
    """Return the reason that `error` stands for: `raised` unless it speaks of the machine.

    Checks that turn a task's exceptions into evidence ask this first and let
    whatever is not `raised` travel. Causes count: compilers wrap what they catch.
    """
    for link in _chain(error):
        if isinstance(link, MeasureError):
            return "infrastructure"
        if isinstance(link, MemoryError):
            return "host_oom"
        text = message_of(link).lower()
        for reason, phrases in (
            ("cuda_sticky", _STICKY),
            ("gpu_oom", _GPU_OOM),
            ("host_oom", _HOST_OOM),
        ):
            if any(phrase in text for phrase in phrases):
                return reason
    return "raised"


def message_of(error: BaseException) -> str:
    """Return the message of any exception, even one that cannot print itself."""
    message = "<its message cannot be shown>"
    with contextlib.suppress(Exception):
        message = str(error)
    return message


def fault_of(error: BaseException, stage: str) -> Fault:
    """Return the fault for an exception that escaped a job during `stage`."""
    detail = f"{type(error).__name__}: {message_of(error)}"
    lines = "".join(traceback.format_exception(error)).splitlines()
    return Fault(
        reason=reason_of(error),
        stage=stage,
        detail=" ".join(detail.split())[:MAX_DETAIL_CHARS],
        log="\n".join(lines[-NUM_LOG_LINES:]),
    )


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
