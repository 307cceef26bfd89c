"""From an exception in a child to a reason of the table, without importing torch.

What a GPU's driver reports is told by its code where an exception carries one
and by its text elsewhere; either can be a task's lie, so where this process uses
a GPU the device is asked whether it still serves it. The module that can ask is
known by name only.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
import traceback
from collections.abc import Iterator

from opsgen.errors import MeasureError
from opsgen.records import Fault

MAX_DETAIL_CHARS = 500
NUM_LOG_LINES = 20

# Codes of the driver after which a context is lost: all later calls in it fail alike, as
# cuda.h says of each. Any other leaves the context as good as before: taking every error for
# a broken device would charge plain bugs to it.
STICKY_CODES = frozenset(
    {
        700,  # Illegal address: a load or store outside what is mapped.
        702,  # Launch timeout: a watchdog, where the card drives a display, ended the kernel.
        710,  # Assert: one in a kernel did not hold, such as that of an index in its range.
        714,  # Hardware stack error: a stack was corrupted or outgrew its size.
        715,  # Illegal instruction.
        716,  # Misaligned address: a load or store wider than its alignment allows.
        717,  # Invalid address space: shared memory was meant and global was given, or so.
        718,  # Invalid program counter: it left the code.
        719,  # Launch failure: whatever else went wrong in a running kernel.
        721,  # Tensor memory leak: a kernel ended without giving it back (Blackwell).
        999,  # Unknown: the driver itself does not know.
    }
)
"""720, a cooperative launch that is too large, is refused before it starts and is not among them."""

CARD_CODES = frozenset(
    {
        214,  # ECC: memory of the card held what it could not correct.
        220,  # NVLink: the same of a link to another card.
    }
)
"""After these the context is lost, too, and no task is to blame."""

OOM_CODE = 2

_BY_CODE = (
    dict.fromkeys(STICKY_CODES, "cuda_sticky")
    | dict.fromkeys(CARD_CODES, "infrastructure")
    | {OOM_CODE: "gpu_oom"}
)
_ERROR_WITH_CODE = "AcceleratorError"  # torch's since 2.8, with the code in `error_code`
_LIBRARY = "torch"
_CANARY_MODULE = "opsgen.device.canary"

# What the same errors look like where only their text is left: Triton's launcher raises a
# RuntimeError with the driver's words, torch.cuda.check_error one with the runtime's.
_STICKY = (
    "illegal memory access",
    "device-side assert",
    "misaligned address",
    "unspecified launch failure",
    "illegal instruction",
    "invalid program counter",
    "hardware stack error",
    "launch timed out and was terminated",
    "not supported on global/shared address space",
    "tensor memory not completely freed",
    "cuda error: unknown error",
    "[cuda]: unknown error",
)
_CARD = ("uncorrectable ecc error", "uncorrectable nvlink error")
_GPU_OOM = (
    "cuda out of memory",
    "cuda error: out of memory",
    "[cuda]: out of memory",
    "cublas_status_alloc_failed",
    "cudnn_status_alloc_failed",
)
_HOST_OOM = ("can't allocate memory", "not enough memory: you tried to allocate")

SPOILING_REASONS = frozenset({"cuda_sticky", "gpu_oom", "host_oom"})
"""After these a process must not serve another job."""


def reason_of(error: BaseException) -> str:
    """Return the reason that `error` stands for: `raised` unless it speaks of the machine.

    Checks that turn a task's exceptions into evidence ask this first and let
    whatever is not `raised` travel. Causes count: compilers wrap what they catch.
    An error that only says that the device's context is broken counts for nothing:
    the device is asked, where this process uses one. What was the machine's fault stays
    so, whatever goes wrong in its wake: a sick device breaks contexts too.
    """
    links = list(_chain(error))
    if any(isinstance(link, MeasureError) for link in links):
        return "infrastructure"
    for link in links:
        reason = appearance_of(link)
        if reason in ("cuda_sticky", "infrastructure") and context_works():
            continue
        if reason != "raised":
            return reason
    return "raised"


def appearance_of(error: BaseException) -> str:
    """Return the reason that an error of a task's, its causes aside, claims to be."""
    if isinstance(error, MemoryError):
        return "host_oom"
    code = code_of(error)
    if code is not None:
        return _BY_CODE.get(code, "raised")
    text = message_of(error).lower()
    for reason, phrases in (
        ("infrastructure", _CARD),
        ("cuda_sticky", _STICKY),
        ("gpu_oom", _GPU_OOM),
        ("host_oom", _HOST_OOM),
    ):
        if any(phrase in text for phrase in phrases):
            return reason
    return "raised"


def code_of(error: BaseException) -> int | None:
    """Return the driver's code that an error carries; None where it carries none."""
    if all(kind.__name__ != _ERROR_WITH_CODE for kind in type(error).__mro__):
        return None
    code: object = None
    with contextlib.suppress(Exception):
        code = getattr(error, "error_code", None)
    return code if isinstance(code, int) else None


def context_works() -> bool | None:
    """Tell whether the device still serves this process; None where it does not use a GPU.

    Launches one empty kernel and waits for it and for all that went before.
    """
    answer: bool | None = None
    # What a task has done to the library must not end its process without an answer.
    with contextlib.suppress(Exception):
        library = sys.modules.get(_LIBRARY)
        if library is not None and library.cuda.is_initialized():
            answer = importlib.import_module(_CANARY_MODULE).context_works()
    return answer


def message_of(error: BaseException) -> str:
    """Return the message of any exception, even one that cannot print itself."""
    message = "<its message cannot be shown>"
    with contextlib.suppress(Exception):
        message = str(error)
    return message


def fault_of(error: BaseException, stage: str) -> Fault:
    """Return the fault for an exception that escaped a job during `stage`.

    Whatever a task raised, a device that no longer serves this process is this task's
    doing: the next would otherwise be charged with it. Errors of the machine are not.
    """
    reason = reason_of(error)
    detail = f"{type(error).__name__}: {message_of(error)}"
    if reason in {"raised", "gpu_oom"} and context_works() is False:
        reason = "cuda_sticky"
        detail = f"the device's context is broken after {detail}"
    lines = "".join(traceback.format_exception(error)).splitlines()
    return Fault(
        reason=reason,
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
