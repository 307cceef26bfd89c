"""A driver that is interrupted or killed leaves a journal to resume from and no process."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest
from fleet_runs import read_journal, start_driver

from opsgen.fleet import Journal


@pytest.fixture(name="driver")
def _driver(tmp_path: Path) -> subprocess.Popen[str]:
    """A driver with both slots stuck."""
    driver = start_driver(tmp_path, 50, "k3=gil_sleep", "k4=hang")
    assert driver.stdout is not None
    seen = {driver.stdout.readline().strip() for _ in range(3)}
    assert seen == {"k0", "k1", "k2"}
    time.sleep(0.5)
    return driver


def _is_gone(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGKILL])
def test_a_stopped_driver(
    driver: subprocess.Popen[str], tmp_path: Path, signal_number: signal.Signals
) -> None:
    family = psutil.Process(driver.pid).children(recursive=True)
    assert len([process for process in family if "opsgen.child" in process.cmdline()]) == 2
    begin_s = time.monotonic()
    if signal_number is signal.SIGINT:
        os.killpg(driver.pid, signal.SIGINT)
    else:
        driver.kill()
    _, errors = driver.communicate(timeout=30)
    assert time.monotonic() - begin_s < 5.0
    while not all(map(_is_gone, family)) and time.monotonic() - begin_s < 10.0:
        time.sleep(0.05)
    assert [process for process in family if not _is_gone(process)] == []
    assert {attempt.key for attempt in read_journal(tmp_path)} == {"k0", "k1", "k2"}
    with Journal(tmp_path / "journal.jsonl") as journal:
        # Only who was killed with the driver is remembered for it.
        begun = {f"k{i}" for i in range(50) if journal.starts.count(("noop", f"k{i}"))}
    assert begun == (set() if signal_number is signal.SIGINT else {"k3", "k4", "k5"})
    if signal_number is signal.SIGINT:
        assert errors.count("Traceback") == 1, errors
        assert errors.rstrip().endswith("KeyboardInterrupt")
        assert [path.name for path in tmp_path.glob("opsgen-fleet-*")] == []
