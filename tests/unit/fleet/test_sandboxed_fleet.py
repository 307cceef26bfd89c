"""A fleet whose recipe asks for it runs every job shut in, on its own workers and on others'."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from distributed import LocalCluster
from fleet_runs import CONFIG, NUM_CHILDREN, noop_requests, settle_all

from opsgen.child import describe_layers
from opsgen.fleet import Fleet, Journal
from opsgen.records import NoopEvidence

pytestmark = pytest.mark.check

NUM = 12


@pytest.fixture(scope="module", autouse=True)
def _layers() -> None:
    missing = [layer for layer in describe_layers() if layer.is_required and not layer.holds]
    if missing:
        pytest.skip(f"no {missing[0].name} layer here: {missing[0].obstacle}")


def reached(folder: Path, *, is_shut: bool, scheduler: str | None = None) -> set[bool]:
    """Run jobs of which most connect to a server here; return whether any and all did."""
    config = msgspec.structs.replace(CONFIG, sandbox=is_shut)
    with socket.create_server(("127.0.0.1", 0)) as server:
        what = f"attempt:connect,127.0.0.1:{server.getsockname()[1]}"
        requests = noop_requests(dict.fromkeys(range(NUM), what) | {3: "segfault"}, NUM)
        with (
            Fleet(config, "cpu", scheduler) as fleet,
            Journal(folder / "journal.jsonl") as journal,
        ):
            settled = settle_all(fleet.run(requests, journal))
    assert len(settled) == NUM
    evidence = {key: one.attempt.evidence for key, one in settled.items()}
    answers = [one for one in evidence.values() if isinstance(one, NoopEvidence)]
    assert len(answers) == NUM - 1
    assert evidence["k3"] is None
    return {answer.metrics["errno"] == 0.0 for answer in answers}


@pytest.mark.parametrize("is_shut", [False, True])
def test_jobs_of_a_fleet_of_its_own(tmp_path: Path, is_shut: bool) -> None:
    assert reached(tmp_path, is_shut=is_shut) == {not is_shut}


def test_jobs_on_a_host_that_joined(tmp_path: Path) -> None:
    with LocalCluster(n_workers=0, dashboard_address=None, silence_logs=50) as cluster:
        address = str(cluster.scheduler_address)
        command = [sys.executable, "-m", "opsgen", "worker", address, "--device", "cpu"]
        environment = {**os.environ, "TMPDIR": str(tmp_path)}
        with subprocess.Popen(
            [*command, "--children", str(NUM_CHILDREN)],
            stderr=subprocess.DEVNULL,
            env=environment,
        ) as worker:
            try:
                assert reached(tmp_path, is_shut=True, scheduler=address) == {False}
                assert reached(tmp_path, is_shut=False, scheduler=address) == {True}
            finally:
                worker.terminate()
                worker.wait(20.0)
    assert [path.name for path in tmp_path.glob("opsgen-*") if "lease" not in path.name] == []
