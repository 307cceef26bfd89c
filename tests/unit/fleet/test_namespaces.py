"""Two hosts in network namespaces, one of them cut off in the middle: all ends exactly once.

The driver and a real `dask scheduler` stand in the root namespace. Each host is
a namespace of its own behind a bridge, with an `opsgen worker` in it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from fleet_runs import noop_requests, settle_all

from opsgen.fleet import Fleet, Journal
from opsgen.recipe import FleetConfig
from opsgen.records import Attempt, read_lines

NUM_JOBS = int(os.environ.get("OPSGEN_CUT_JOBS", "2000"))
NUM_CHILDREN = 2
CONFIG = FleetConfig(children_per_device=NUM_CHILDREN, deadlines_s={"noop": 5.0})
HERE = "10.213.77.1"
# A cable pulled out is noticed by silence only; a minute is too long for a test.
IMPATIENT = {
    "DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "5s",
    "DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP": "12s",
    "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "3s",
}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        os.getuid() != 0 or shutil.which("ip") is None, reason="needs root and iproute2"
    ),
]


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


@pytest.fixture(name="hosts")
def _hosts() -> Iterator[dict[str, str]]:
    """Two namespaces by name, with the interface that is each one's cable."""
    tag = f"og{os.getpid() % 10000}"
    cables = {f"{tag}h{number}": f"{tag}v{number}" for number in (1, 2)}
    with ExitStack() as stack:
        try:
            _ip("link", "add", tag, "type", "bridge")
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no network namespaces here: {error.stderr.strip()}")
        stack.callback(_ip, "link", "del", tag)
        _ip("addr", "add", f"{HERE}/24", "dev", tag)
        _ip("link", "set", tag, "up")
        for number, (host, cable) in enumerate(cables.items(), start=2):
            _ip("netns", "add", host)
            stack.callback(_ip, "netns", "del", host)
            _ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", host)
            _ip("link", "set", cable, "master", tag, "up")
            for words in (
                ["link", "set", "lo", "up"],
                ["addr", "add", f"10.213.77.{number}/24", "dev", "eth0"],
                ["link", "set", "eth0", "up"],
            ):
                _ip("-n", host, *words)
        yield cables


def _start(stack: ExitStack, folder: Path, *command: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, **IMPATIENT, "PYTHONPATH": os.pathsep.join(sys.path)}
    environment["TMPDIR"] = str(folder)
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, env=environment)
    stack.callback(process.wait, 30)
    stack.callback(process.terminate)
    return process


def _start_scheduler(stack: ExitStack, folder: Path) -> str:
    ready = folder / "scheduler.json"
    command = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", HERE]
    command += ["--port", "0", "--no-dashboard", "--scheduler-file", str(ready)]
    _start(stack, folder, *command)
    while True:
        try:
            return str(json.loads(ready.read_text())["address"])
        except (OSError, ValueError):
            time.sleep(0.05)


def test_a_host_that_is_cut_off(
    hosts: dict[str, str], tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    with ExitStack() as stack:
        address = _start_scheduler(stack, tmp_path)
        for host in hosts:
            folder = tmp_path / host
            folder.mkdir()
            command = [sys.executable, "-m", "opsgen", "worker", address, "--device", "cpu"]
            command += ["--children", str(NUM_CHILDREN), "--death-timeout", "60"]
            _start(stack, folder, "ip", "netns", "exec", host, *command)
        fleet = stack.enter_context(Fleet(CONFIG, "cpu", address))
        while fleet.num_slots < 2 * NUM_CHILDREN:
            time.sleep(0.1)
        journal = stack.enter_context(Journal(tmp_path / "journal.jsonl"))
        behaviours = dict.fromkeys(range(NUM_JOBS), "sleep:0.02")
        begin_s = time.monotonic()
        longest_s = last_s = 0.0
        for number, _ in enumerate(fleet.run(noop_requests(behaviours, NUM_JOBS), journal)):
            now_s = time.monotonic()
            longest_s, last_s = max(longest_s, now_s - (last_s or now_s)), now_s
            if number == NUM_JOBS // 3:
                _ip("link", "set", next(iter(hosts.values())), "down")
            if number == NUM_JOBS - NUM_JOBS // 6:
                _ip("link", "set", next(iter(hosts.values())), "up")
        wall_s = time.monotonic() - begin_s
    attempts = list(read_lines(tmp_path / "journal.jsonl", Attempt))
    settled = settle_all(attempts)
    assert settled.keys() == {f"k{number}" for number in range(NUM_JOBS)}
    assert all(end.evidence is not None for end in settled.values())
    faults = Counter(attempt.fault.reason for attempt in attempts if attempt.fault is not None)
    record_property("faults", dict(faults))
    record_property("wall", f"{wall_s:.0f} s, longest silence {longest_s:.1f} s")
    assert set(faults) <= {"worker_lost"}
    # Only what was in flight on the host that was cut off.
    assert 0 < faults.total() <= NUM_CHILDREN + 1
