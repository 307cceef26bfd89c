"""The circuit breaker of a device: one that only fails must not swallow the queue.

A GPU that fell off the bus or a full disk fails every task within a second, so
the sick device would get most of the work. After some tasks in a row
have ended in `infrastructure` the worker takes no orders until a canary, a
fixed job that no task can spoil, comes back from a fresh child: on a GPU with the
right result and in the time that it took at first: slower, it is throttled, shared with
somebody, or failing.
"""

from __future__ import annotations

import threading

from opsgen.child import Child
from opsgen.errors import reason_for
from opsgen.records import (
    MAX_DRIFT,
    CanaryEvidence,
    CanaryRequest,
    Evidence,
    Fault,
    NoopRequest,
)

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
    # On a GPU the canary computes on it; a CPU needs no more than a process that answers.
    is_cpu = device == "cpu"
    request = NoopRequest(key="canary") if is_cpu else CanaryRequest(device=device)
    outcome = child.run(request, is_fresh=True)
    if isinstance(outcome, Fault):
        return f"{outcome.reason}: {outcome.detail}"
    return describe_sickness(outcome) if isinstance(outcome, CanaryEvidence) else None


def describe_sickness(canary: CanaryEvidence) -> str | None:
    """Return what a canary shows to be wrong with its device, or None."""
    if not canary.is_right:
        return "the canary's result is wrong: this device does not compute right"
    if canary.reference_ms is None or canary.median_ms <= (1 + MAX_DRIFT) * canary.reference_ms:
        return None
    slowdown = canary.median_ms / canary.reference_ms - 1.0
    throttle = canary.state.throttle if canary.state else ()
    why = f", throttled: {', '.join(throttle)}" if throttle else ""
    return (
        f"the canary takes {canary.median_ms:.4g} ms, {slowdown:.1%} longer than the "
        f"{canary.reference_ms:.4g} ms that it took first{why}"
    )
