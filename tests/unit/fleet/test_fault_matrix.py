"""Every fault among fifty good jobs: one final record each, the right reason, nobody else hurt."""

from __future__ import annotations

import math
import os
from pathlib import Path

import msgspec
import pytest
from fleet_runs import NUM_CHILDREN, client_of, descendants, noop_requests, settle_all

from opsgen.fleet import Fleet, Journal
from opsgen.recipe import FleetConfig
from opsgen.records import Attempt, NoopEvidence, read_lines

CONFIG = FleetConfig(
    children_per_device=NUM_CHILDREN,
    memory_limit_gib=1.0,
    deadlines_s={"start": 60.0, "noop": 2.5, "allocate": 20.0},
)
FAULTS = {
    "raise": "raised",
    "base_exception": "raised",
    "system_exit:3": "raised",
    "surrogate": "raised",
    "segfault": "crash",
    "abort": "crash",
    "exit:0": "crash",
    "exit:3": "crash",
    "orphan:exit": "crash",
    "close_all": "crash",
    "hang": "timeout:noop",
    "sigstop": "timeout:noop",
    "gil_sleep": "timeout:noop",
    "allocate:4": "host_oom",
    "cuda_sticky": "cuda_sticky",
    "gpu_oom": "gpu_oom",
    "measure_error": "infrastructure",
    "unsendable": "infrastructure",
    "bomb": "crash",
}
"""What must be the end of it."""
ODD = (
    "orphan",
    "escape",
    "stdout:100",
    "stderr:100",
    "close_streams",
    "nan",
    "spoil",
    "chdir",
)
"""Odd, but an answer."""
BIG = "infrastructure"
"""No frame carries such an answer."""
NUM_GOOD = 50


@pytest.mark.check
def test_every_fault_among_good_jobs(tmp_path: Path) -> None:
    before = set(descendants())
    oddities = [*FAULTS, *ODD]
    behaviours = {3 * number + 1: name for number, name in enumerate(oddities)}
    num_jobs = NUM_GOOD + len(oddities)
    with Fleet(CONFIG, "cpu") as fleet, Journal(tmp_path / "journal.jsonl") as journal:
        workers = client_of(fleet).run(os.getpid)
        for _ in fleet.run(noop_requests(behaviours, num_jobs), journal):
            pass
        assert client_of(fleet).run(os.getpid) == workers
    assert set(descendants()) - before == set()

    settled = settle_all(read_lines(tmp_path / "journal.jsonl", Attempt))
    assert settled.keys() == {f"k{number}" for number in range(num_jobs)}
    reasons = {
        behaviours.get(int(key[1:]), "return"): end.fault.reason
        for key, end in settled.items()
        if end.fault is not None
    }
    assert reasons == FAULTS
    for end in settled.values():
        assert end.fault is None or len(end.fault.log) < 100_000
    (odd,) = (end.evidence for key, end in settled.items() if behaviours.get(int(key[1:])) == "nan")
    assert isinstance(odd, NoopEvidence)
    assert math.isnan(odd.metrics["nan"])
    assert odd.metrics["inf"] == math.inf


@pytest.mark.slow
def test_an_answer_of_200_megabytes(tmp_path: Path) -> None:
    config = msgspec.structs.replace(CONFIG, memory_limit_gib=8.0, deadlines_s={"noop": 60.0})
    with Fleet(config, "cpu") as fleet, Journal(tmp_path / "journal.jsonl") as journal:
        attempts = list(fleet.run(noop_requests({1: "big:200"}, 8), journal))
    settled = settle_all(attempts)
    assert len(settled) == 8
    big = settled.pop("k1")
    assert big.fault is not None
    assert big.fault.reason == BIG
    assert all(end.evidence is not None for end in settled.values())
    assert journal.path.stat().st_size < 100_000
