"""The supervisor knows how long a job held the device, however the job ended."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from children import STAGE_S, answer, config_in, fault, run

from opsgen.child import Child, DeviceLease
from opsgen.records import Fault


@pytest.fixture(name="child")
def _child(tmp_path: Path) -> Iterator[Child]:
    with Child(config_in(tmp_path)) as child:
        yield child


def test_a_hold_that_ends_is_counted_whole_and_for_its_job_alone(child: Child) -> None:
    answer(child)
    begin_s = time.monotonic()
    answer(child, "lease:0.3")
    assert 0.25 < child.hold_s < time.monotonic() - begin_s
    answer(child, "sleep:0.3")
    assert child.hold_s == 0.0


def test_a_job_killed_in_its_hold_had_the_device_to_its_end(child: Child) -> None:
    answer(child)
    begin_s = time.monotonic()
    assert fault(child, "lease:60").reason == "timeout:noop"
    assert 0.5 * STAGE_S < child.hold_s <= time.monotonic() - begin_s


def test_a_job_that_is_cancelled_in_its_hold_is_counted(child: Child) -> None:
    answer(child)
    stop = threading.Event()
    threading.Timer(0.4, stop.set).start()
    outcome = run(child, "lease:60", is_cancelled=stop.is_set)
    assert isinstance(outcome, Fault)
    assert outcome.reason == "worker_lost"
    assert child.hold_s > 0.1


def test_waiting_for_the_device_is_no_holding(child: Child, tmp_path: Path) -> None:
    answer(child)
    waits_s: list[float] = []
    begin_s = time.monotonic()
    with DeviceLease("cpu", tmp_path / "lease").hold():
        thread = threading.Thread(
            target=lambda: waits_s.append(answer(child, "lease").metrics["wait_s"])
        )
        thread.start()
        time.sleep(0.5)
    thread.join()
    assert waits_s[0] > 0.2
    assert 0.0 < child.hold_s < time.monotonic() - begin_s - waits_s[0]


def test_time_that_a_check_takes_is_held(child: Child) -> None:
    assert fault(child, "lease:60").reason == "timeout:noop"
    answer(child, "check:sleep")
    assert child.hold_s >= 0.2
