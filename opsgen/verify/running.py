"""The narrow place where task code runs: what it raises becomes a record."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager

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


@contextmanager
def task_code(stage: str) -> Iterator[None]:
    """Turn what the task's code raises in the block into `TaskCodeError`.

    Faults of the machine travel as they are: exhausted memory, a broken CUDA context,
    and our own `MeasureError`.
    """
    try:
        yield
    except TaskCodeError:
        raise
    except Exception as error:
        if reason_of(error) != "raised":
            raise
        raise TaskCodeError(_describe(error, stage)) from error


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
