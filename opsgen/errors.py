"""The error policy and the table of reasons.

A failed task is data, not a crash: checks record what they saw, and only what
escapes a check becomes one of the errors below. `ValueError` (here `UsageError`,
worded for the person at the command line) is for bad arguments and recipes.
"""

from __future__ import annotations

from dataclasses import dataclass


class UsageError(ValueError):
    """A user's mistake: the message is one line that names the file or key and what is wrong."""


class SampleError(Exception):
    """No legal graph came out of this try: count `reason` and draw again."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class TaskError(Exception):
    """The task is at fault: it is rejected under `criterion` with this message as witness."""

    def __init__(self, criterion: str, message: str) -> None:
        super().__init__(f"{criterion}: {message}")
        self.criterion = criterion
        self.message = message


class MeasureError(Exception):
    """The machine is at fault: try the task again, elsewhere if possible."""


class PublishError(Exception):
    """A release must not go out as it is: stop."""


@dataclass(frozen=True, slots=True)
class Reason:
    """How a fault that is no criterion is treated.

    Attributes:
        name: The reason as it stands in journals and verdicts.
        verdict: What the task gets when the retries are used up.
        num_retries: Further attempts, each in a fresh child.
        meaning: One sentence for people.
    """

    name: str
    verdict: str
    num_retries: int
    meaning: str


_TABLE = (
    Reason("raised", "rejected", 0, "The task's code raised an exception that no check expected."),
    Reason("crash", "rejected", 1, "The process running the task died, twice."),
    Reason("timeout", "rejected", 1, "A stage outlived its deadline, twice."),
    Reason("host_oom", "rejected", 1, "The process outgrew its memory limit, twice."),
    Reason("cuda_sticky", "rejected", 1, "The task broke the CUDA context, twice."),
    Reason(
        "crash_loop",
        "rejected",
        0,
        "Whatever ran the task went down with it, three times, at last with nothing beside it.",
    ),
    Reason(
        "gpu_oom", "deferred", 1, "The device's memory did not suffice, alone on the device too."
    ),
    Reason("infrastructure", "deferred", 5, "The machine or opsgen itself failed, not the task."),
    Reason("worker_lost", "deferred", 5, "The worker that held the task went away."),
    Reason(
        "unmeasured", "deferred", 0, "A looser threshold lets the task go on; `run` measures it."
    ),
)

REASONS: dict[str, Reason] = {reason.name: reason for reason in _TABLE}


def reason_for(name: str) -> Reason:
    """Look up a reason; `timeout:<stage>` shares the entry of `timeout`.

    Raises:
        KeyError: No such reason: a bug in the caller.
    """
    return REASONS[name.partition(":")[0]]
