"""Exceptions become the right reasons, whatever they look like."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from opsgen.child import faults, reason_of
from opsgen.child.faults import NUM_LOG_LINES, context_works, fault_of
from opsgen.errors import MeasureError, TaskError


@pytest.fixture(name="answer", autouse=True)
def _answer(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """What the device answers when it is asked whether it still serves this process."""
    answer = SimpleNamespace(works=None)
    monkeypatch.setattr(faults, "context_works", lambda: answer.works)
    return answer


class AcceleratorError(RuntimeError):
    """Stands for torch's, which this room does not know."""

    def __init__(self, error_code: object, message: str = "CUDA error: whatever") -> None:
        super().__init__(message)
        self.error_code = error_code


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
        (
            RuntimeError("Triton Error [CUDA]: an illegal memory access was encountered"),
            "cuda_sticky",
        ),
        (RuntimeError("Triton Error [CUDA]: unknown error"), "cuda_sticky"),
        (RuntimeError("the launch timed out and was terminated (702)"), "cuda_sticky"),
        (RuntimeError("Triton Error [CUDA]: out of memory"), "gpu_oom"),
        # A bug of the task, after which the context is as good as before.
        (RuntimeError("CUDA error: invalid configuration argument"), "raised"),
    ],
)
def test_reasons(error: BaseException, reason: str) -> None:
    assert reason_of(error) == reason


@pytest.mark.parametrize("code", [214, 220])
def test_a_broken_card_is_no_tasks_fault(code: int) -> None:
    assert reason_of(AcceleratorError(code)) == "infrastructure"
    assert reason_of(RuntimeError("CUDA error: uncorrectable ECC error")) == "infrastructure"


@pytest.mark.parametrize("code", [700, 702, 710, 714, 715, 716, 717, 718, 719, 999])
def test_codes_after_which_nothing_works(code: int) -> None:
    assert reason_of(AcceleratorError(code)) == "cuda_sticky"


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (2, "gpu_oom"),
        (1, "raised"),  # an invalid value
        (9, "raised"),  # a launch that is configured wrong
        (720, "raised"),  # a cooperative launch that is too large
    ],
)
def test_other_codes_mean_what_they_say_whatever_the_text(code: int, reason: str) -> None:
    assert reason_of(AcceleratorError(code, "an illegal memory access")) == reason


@pytest.mark.parametrize("code", [None, "700"])
def test_without_a_code_the_text_stands(code: object) -> None:
    assert reason_of(AcceleratorError(code, "CUDA error: misaligned address")) == "cuda_sticky"
    assert reason_of(AcceleratorError(code, "something else")) == "raised"


def test_a_code_counts_on_the_errors_that_have_one_only() -> None:
    error = OSError("a file is missing")
    error.error_code = 2  # type: ignore[attr-defined]
    assert reason_of(error) == "raised"


def test_a_code_that_cannot_be_read_is_none() -> None:
    class _ShyError(AcceleratorError):
        def __getattribute__(self, name: str) -> object:
            if name == "error_code":
                raise ValueError("not for you")
            return super().__getattribute__(name)

    assert reason_of(_ShyError(700)) == "raised"


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("CUDA error: an illegal memory access was encountered"),
        AcceleratorError(700),
    ],
)
def test_what_looks_sticky_is_so_only_if_the_device_agrees(
    answer: SimpleNamespace, error: Exception
) -> None:
    answer.works = True
    assert reason_of(error) == fault_of(error, "eager").reason == "raised"
    answer.works = False
    assert reason_of(error) == fault_of(error, "eager").reason == "cuda_sticky"


def test_a_lie_does_not_hide_what_it_was_raised_from(answer: SimpleNamespace) -> None:
    answer.works = True
    lie = AcceleratorError(700)
    lie.__cause__ = RuntimeError("CUDA out of memory.")
    assert reason_of(lie) == "gpu_oom"


@pytest.mark.parametrize(
    "error", [ValueError("no"), KeyboardInterrupt(), RuntimeError("CUDA out of memory.")]
)
def test_a_broken_context_is_charged_to_the_task_that_ends_with_it(
    answer: SimpleNamespace, error: BaseException
) -> None:
    answer.works = False
    fault = fault_of(error, "eager")
    assert fault.reason == "cuda_sticky"
    assert type(error).__name__ in fault.detail
    assert "context is broken" in fault.detail


def test_a_fault_of_the_machine_is_no_tasks_doing(answer: SimpleNamespace) -> None:
    answer.works = False
    in_its_wake = AcceleratorError(700)
    in_its_wake.__context__ = MeasureError("the card is sick")
    assert fault_of(in_its_wake, "eager").reason == "infrastructure"
    assert fault_of(MeasureError("the card is sick"), "eager").reason == "infrastructure"
    assert fault_of(MemoryError(), "eager").reason == "host_oom"


@pytest.mark.parametrize("works", [True, False])
def test_the_device_is_asked_where_this_process_uses_one(
    monkeypatch: pytest.MonkeyPatch, works: bool
) -> None:
    canary = SimpleNamespace(context_works=lambda: works)
    monkeypatch.setitem(sys.modules, "opsgen.device.canary", canary)
    monkeypatch.setitem(sys.modules, "torch", _library(lambda: True))
    assert context_works() is works


def test_a_process_without_a_context_asks_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    canary = SimpleNamespace(context_works=lambda: pytest.fail("asked"))
    monkeypatch.setitem(sys.modules, "opsgen.device.canary", canary)
    monkeypatch.setitem(sys.modules, "torch", _library(lambda: False))
    assert context_works() is None
    monkeypatch.delitem(sys.modules, "torch")
    assert context_works() is None


def test_a_library_that_a_task_has_broken_answers_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", _library(lambda: 1 / 0))
    assert context_works() is None


def _library(is_initialized: object) -> SimpleNamespace:
    return SimpleNamespace(cuda=SimpleNamespace(is_initialized=is_initialized))


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
