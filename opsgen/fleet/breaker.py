"""The circuit breaker of a device: one that only fails must not swallow the queue.

A GPU that fell off the bus or a full disk fails every task within a second, so
the sick device would get most of the work. After some tasks in a row
have ended in `infrastructure` the worker takes no orders until a canary, a
trivial job that no task can spoil, comes back from a fresh child.
"""

from __future__ import annotations

import threading

from opsgen.child import Child
from opsgen.errors import reason_for
from opsgen.records import Environment, EnvironmentRequest, Evidence, Fault, NoopRequest

NUM_FAULTS_OF_SICK = 3


class Breaker:
    """One worker's judgement of its device; shared by the worker's threads."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._canary_mutex = threading.Lock()
        self._streak: set[tuple[str, str]] = set()
        self._is_open = False
        self.num_trips = 0
        """Times that all children had to be replaced."""

    def note(self, place: tuple[str, str], outcome: Evidence | Fault) -> None:
        """Take notice of how an attempt ended.

        Different tasks count: one that fails by itself again and again says
        nothing of the device.
        """
        reason = reason_for(outcome.reason).name if isinstance(outcome, Fault) else None
        if reason == "worker_lost":
            return
        with self._mutex:
            if reason != "infrastructure":
                self._streak.clear()
                return
            self._streak.add(place)
            if len(self._streak) >= NUM_FAULTS_OF_SICK and not self._is_open:
                self._is_open = True
                self.num_trips += 1

    def sickness(self, child: Child) -> str | None:
        """Return why no order may be taken; None when there is no reason, or none any more."""
        if not self._is_open:
            return None
        with self._canary_mutex:
            if not self._is_open:
                return None
            complaint = _run_canary(child)
            if complaint is None:
                with self._mutex:
                    self._streak.clear()
                    self._is_open = False
            return complaint


def _run_canary(child: Child) -> str | None:
    device = child.config.device
    # On a GPU the canary asks CUDA; a CPU needs no more than a process that answers.
    is_cpu = device == "cpu"
    request = NoopRequest(key="canary") if is_cpu else EnvironmentRequest(device=device)
    outcome = child.run(request, is_fresh=True)
    if isinstance(outcome, Fault):
        return f"{outcome.reason}: {outcome.detail}"
    if isinstance(outcome, Environment) and outcome.problems:
        return outcome.problems[0]
    return None
