"""A hundred thousand no-op jobs: memory stays flat, and each costs little.

OPSGEN_SOAK_JOBS sets another size.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from fleet_runs import NUM_CHILDREN, client_of, noop_requests

from opsgen.fleet import Fleet, Journal
from opsgen.recipe import FleetConfig
from opsgen.records import Attempt, NoopRequest, Request, read_lines

pytestmark = pytest.mark.slow

NUM_JOBS = int(os.environ.get("OPSGEN_SOAK_JOBS", "100000"))
CONFIG = FleetConfig(children_per_device=NUM_CHILDREN, recycle_after=1000)
MAX_CPU_S_PER_JOB = 0.010
MAX_BYTES_PER_JOB = 200
"""What the ledger remembers of a job that is done, and room for noise."""


def _many(num: int, pulled: list[int]) -> Iterator[tuple[str, Request]]:
    for number in range(num):
        pulled[0] += 1
        yield f"k{number}", NoopRequest(key=f"k{number}")


@pytest.mark.parametrize("place", ["here", "elsewhere"])
def test_memory_is_flat(
    tmp_path: Path, record_property: Callable[[str, object], None], place: str
) -> None:
    scheduler = _start_scheduler(tmp_path) if place == "elsewhere" else None
    driver = psutil.Process()
    watched = {"client": driver} if scheduler else {"client and scheduler": driver}
    if scheduler:
        watched["scheduler"] = psutil.Process(scheduler[0].pid)
    samples: dict[str, list[int]] = {name: [] for name in watched}
    pulled, num_done = [0], 0
    with (
        Fleet(CONFIG, "cpu", scheduler and scheduler[2]) as fleet,
        Journal(tmp_path / "journal.jsonl") as journal,
    ):
        (worker,) = client_of(fleet).run(os.getpid).values()
        watched["worker"], samples["worker"] = psutil.Process(worker), []
        begin_s = time.monotonic()
        cpu_s = {name: _cpu_s(process) for name, process in watched.items()}
        for attempt in fleet.run(_many(NUM_JOBS, pulled), journal):
            assert attempt.evidence is not None
            num_done += 1
            assert pulled[0] - num_done <= NUM_CHILDREN + 1
            if num_done % max(1, NUM_JOBS // 20) == 0:
                for name, process in watched.items():
                    samples[name].append(process.memory_info().rss)
        cpu_s = {name: _cpu_s(process) - cpu_s[name] for name, process in watched.items()}
        wall_s = time.monotonic() - begin_s
    if scheduler:
        for process in scheduler[:2]:
            process.terminate()
            process.wait(20)
    for name, rss in samples.items():
        growth = (rss[-1] - rss[len(rss) // 2]) / (NUM_JOBS / 2)
        mib = [round(each / 2**20) for each in rss]
        record_property(name, f"{mib} MiB, {growth:.0f} B a job at last")
        record_property(f"{name}, CPU", f"{1e3 * cpu_s[name] / NUM_JOBS:.2f} ms a job")
        assert growth < max(MAX_BYTES_PER_JOB, 8e6 / NUM_JOBS), (name, mib)
    record_property("jobs", f"{NUM_JOBS} in {wall_s:.0f} s")
    assert sum(cpu_s.values()) - cpu_s["worker"] < MAX_CPU_S_PER_JOB * NUM_JOBS
    keys = {attempt.key for attempt in read_lines(tmp_path / "journal.jsonl", Attempt)}
    assert num_done == NUM_JOBS == len(keys)
    assert (tmp_path / "journal-started.jsonl").stat().st_size < 2_000_000
    assert noop_requests({}, 1)[0][0] in keys


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _start_scheduler(
    folder: Path,
) -> tuple[subprocess.Popen[bytes], subprocess.Popen[bytes], str]:
    """Start a `dask scheduler` and an `opsgen worker`."""
    ready = folder / "scheduler.json"
    command = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--port", "0"]
    command += ["--host", "127.0.0.1", "--no-dashboard", "--scheduler-file", str(ready)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    scheduler = subprocess.Popen(command, stderr=subprocess.DEVNULL, env=environment)
    while not ready.exists() or not ready.read_text().rstrip().endswith("}"):
        time.sleep(0.05)
    address = ready.read_text().partition('"address": "')[2].partition('"')[0]
    command = [sys.executable, "-m", "opsgen", "worker", address, "--device", "cpu"]
    worker = subprocess.Popen(command, stderr=subprocess.DEVNULL, env=environment)
    return scheduler, worker, address
