"""A job that takes the driver down each time is put aside, and nobody else is."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from fleet_runs import read_journal, settle_all, start_driver

from opsgen.fleet.starts import StartLine
from opsgen.records import read_lines

pytestmark = pytest.mark.check

KILLER = "k7"
NUM_JOBS = 40


def _starts(folder: Path) -> dict[str, int]:
    path = folder / "journal-started.jsonl"
    return {line.key: line.num_starts for line in read_lines(path, StartLine)}


def _lose_to_killer(driver: subprocess.Popen[str], folder: Path, num_known: int) -> bool:
    """Kill the driver once its killer has begun anew; False if it never does."""
    while driver.poll() is None:
        path = folder / "journal-started.jsonl"
        lines = [line for line in read_lines(path, StartLine) if line.key == KILLER]
        if lines and lines[-1].num_starts > num_known:
            time.sleep(0.3)
            os.kill(driver.pid, signal.SIGKILL)
            driver.communicate(timeout=20)
            return True
        time.sleep(0.01)
    return False


def test_a_killer_is_put_aside_after_three_times(tmp_path: Path) -> None:
    for num_known in range(3):
        driver = start_driver(tmp_path, NUM_JOBS, f"{KILLER}=sleep:50", "all=sleep:0.02")
        assert _lose_to_killer(driver, tmp_path, num_known)
    # The third time it ran when nothing else was left, but for those that had been under way
    # beside it both times before: they are suspects too, and each is tried alone.
    settled = settle_all(read_journal(tmp_path))
    left = {f"k{number}" for number in range(NUM_JOBS)} - settled.keys()
    starts = _starts(tmp_path)
    assert starts[KILLER] == 3
    assert all(starts[key] == 2 for key in left - {KILLER})
    assert len(left) <= NUM_JOBS // 4
    driver = start_driver(tmp_path, NUM_JOBS, f"{KILLER}=sleep:50", "all=sleep:0.02")
    _, errors = driver.communicate(timeout=60)
    assert driver.returncode == 0, errors
    settled = settle_all(read_journal(tmp_path))
    assert len(settled) == NUM_JOBS
    guilty = settled.pop(KILLER)
    assert guilty.fault is not None
    assert guilty.fault.reason == "crash_loop"
    assert not guilty.is_deferred
    assert all(end.evidence is not None for end in settled.values())
    assert not any(_starts(tmp_path).values())
