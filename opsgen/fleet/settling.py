"""What follows from the attempts made at one job: the answer, the final fault, or a retry.

Pure, and the same for a run in progress and for a journal read later.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from opsgen.admit import final_fault
from opsgen.errors import reason_for
from opsgen.records import Attempt, Evidence, Fault

NUM_LOST_OF_SUSPECT = 2

JobKey = tuple[str, str]
"""Job and key of an attempt."""


@dataclass(frozen=True, slots=True)
class Settled:
    """A job that needs no further attempt.

    Attributes:
        attempt: The one that decides: the first with evidence, else the last.
        num_attempts: How many were made.
    """

    attempt: Attempt
    num_attempts: int

    @property
    def evidence(self) -> Evidence | None:
        """The answer; None when the job ended in a fault."""
        return self.attempt.evidence

    @property
    def fault(self) -> Fault | None:
        """The final fault; None when there is an answer."""
        return self.attempt.fault

    @property
    def is_deferred(self) -> bool:
        """It failed for want of resources or a machine, so another run may try again."""
        fault = self.attempt.fault
        return fault is not None and reason_for(fault.reason).verdict == "deferred"


def settle(attempts: Sequence[Attempt]) -> Settled | None:
    """Decide what the attempts at one job and key amount to; None asks for another.

    Evidence outweighs any fault; which fault is final `opsgen.admit.final_fault` says.
    """
    if not attempts:
        return None
    for attempt in attempts:
        if attempt.evidence is not None:
            return Settled(attempt=attempt, num_attempts=len(attempts))
    faults = [attempt.fault for attempt in attempts if attempt.fault is not None]
    if final_fault(faults) is None:
        return None
    return Settled(attempt=attempts[-1], num_attempts=len(attempts))


class Ledger:
    """Where every job stands, fed attempt by attempt.

    Args:
        history: Attempts of earlier runs. A job that they settle as deferred may be
            opened again, with all its retries; its numbers go on.
    """

    def __init__(self, history: Iterable[Attempt] = ()) -> None:
        self._open: dict[JobKey, list[Attempt]] = {}
        self._num_attempts: dict[JobKey, int] = {}
        # Digests, since a run of a million would fill hundreds of megabytes with keys.
        self._done: set[int] = set()
        for attempt in history:
            self.add(attempt)

    def add(self, attempt: Attempt) -> Settled | None:
        """Take note of an attempt, unless it is known; return what it settles."""
        key = (attempt.job, attempt.key)
        if self.is_done(key) or attempt.number < self.num_attempts(key):
            return None
        self._num_attempts[key] = max(self.num_attempts(key), attempt.number + 1)
        attempts = self._open.setdefault(key, [])
        attempts.append(attempt)
        settled = settle(attempts)
        if settled is not None:
            del self._open[key]
            if not settled.is_deferred:
                del self._num_attempts[key]
                self._done.add(_digest(key))
        return settled

    def is_done(self, key: JobKey) -> bool:
        """There is evidence, or a fault charged to the task: nothing more to try."""
        return _digest(key) in self._done

    def num_attempts(self, key: JobKey) -> int:
        """Return how many attempts were made at a job that is not done."""
        return self._num_attempts.get(key, 0)

    def needs_device_alone(self, key: JobKey) -> bool:
        """The device's memory did not suffice for it beside others."""
        return self._num_open(key, "gpu_oom") > 0

    def is_suspect(self, key: JobKey) -> bool:
        """Workers went down with it, so it had better run with nothing beside it."""
        return self._num_open(key, "worker_lost") >= NUM_LOST_OF_SUSPECT

    def _num_open(self, key: JobKey, reason: str) -> int:
        faults = (attempt.fault for attempt in self._open.get(key, ()))
        return sum(fault is not None and fault.reason == reason for fault in faults)


def _digest(key: JobKey) -> int:
    state = hashlib.blake2b("\0".join(key).encode(), digest_size=8)
    return int.from_bytes(state.digest())
