"""The report: where the device's time went, and whether times repeat."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from typing import cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from run_fakes import HERE, Answer, FakeFleet, lines_of, measured, timed

from opsgen.fleet import Fleet
from opsgen.recipe import FleetConfig, Recipe
from opsgen.records import Attempt, DeviceState, Fault, Lease, MeasureEvidence, MeasureRequest
from opsgen.run import Report, RunFolder, Stages
from opsgen.run.agreement import compare_timings
from opsgen.run.folder import Session
from opsgen.run.usage import device_use, held_s

FACTORS = st.floats(0.5, 2.0)


@given(st.lists(st.tuples(st.floats(1e-3, 90.0), FACTORS), min_size=1, max_size=30))
def test_differences_are_those_of_the_pairs(times: list[tuple[float, float]]) -> None:
    pairs = [(measured(first), measured(first * factor)) for first, factor in times]
    agreement = compare_timings(pairs)
    assert agreement.num_tasks == len(times)
    assert agreement.other_picks == {}
    assert agreement.modes.keys() == {"eager", "compile"}
    changes = [factor - 1.0 for _, factor in times]
    sizes = sorted(map(abs, changes))
    for found in agreement.modes.values():
        assert found.num_pairs == len(times)
        assert found.median == pytest.approx(median(sizes), abs=1e-9)
        assert found.largest == pytest.approx(sizes[-1], abs=1e-9)
        assert found.shift == pytest.approx(median(changes), abs=1e-9)
        assert found.median - 1e-12 <= found.p95 <= found.largest + 1e-12
    drifted = median(sizes)
    if abs(drifted - 0.03) > 1e-9:
        assert (agreement.complaint is not None) == (drifted > 0.03)


def test_compiled_times_of_other_picks_stand_apart() -> None:
    same = (measured(2.0, picks=("a",)), measured(2.0, picks=("a",)))
    other = (measured(2.0, picks=("a",)), measured(4.0, picks=("b",)))
    agreement = compare_timings([same, other])
    assert agreement.modes["compile"].num_pairs == 1
    assert agreement.modes["compile"].largest == 0.0
    assert agreement.other_picks.keys() == {"compile"}
    assert agreement.other_picks["compile"].median == 1.0
    # Picks are the compiler's: eager code has none.
    assert agreement.modes["eager"].num_pairs == 2
    assert agreement.modes["eager"].share_beyond == 0.5


def test_a_complaint_is_one_line_about_the_worst_mode() -> None:
    slower = MeasureEvidence(environment_id="x", timings=(timed(2.02), timed(1.1, "compile")))
    complaint = compare_timings([(measured(2.0), slower)]).complaint
    assert complaint is not None
    assert "compile of 1 task timed again differs by 10.0% in the median (+10.0%)" in complaint
    assert "\n" not in complaint
    assert compare_timings([(measured(2.0), measured(2.05))]).complaint is None
    assert compare_timings([]).complaint is None


def test_modes_that_one_side_lacks_are_passed_over() -> None:
    eager = MeasureEvidence(environment_id="x", timings=(timed(2.0),))
    agreement = compare_timings([(measured(2.0), eager)])
    assert agreement.num_tasks == 1
    assert agreement.modes.keys() == {"eager"}


def attempt_at(
    key: str, outcome: Answer, started_s: float = 0.0, wall_s: float = 1.0, hold_s: float = 0.0
) -> Attempt:
    return Attempt(
        job="measure",
        key=key,
        number=0,
        evidence=None if isinstance(outcome, Fault) else outcome,
        fault=outcome if isinstance(outcome, Fault) else None,
        host="h",
        pid=1,
        started_s=started_s,
        wall_s=wall_s,
        hold_s=hold_s,
    )


CRASH = Fault(reason="crash", stage="time", detail="")


def test_minutes_of_the_device_go_to_what_they_brought() -> None:
    attempts = [
        attempt_at("a", measured(), hold_s=60.0),
        attempt_at("b", measured(), hold_s=30.0),
        attempt_at("c", CRASH, hold_s=120.0),
        attempt_at("c", CRASH, hold_s=60.0),
        attempt_at("retimed:a", measured(), hold_s=6.0),
        attempt_at("old", measured()),
    ]
    use = device_use(attempts, [], {"a": "admitted", "b": "rejected: live", "old": "admitted"})
    # The supervisor's figure counts where there is one, and the evidence's where there is none.
    assert held_s(attempts[-1]) == 0.25
    assert use.gpu_min == {
        "fault: crash": 3.0,
        "admitted": round((60.0 + 0.25) / 60.0, 4),
        "rejected: live": 0.5,
        "retimed": 0.1,
    }
    assert sum(use.gpu_min.values()) == pytest.approx(sum(map(held_s, attempts)) / 60.0, abs=1e-3)
    assert list(use.gpu_min.values()) == sorted(use.gpu_min.values(), reverse=True)


def test_lease_use_is_over_the_stages_and_all_devices() -> None:
    # Ten seconds of two devices, an hour of nothing, then five seconds of one.
    sessions = [Session(started_s=100.0, num_devices=2), Session(started_s=3700.0, num_devices=1)]
    attempts = [
        attempt_at("a", measured(), started_s=103.0, wall_s=4.0, hold_s=4.0),
        attempt_at("b", measured(), started_s=104.0, wall_s=6.0, hold_s=5.0),
        attempt_at("c", CRASH, started_s=3701.0, wall_s=4.0, hold_s=3.5),
    ]
    use = device_use(attempts, sessions, {})
    assert use.lease_use == pytest.approx((4.0 + 5.0 + 3.5) / (2 * 10.0 + 5.0))
    assert use.measured_per_min == pytest.approx(60.0 * 2 / (10.0 + 5.0))


def test_without_sessions_the_attempts_say_how_long_it_took() -> None:
    attempts = [
        attempt_at("a", measured(), started_s=0.0, wall_s=4.0, hold_s=2.0),
        attempt_at("b", measured(), started_s=1.0, wall_s=1.0, hold_s=1.0),
        attempt_at("c", measured(), started_s=1000.0, wall_s=6.0, hold_s=3.0),
    ]
    assert device_use(attempts, [], {}).lease_use == pytest.approx(6.0 / 10.0)
    assert device_use([], [], {}).lease_use is None
    assert device_use([], [Session(started_s=1.0, num_devices=1)], {}).measured_per_min is None


@given(
    holds=st.lists(st.tuples(st.floats(0.0, 50.0), st.floats(0.01, 9.0)), min_size=1, max_size=20),
    num_devices=st.integers(1, 8),
)
def test_lease_use_is_a_share(holds: list[tuple[float, float]], num_devices: int) -> None:
    # Each device is held by one child after the other, so its holds fit into the stage.
    attempts, until_s = [], [0.0] * num_devices
    for number, (gap_s, hold_s) in enumerate(holds):
        device = number % num_devices
        start_s = until_s[device] + gap_s
        until_s[device] = start_s + hold_s
        attempts.append(attempt_at(str(number), measured(), start_s, wall_s=hold_s, hold_s=hold_s))
    sessions = [Session(started_s=0.0, num_devices=num_devices)]
    use = device_use(attempts, sessions, {}).lease_use
    assert use is not None
    assert 0.0 <= use <= 1.0 + 1e-4


def test_parts_add_up_to_the_holds() -> None:
    leases = [
        Lease(wait_s=1.0, hold_s=2.0, num_holds=2, parts_s={"time": 1.0, "answers": 0.5}),
        Lease(wait_s=7.0, hold_s=3.0, num_holds=2, parts_s={"time": 3.0}),
    ]
    attempts = [attempt_at(str(n), measured(lease=lease)) for n, lease in enumerate(leases)]
    use = device_use(attempts, [], {})
    assert list(use.parts_s.items()) == [("time", 4.0), ("answers", 0.5), ("between", 0.5)]
    assert (use.wait_s, use.max_wait_s) == (8.0, 7.0)


def test_the_devices_states_are_summed_up() -> None:
    states = [
        DeviceState(sm_mhz=1980, temperature_c=50, throttle=("sw_power_cap",)),
        DeviceState(sm_mhz=1700, temperature_c=60, throttle=("sw_power_cap", "hw_thermal")),
        DeviceState(sm_mhz=1900),
        None,
    ]
    attempts = [attempt_at(str(n), measured(state=state)) for n, state in enumerate(states)]
    use = device_use(attempts, [], {})
    assert use.throttle == {"sw_power_cap": 2, "hw_thermal": 1}
    assert use.states.keys() == {"sm_mhz", "temperature_c"}
    clock = use.states["sm_mhz"]
    assert (clock.smallest, clock.median, clock.largest) == (1700, 1900, 1980)


def test_a_run_that_drifts_says_so(tmp_path: Path) -> None:
    release = msgspec.structs.replace(Recipe(name="x", seed=1).release, want={"foreign": 30})
    recipe = Recipe(name="drift", seed=1, fleet=FleetConfig(retimed=0.3), release=release)
    folder = RunFolder(tmp_path / "run", recipe)

    def answer(key: str, request: MeasureRequest) -> MeasureEvidence:
        return measured(2.0 if request.checks else 2.2)

    with folder.locked():
        folder.append_lines(lines_of(30))
        stages = Stages(folder, cast("Fleet", FakeFleet(answer)))
        stages.probe()
        stages.measure()
        report = stages.report(stages.admit())
    assert report.environment == f"{HERE.device_name}, torch {HERE.torch}"
    assert report.num_attempts["measure"] == 30
    assert report.retimed.num_tasks == report.num_attempts["retime"] > 0
    assert report.drift is not None
    assert "10.0% in the median" in report.drift
    told = json.loads((folder.path / "report.json").read_bytes())
    assert msgspec.convert(told, Report) == report
