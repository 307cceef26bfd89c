"""The breaker on a GPU: what its canary shows decides whether the device gets work."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsgen.child import Child
from opsgen.fleet.breaker import NUM_FAULTS_OF_SICK, Breaker
from opsgen.records import (
    MAX_DRIFT,
    CanaryEvidence,
    CanaryRequest,
    DeviceState,
    Evidence,
    Fault,
    MeasureEvidence,
    NoopEvidence,
    NoopRequest,
    Request,
)

DRIFTED = Fault(reason="infrastructure", stage="time", detail="MeasureError: the device drifted")
WELL = MeasureEvidence(environment_id="here")


class FakeChild:
    """A child that gives the answers it was made with and notes what it was asked."""

    def __init__(self, device: str, *answers: Evidence | Fault) -> None:
        self.config = SimpleNamespace(device=device)
        self.answers = list(answers)
        self.asked: list[tuple[Request, bool]] = []

    def run(self, request: Request, *, is_fresh: bool = False) -> Evidence | Fault:
        self.asked.append((request, is_fresh))
        return self.answers.pop(0)


def canary(**content: Any) -> CanaryEvidence:
    return CanaryEvidence(**{"is_right": True, "median_ms": 1.0, "reference_ms": 1.0} | content)


def opened() -> Breaker:
    breaker = Breaker()
    for number in range(NUM_FAULTS_OF_SICK):
        breaker.note(("measure", f"task{number}"), DRIFTED)
    return breaker


def sickness(breaker: Breaker, child: FakeChild) -> str | None:
    return breaker.sickness(cast("Child", child))


def test_a_gpu_is_asked_to_compute_in_a_fresh_child() -> None:
    child = FakeChild("cuda", canary())
    breaker = opened()
    assert sickness(breaker, child) is None
    assert child.asked == [(CanaryRequest(device="cuda"), True)]
    assert sickness(breaker, child) is None
    assert len(child.asked) == 1  # it is closed again


def test_a_cpu_has_to_answer_and_no_more() -> None:
    child = FakeChild("cpu", NoopEvidence(key="canary", pid=1))
    assert sickness(opened(), child) is None
    assert child.asked == [(NoopRequest(key="canary"), True)]


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (canary(is_right=False), "does not compute right"),
        (canary(median_ms=1.05), "5.0% longer"),
        (canary(median_ms=float("nan")), "longer"),
        (Fault(reason="timeout:canary", stage="canary", detail="hung"), "timeout:canary: hung"),
        (
            canary(median_ms=2.0, state=DeviceState(throttle=("hw_slowdown",))),
            "100.0% longer than the 1 ms that it took first, throttled: hw_slowdown",
        ),
    ],
)
def test_a_sick_gpu_gets_no_work_until_it_is_well(
    answer: CanaryEvidence | Fault, complaint: str
) -> None:
    child = FakeChild("cuda", answer, answer, canary(median_ms=1.02))
    breaker = opened()
    for _ in range(2):
        told = sickness(breaker, child)
        assert told is not None
        assert complaint in told
        assert "\n" not in told
    assert sickness(breaker, child) is None


@given(median_ms=st.floats(1e-3, 1e3), reference_ms=st.none() | st.floats(1e-3, 1e3))
def test_the_first_time_here_is_what_it_is_held_against(
    median_ms: float, reference_ms: float | None
) -> None:
    child = FakeChild("cuda", canary(median_ms=median_ms, reference_ms=reference_ms))
    is_slow = reference_ms is not None and median_ms > (1 + MAX_DRIFT) * reference_ms
    assert (sickness(opened(), child) is not None) == is_slow


def test_drift_in_a_row_opens_it_and_one_good_end_starts_anew() -> None:
    breaker = Breaker()
    child = FakeChild("cuda")
    for number in range(NUM_FAULTS_OF_SICK - 1):
        breaker.note(("measure", f"task{number}"), DRIFTED)
    breaker.note(("measure", "task0"), DRIFTED)  # the same task again says nothing new
    breaker.note(("measure", "other"), Fault(reason="worker_lost", stage="", detail=""))
    assert sickness(breaker, child) is None
    breaker.note(("measure", "good"), WELL)
    breaker.note(("measure", "last"), DRIFTED)
    assert sickness(breaker, child) is None
    assert breaker.num_trips == 0
    assert child.asked == []


def test_all_children_are_replaced_once_a_trip() -> None:
    breaker = opened()
    breaker.note(("measure", "more"), DRIFTED)
    assert breaker.num_trips == 1
    assert sickness(breaker, FakeChild("cuda", canary())) is None
    for number in range(NUM_FAULTS_OF_SICK):
        breaker.note(("measure", f"later{number}"), DRIFTED)
    assert breaker.num_trips == 2
