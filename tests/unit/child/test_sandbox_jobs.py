"""A sandboxed child does all that children do, and nothing of it is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil
import pytest
from children import alive_in, answer, config_in, fault

from opsgen.child import Child, describe_layers
from opsgen.child.frames import Job, Ready, Result
from opsgen.child.process import Process
from opsgen.child.sandbox import lone_user
from opsgen.records import (
    Environment,
    EnvironmentRequest,
    MeasureEvidence,
    MeasureRequest,
    NoopRequest,
    ProbeEvidence,
    ProbeRequest,
)
from opsgen.source import foreign_task

CODE = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(width))

    def forward(self, x):
        return torch.softmax(torch.tanh(x * self.scale), dim=-1)


def get_inputs():
    return [torch.randn(64, 128)]


def get_init_inputs():
    return [128]
"""


@pytest.fixture(scope="module", autouse=True)
def _layers() -> None:
    missing = [layer for layer in describe_layers() if layer.is_required and not layer.holds]
    if missing:
        pytest.skip(f"no {missing[0].name} layer here: {missing[0].obstacle}")


@pytest.fixture(name="child")
def _child(tmp_path: Path) -> Iterator[Child]:
    with Child(config_in(tmp_path, sandbox=True)) as child:
        yield child
    assert list((tmp_path / "work").iterdir()) == []
    assert alive_in(tmp_path / "work") == []


def users_of(pid: int) -> set[int]:
    return set(psutil.Process(pid).uids())


def alive_as(user: int) -> list[int]:
    found = []
    for process in psutil.process_iter(["uids", "status"]):
        uids, status = process.info["uids"], process.info["status"]
        if uids is not None and uids.real == user and status != psutil.STATUS_ZOMBIE:
            found.append(process.pid)
    return found


def test_one_child_serves_many_jobs_and_leaves_nothing_to_spoil_them(child: Child) -> None:
    for _ in range(20):
        answer(child)
        assert child.spoiled == ""
    assert fault(child, "raise").reason == "raised"
    answer(child)
    assert child.num_starts == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only an administrator can give up being one")
def test_every_child_is_a_user_of_its_own(child: Child, tmp_path: Path) -> None:
    if not next(layer for layer in describe_layers() if layer.name == "user").holds:
        pytest.skip("another user cannot read the interpreter here")
    first = answer(child).pid
    assert users_of(first) == {lone_user(first)}
    with Child(config_in(tmp_path, sandbox=True)) as other:
        second = answer(other).pid
        assert users_of(second) == {lone_user(second)} != users_of(first)


def test_children_are_recycled(tmp_path: Path) -> None:
    with Child(config_in(tmp_path, sandbox=True, recycle_after=2)) as child:
        pids = [answer(child).pid for _ in range(5)]
    assert len(set(pids)) == 3
    assert list((tmp_path / "work").iterdir()) == []


def test_a_work_folder_may_lie_in_shared_memory(tmp_path: Path) -> None:
    folder = Path(f"/dev/shm/opsgen-test-{os.getpid()}")
    folder.mkdir()
    try:
        config = msgspec.structs.replace(config_in(tmp_path, sandbox=True), work_dir=str(folder))
        with Child(config) as child:
            assert answer(child, "attempt:write,file").metrics["errno"] == 0.0
            answer(child, f"attempt:write,{folder}/file")
            assert not (folder / "file").exists()
        assert list(folder.iterdir()) == []
    finally:
        folder.rmdir()


def test_what_is_shown_can_be_read_and_its_neighbours_cannot(tmp_path: Path) -> None:
    folder = tmp_path / "closed"
    folder.mkdir()
    for name in ("shown", "neighbour"):
        (folder / name).write_text("a table")
    folder.chmod(0o700)
    config = config_in(tmp_path, sandbox=True)
    config = msgspec.structs.replace(config, shown=(str(folder / "shown"),))
    with Child(config) as child:
        assert answer(child, f"attempt:read,{folder / 'shown'}").metrics["errno"] == 0.0
        assert answer(child, f"attempt:write,{folder / 'shown'}").metrics["errno"] > 0.0
        assert answer(child, f"attempt:read,{folder / 'neighbour'}").metrics["errno"] > 0.0


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [
        ("segfault", "crash"),
        ("exit:3", "crash"),
        ("sigkill", "crash"),
        ("sigstop", "timeout:noop"),
        ("escape:hang", "timeout:noop"),
        ("gil_sleep", "timeout:noop"),
        ("helpers:300", "crash"),
        ("bomb", "crash"),
        ("allocate:1", "host_oom"),
        ("channel_noise", "crash"),
        ("close_all", "crash"),
    ],
)
def test_faults_keep_their_reasons(child: Child, behaviour: str, reason: str) -> None:
    assert fault(child, behaviour).reason == reason
    answer(child)


