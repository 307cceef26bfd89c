"""Exceptions become the right reasons, whatever they look like."""

from __future__ import annotations

import pytest

from opsgen.child import reason_of
from opsgen.child.faults import NUM_LOG_LINES, fault_of
from opsgen.errors import MeasureError, TaskError


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError("shapes do not match"), "raised"),
        (TaskError("finite", "no"), "raised"),
        (SystemExit(0), "raised"),
        (MeasureError("clock lost"), "infrastructure"),
        (MemoryError(), "host_oom"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), "host_oom"),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), "cuda_sticky"),
        (RuntimeError("CUDA error: device-side assert triggered"), "cuda_sticky"),
        (RuntimeError("CUDA error: misaligned address"), "cuda_sticky"),
        (RuntimeError("CUDA error: unspecified launch failure"), "cuda_sticky"),
        (RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"), "gpu_oom"),
        # A bug of the task, after which the context is as good as before.
        (RuntimeError("CUDA error: invalid configuration argument"), "raised"),
    ],
)
def test_reasons(error: BaseException, reason: str) -> None:
    assert reason_of(error) == reason


def test_what_a_wrapped_error_came_from_counts() -> None:
    caused, during, hidden = ValueError("a"), ValueError("b"), ValueError("c")
    caused.__cause__ = RuntimeError("CUDA out of memory.")
    during.__context__ = MemoryError()
    hidden.__context__ = MemoryError()
    hidden.__suppress_context__ = True
    assert [reason_of(error) for error in (caused, during, hidden)] == [
        "gpu_oom",
        "host_oom",
        "raised",
    ]


def test_a_cycle_of_causes_ends() -> None:
    first, second = ValueError("a"), ValueError("b")
    first.__cause__, second.__cause__ = second, first
    assert reason_of(first) == "raised"


class _MuteError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no message for you")


def test_an_error_that_cannot_print_itself_is_a_fault_all_the_same() -> None:
    fault = fault_of(_MuteError(), "eager")
    assert (fault.reason, fault.stage) == ("raised", "eager")
    assert fault.detail.startswith("_MuteError: ")


def test_the_detail_is_one_line_and_the_log_is_short() -> None:
    def recurse(depth: int) -> None:
        if depth == 0:
            raise ValueError("two\nlines " + "x" * 5000)
        recurse(depth - 1)

    try:
        recurse(50)
    except ValueError as error:
        fault = fault_of(error, "eager")
    assert "\n" not in fault.detail
    assert fault.detail.startswith("ValueError: two lines x")
    assert len(fault.detail) <= 500
    assert len(fault.log.splitlines()) <= NUM_LOG_LINES
