"""Hosts join a scheduler, leave it without a trace, and must run the same software."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from distributed import LocalCluster
from fleet_runs import CONFIG, client_of, is_alive, noop_requests, settle_all

from opsgen.errors import MeasureError, UsageError
from opsgen.fleet import Fleet, Journal

pytestmark = pytest.mark.check

_OTHER_VERSION = """
from importlib import metadata
_version = metadata.version
metadata.version = lambda name: "0.0.9" if name == "opsgen" else _version(name)
"""


@pytest.fixture(name="scheduler")
def _scheduler() -> Iterator[str]:
    with LocalCluster(n_workers=0, dashboard_address=None, silence_logs=50) as cluster:
        yield str(cluster.scheduler_address)


@contextmanager
def _worker(address: str, folder: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    search_path = os.pathsep.join([str(folder), *sys.path])
    command = [sys.executable, "-m", "opsgen", "worker", address, "--device", "cpu", *options]
    worker = subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "TMPDIR": str(folder), "PYTHONPATH": search_path},
    )
    try:
        yield worker
    finally:
        worker.kill()
        worker.communicate()


def _family(process: subprocess.Popen[str]) -> list[int]:
    found = psutil.Process(process.pid).children(recursive=True)
    return [each.pid for each in found if "resource_tracker" not in " ".join(each.cmdline())]


def _wait_until_gone(pids: list[int], max_s: float) -> None:
    begin_s = time.monotonic()
    while any(map(is_alive, pids)):
        assert time.monotonic() - begin_s < max_s
        time.sleep(0.02)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_host_works_and_leaves(scheduler: str, tmp_path: Path, number: signal.Signals) -> None:
    with _worker(scheduler, tmp_path, "--children", "2") as worker:
        with (
            Fleet(CONFIG, "cpu", scheduler) as fleet,
            Journal(tmp_path / "journal.jsonl") as journal,
        ):
            assert fleet.num_slots == 2
            assert client_of(fleet).run(os.getenv, "OPSGEN_DEVICE_ID").popitem()[1] == "cpu"
            attempts = list(fleet.run(noop_requests({4: "segfault"}, 12), journal))
            family = _family(worker)
            assert {attempt.pid for attempt in attempts} & set(family)
            if number is signal.SIGINT:
                os.killpg(worker.pid, number)
            else:
                worker.send_signal(number)
            worker.wait(10)
            _wait_until_gone(family, 5.0)
        if number is not signal.SIGKILL:
            assert worker.returncode == 0
            assert worker.stderr is not None
            (line,) = worker.stderr.read().splitlines()
            assert line.startswith(f"cpu: joined {scheduler} as tcp://")
            assert list(tmp_path.glob("opsgen-fleet-*")) == []
    assert len(settle_all(attempts)) == 12


def test_the_next_host_sweeps_after_a_dead_one(scheduler: str, tmp_path: Path) -> None:
    for _ in range(2):
        with _worker(scheduler, tmp_path) as worker:
            assert worker.stderr is not None
            assert worker.stderr.readline().startswith("cpu: joined")
            assert len(list(tmp_path.glob("opsgen-fleet-*"))) == 1
            worker.kill()


def test_no_scheduler_is_one_line(tmp_path: Path) -> None:
    with _worker("tcp://127.0.0.1:9", tmp_path, "--death-timeout", "0.5") as worker:
        _, errors = worker.communicate(timeout=20)
    assert worker.returncode == 2
    assert errors == "opsgen: no scheduler answers at tcp://127.0.0.1:9\n"


def test_another_version_is_named(scheduler: str, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(_OTHER_VERSION)
    with (
        _worker(scheduler, tmp_path),
        pytest.raises(UsageError, match=r"^the worker tcp://\S+ has opsgen 0\.0\.9, this process"),
        Fleet(CONFIG, "cpu", scheduler),
    ):
        pass


def test_a_scheduler_that_dies_ends_the_run_and_the_host(tmp_path: Path) -> None:
    ready = tmp_path / "scheduler.json"
    command = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--port", "0"]
    command += ["--host", "127.0.0.1", "--no-dashboard", "--scheduler-file", str(ready)]
    scheduler = subprocess.Popen(command, stderr=subprocess.DEVNULL, cwd=tmp_path)
    while not ready.exists() or not ready.read_text().rstrip().endswith("}"):
        time.sleep(0.05)
    address = ready.read_text().partition('"address": "')[2].partition('"')[0]
    with (
        _worker(address, tmp_path, "--death-timeout", "1") as worker,
        Journal(tmp_path / "journal.jsonl") as journal,
    ):
        with Fleet(CONFIG, "cpu", address) as fleet:
            behaviours = dict.fromkeys(range(200), "sleep:0.02")
            stream = fleet.run(noop_requests(behaviours, 200), journal)
            done = [next(stream) for _ in range(10)]
            family = _family(worker)
            scheduler.kill()
            begin_s = time.monotonic()
            with pytest.raises(MeasureError, match=r"the scheduler is gone.*run again") as raised:
                done += stream
            assert "\n" not in str(raised.value)
        assert time.monotonic() - begin_s < 20.0
        _, errors = worker.communicate(timeout=20)
        assert worker.returncode == 3
        assert errors.splitlines()[-1] == f"opsgen: the scheduler at {address} is gone"
        _wait_until_gone(family, 1.0)
        assert len(done) == len(list(journal.attempts())) >= 10
        assert all(journal.starts.count(("noop", f"k{i}")) == 0 for i in range(200))
    scheduler.wait()
