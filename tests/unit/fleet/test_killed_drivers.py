"""A driver killed at any moment: its journal leads to the same end, without doing things twice."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest
from fleet_runs import NUM_CHILDREN, descendants, read_journal, settle_all, start_driver

BEHAVIOURS = ("all=sleep:0.01", "k3=raise", "k11=segfault", "k23=exit:0")
REASONS = {"k3": "raised", "k11": "crash", "k23": "crash"}
WINDOW = NUM_CHILDREN + 1


def _run_and_kill(folder: Path, num_jobs: int, *, after_s: float) -> bool:
    """Kill a driver some time after its first attempt; False if it was faster."""
    driver = start_driver(folder, num_jobs, *BEHAVIOURS)
    assert driver.stdout is not None
    driver.stdout.readline()
    time.sleep(after_s)
    is_killed = driver.poll() is None
    if is_killed:
        os.kill(driver.pid, signal.SIGKILL)
    driver.communicate(timeout=30)
    return is_killed


def _check_end(folder: Path, num_jobs: int, num_kills: int) -> None:
    driver = start_driver(folder, num_jobs, *BEHAVIOURS)
    _, errors = driver.communicate(timeout=120)
    assert driver.returncode == 0, errors
    attempts = read_journal(folder)
    settled = settle_all(attempts)
    assert settled.keys() == {f"k{number}" for number in range(num_jobs)}
    faults = {key: end.fault.reason for key, end in settled.items() if end.fault is not None}
    assert faults == REASONS
    num_undisturbed = num_jobs + sum(reason == "crash" for reason in REASONS.values())
    # What was in flight at a kill left no line, so nothing is in the journal twice.
    assert len(attempts) == num_undisturbed
    assert num_kills > 0
    assert not [pid for pid in descendants() if _is_child_of_fleet(pid)]


def _is_child_of_fleet(pid: int) -> bool:
    return b"opsgen.child" in Path(f"/proc/{pid}/cmdline").read_bytes()


@pytest.mark.check
def test_one_kill(tmp_path: Path) -> None:
    assert _run_and_kill(tmp_path, 80, after_s=0.3)
    num_done = len(read_journal(tmp_path))
    assert 0 < num_done < 80
    _check_end(tmp_path, 80, num_kills=1)


@pytest.mark.slow
def test_twenty_kills_at_random_moments(tmp_path: Path) -> None:
    draw = random.Random(20261201)
    num_jobs, num_kills = 4000, 0
    for _ in range(20):
        num_kills += _run_and_kill(tmp_path, num_jobs, after_s=draw.uniform(0.0, 1.5))
    assert num_kills == 20
    _check_end(tmp_path, num_jobs, num_kills)
