"""The narrow place where task code runs: what it raises becomes a record.

The third place, beside the child's job loop and the supervisor, that takes any
`Exception`: what foreign code raises is data. It stands around calls into task
code and nothing else, so that our own mistakes are never blamed on a task.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Any

from opsgen.child import reason_of
from opsgen.child.faults import message_of
from opsgen.errors import TaskError
from opsgen.records import Failure

_NUM_TRACE_LINES = 20
_MESSAGE_LENGTH = 500


class TaskCodeError(TaskError):
    """The task's own code raised; `failure` is the evidence."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.criterion, f"{failure.kind}: {failure.message}")
        self.failure = failure


class task_code:  # noqa: N801 - read as a statement: `with task_code(stage):`
    """Turn what the task's code raises in the block into `TaskCodeError`.

    Faults of the machine travel as they are: exhausted memory, a broken CUDA context,
    and our own `MeasureError`. So does what is no `Exception`: interrupts and exits.
    """

    def __init__(self, stage: str) -> None:
        self._stage = stage

    def __enter__(self) -> None:
        """Nothing need be prepared."""

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        """Raise the record in place of what task code raised."""
        if not isinstance(error, Exception) or isinstance(error, TaskCodeError):
            return
        if reason_of(error) == "raised":
            raise TaskCodeError(_describe(error, self._stage)) from error


def guarded(call: Callable[..., Any], stage: str) -> Callable[..., Any]:
    """Return `call` with what it raises turned into `TaskCodeError`; well below a microsecond."""
    guard = task_code(stage)

    def run(*inputs: Any) -> Any:
        with guard:
            return call(*inputs)

    return run


def task_fault(criterion: str, message: str, stage: str) -> TaskCodeError:
    """Return the error that says what a check found wrong with a task's values."""
    return TaskCodeError(
        Failure(criterion=criterion, stage=stage, kind="TaskError", message=message, trace="")
    )


def _describe(error: Exception, stage: str) -> Failure:
    criterion, message = "executes", message_of(error)
    if isinstance(error, TaskError):
        criterion, message = error.criterion, error.message
    lines = "".join(traceback.format_exception(error)).splitlines()
    return Failure(
        criterion=criterion,
        stage=stage,
        kind=type(error).__name__,
        message=message[:_MESSAGE_LENGTH],
        trace="\n".join(lines[-_NUM_TRACE_LINES:]),
    )
