"""The stage clock charges work, never waiting for the device."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from opsgen.child.deadline import (
    CHECK_DEADLINE_S,
    CHECK_STAGE,
    DEFAULT_DEADLINE_S,
    StageClock,
)

_SPANS = st.lists(st.tuples(st.booleans(), st.floats(0.0, 100.0)), max_size=20)


@given(spans=_SPANS)
def test_waits_are_never_charged(spans: list[tuple[bool, float]]) -> None:
    clock = StageClock({"eager": 5000.0}, "eager", 0.0)
    now_s = worked_s = 0.0
    for is_waiting, span_s in spans:
        clock.set_waiting(is_waiting, now_s)
        now_s += span_s
        worked_s += 0.0 if is_waiting else span_s
    clock.set_waiting(False, now_s)
    assert abs(clock.left_s(now_s) - (5000.0 - worked_s)) < 1e-6


def test_a_stage_starts_with_its_whole_deadline() -> None:
    clock = StageClock({"build": 2.0, "eager": 3.0}, "build", 0.0)
    assert clock.left_s(1.5) == 0.5
    clock.set_waiting(True, 1.5)
    clock.enter("eager", 10.0)
    assert not clock.is_waiting
    assert clock.left_s(11.0) == 2.0
    clock.enter("unheard of", 20.0)
    assert clock.left_s(20.0) == DEFAULT_DEADLINE_S


def test_a_wait_without_end_is_over_some_day() -> None:
    clock = StageClock({}, "eager", 0.0)
    clock.set_waiting(True, 0.0)
    assert clock.left_s(3599.0) > 0.0 > clock.left_s(3601.0)


def test_holds_are_counted_over_stages_and_up_to_now() -> None:
    clock = StageClock({}, "eager", 0.0)
    assert clock.hold_s(3.0) == 0.0
    clock.set_holding(True, 4.0)
    clock.enter("compile", 5.0)
    assert clock.hold_s(6.0) == 2.0
    clock.set_holding(False, 7.0)
    assert clock.hold_s(100.0) == 3.0
    clock.set_holding(True, 200.0)
    clock.set_holding(False, 201.0)
    assert clock.hold_s(300.0) == 4.0


def test_a_check_has_a_deadline_of_its_own() -> None:
    clock = StageClock({"eager": 1e6}, CHECK_STAGE, 0.0)
    assert clock.left_s(0.0) == CHECK_DEADLINE_S
    assert StageClock({CHECK_STAGE: 7.0}, CHECK_STAGE, 0.0).left_s(0.0) == 7.0
