"""A driver that is interrupted or killed leaves a journal to resume from and no process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from opsgen.records import Attempt, read_lines

_DRIVER = """
import sys
from pathlib import Path
from opsgen.fleet import Fleet, Journal
from opsgen.recipe import FleetConfig
from opsgen.records import NoopRequest

def main():
    folder = Path(sys.argv[1])
    slow = {3: "gil_sleep", 4: "hang"}
    requests = [
        (f"k{i}", NoopRequest(key=f"k{i}", behaviour=slow.get(i, "return"))) for i in range(50)
    ]
    config = FleetConfig(children_per_device=2, deadlines_s={"noop": 60.0})
    with Fleet(config, "cpu") as fleet, Journal(folder / "journal.jsonl") as journal:
        for attempt in fleet.run(requests, journal):
            print(attempt.key, flush=True)

if __name__ == "__main__":
    main()
"""


@pytest.fixture(name="driver")
def _driver(tmp_path: Path) -> subprocess.Popen[str]:
    """A driver in a process group of its own, as a terminal gives it, with both slots stuck."""
    script = tmp_path / "driver.py"
    script.write_text(_DRIVER)
    driver = subprocess.Popen(
        [sys.executable, str(script), str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)},
    )
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
    assert {attempt.key for attempt in read_lines(tmp_path / "journal.jsonl", Attempt)} == {
        "k0",
        "k1",
        "k2",
    }
    if signal_number is signal.SIGINT:
        assert errors.count("Traceback") == 1, errors
        assert errors.rstrip().endswith("KeyboardInterrupt")
        assert [path.name for path in tmp_path.glob("opsgen-fleet-*")] == []