@pytest.mark.skipif(os.geteuid() != 0, reason="only a user of its own gives a helper away")
def test_a_helper_without_an_environment_is_found(child: Child) -> None:
    user = lone_user(answer(child).pid)
    assert fault(child, "vanish").reason == "crash"
    assert alive_as(user) == []


@pytest.mark.check
@pytest.mark.parametrize("is_shut", [False, True])
def test_litter_is_removed(tmp_path: Path, is_shut: bool) -> None:
    precious = tmp_path / "precious"
    precious.mkdir(mode=0o500)
    (precious / "file").touch()
    with Child(config_in(tmp_path, sandbox=is_shut)) as child:
        answer(child, f"litter:{precious}")
        (folder,) = (tmp_path / "work").iterdir()
        assert len(list((folder / "work" if is_shut else folder).glob("tmp/*"))) == 2
    assert list((tmp_path / "work").iterdir()) == []
    assert (precious / "file").exists()
    assert precious.stat().st_mode & 0o777 == 0o500


def test_children_exclude_each_other_from_the_device(tmp_path: Path) -> None:
    config = config_in(tmp_path, sandbox=True)
    holder = Process(config)
    try:
        holder.send(Job(request=NoopRequest(key="a", behaviour="lease:0.8")))
        answers = []
        with Child(config) as child:
            answer(child)
            answers.append(answer(child, "lease:0.1").metrics)
            while not (found := [m for m in holder.receive(1.0) if isinstance(m, Result)]):
                pass
        answers.append(found[0].evidence.metrics)  # type: ignore[union-attr]
    finally:
        holder.close()
    first, second = sorted(answers, key=lambda one: one["begin_s"])
    assert second["begin_s"] >= first["end_s"]


def test_a_process_that_loads_jobs_ahead_is_shut_in_as_well(tmp_path: Path) -> None:
    process = Process(config_in(tmp_path, sandbox=True), ("noop",))
    try:
        while not any(isinstance(message, Ready) for message in process.receive(1.0)):
            assert not process.has_exited()
        status = Path(f"/proc/{process.pid}/status").read_text()
        assert "NoNewPrivs:\t1" in status
        assert "CapEff:\t0000000000000000" in status
    finally:
        process.close()


DRIVER = """
import sys
from pathlib import Path
from children import config_in
from opsgen.child import Child
from opsgen.records import NoopRequest

folder = Path(sys.argv[1])
with Child(config_in(folder, sandbox=True)) as child:
    print(child.run(NoopRequest(key="k")).pid, flush=True)
    child.run(NoopRequest(key="k", behaviour="stages:long"))
    child.run(NoopRequest(key="k", behaviour="sleep:60"))
"""


def test_a_child_dies_with_its_supervisor(tmp_path: Path) -> None:
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    with subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(tmp_path)],
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": path},
    ) as driver:
        assert driver.stdout is not None
        pid = int(driver.stdout.readline())
        time.sleep(0.5)
        assert psutil.pid_exists(pid)
        driver.send_signal(signal.SIGKILL)
    give_up_s = time.monotonic() + 5.0
    while alive_in(tmp_path / "work"):
        assert time.monotonic() < give_up_s
        time.sleep(0.05)


@pytest.mark.check
def test_torch_and_a_compiler_work_inside(tmp_path: Path) -> None:
    task = foreign_task(CODE, origin="planted")
    config = config_in(tmp_path, sandbox=True, memory_limit_gib=4.0, deadlines_s={})
    measuring = MeasureRequest(
        task=task, device="cpu", modes=("eager", "compile"), max_s_per_mode=0.02, seed=1
    )
    with Child(config) as child:
        environment = child.run(EnvironmentRequest(device="cpu"))
        assert isinstance(environment, Environment), environment
        assert environment.problems == ()
        probe = child.run(ProbeRequest(task=task, seed=1))
        assert isinstance(probe, ProbeEvidence), probe
        assert probe.failure is None
        for _ in range(2):
            measured = child.run(measuring)
            assert isinstance(measured, MeasureEvidence), measured
            assert measured.failure is None
            assert measured.num_generated_kernels
            assert child.spoiled == ""
        assert child.num_starts == 1
    assert list((tmp_path / "work").iterdir()) == []
