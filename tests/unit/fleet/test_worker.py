"""What a worker gives its children, and what it tells of them."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from fleet_runs import noop_requests

from opsgen.child import Gpu, cores
from opsgen.errors import MeasureError
from opsgen.fleet import Fleet, Journal, worker
from opsgen.fleet.orders import Settings
from opsgen.recipe import FleetConfig

_GPUS = [Gpu(uuid=f"GPU-{number}", name="H200", driver="570") for number in range(2)]


@pytest.fixture(name="host")
def _host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A host of 32 cores and two GPUs, whose second worker has twelve children."""
    host = SimpleNamespace(name="1", state=SimpleNamespace(nthreads=12), local_directory=tmp_path)
    monkeypatch.setattr(worker, "get_worker", lambda: host)
    monkeypatch.setattr(worker, "list_gpus", lambda: list(_GPUS))
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(32)))
    monkeypatch.setattr(cores, "cpu_affinity", lambda uuid: None)
    monkeypatch.setattr(cores, "_read_siblings", lambda these: {})
    monkeypatch.delenv(worker.DEVICE_VARIABLE, raising=False)
    return host


def _settings(device: str, **fleet: int) -> Settings:
    return Settings(device=device, fleet=FleetConfig(**fleet))  # type: ignore[arg-type]


def test_children_of_a_gpu_get_its_cores(host: SimpleNamespace) -> None:
    config = worker._child_config(_settings("cuda"))
    assert config.device_id == "GPU-1"
    assert config.timing_cores == (16, 17)
    assert config.other_cores == tuple(range(18, 32))
    assert config.num_threads == 1
    host.state.nthreads = 3
    assert worker._child_config(_settings("cuda")).num_threads == 14 // 3
    assert worker._child_config(_settings("cuda", timing_cores=0)).num_threads == 16 // 3


def test_a_host_may_say_which_gpu_a_worker_has(
    host: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(worker.DEVICE_VARIABLE, "GPU-0")
    config = worker._child_config(_settings("cuda"))
    assert (config.device_id, config.timing_cores) == ("GPU-0", (0, 1))


def test_children_of_a_cpu_run_wherever_they_may(host: SimpleNamespace) -> None:
    config = worker._child_config(_settings("cpu"))
    assert (config.device_id, config.num_threads) == ("cpu", 1)
    assert config.timing_cores == config.other_cores == ()


def test_no_gpu_is_the_machines_fault(
    host: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "list_gpus", list)
    with pytest.raises(MeasureError, match="no GPU"):
        worker._child_config(_settings("cuda"))


def test_attempts_tell_how_long_they_held_the_device(tmp_path: Path) -> None:
    config = FleetConfig(children_per_device=1, deadlines_s={"start": 60.0, "noop": 1.0})
    behaviours = {0: "lease:60", 1: "lease:0.3", 2: "return"}
    with Fleet(config, "cpu") as fleet, Journal(tmp_path / "journal.jsonl") as journal:
        list(fleet.run(noop_requests(behaviours, 3), journal))
        attempts = list(journal.attempts())
    killed = [attempt for attempt in attempts if attempt.key == "k0"]
    assert {attempt.fault.reason for attempt in killed if attempt.fault} == {"timeout:noop"}
    assert len(killed) == 2
    assert all(0.5 < attempt.hold_s < attempt.wall_s for attempt in killed)
    answered = {attempt.key: attempt for attempt in attempts if attempt.evidence}
    assert 0.25 < answered["k1"].hold_s < answered["k1"].wall_s
    assert answered["k2"].hold_s == 0.0
