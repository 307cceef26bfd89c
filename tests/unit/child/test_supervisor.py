"""Whatever a job does to its process, the supervisor says what it was and goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from children import DEADLINES, STAGE_S, answer, config_in, run

from opsgen.child import Child, ChildConfig, DeviceLease
from opsgen.child.process import MAX_LOG_BYTES, Process, child_environment
from opsgen.records import Evidence, Fault, NoopEvidence, NoopRequest


@pytest.fixture(name="child")
def _child(tmp_path: Path) -> Iterator[Child]:
    with Child(config_in(tmp_path)) as child:
        yield child
    assert list((tmp_path / "work").iterdir()) == []


def test_only_killed_children_are_replaced(child: Child) -> None:
    pids = {answer(child, name).pid for name in ("return", "nan", "stdout:1", "close_streams")}
    assert len(pids) == 1
    assert isinstance(run(child, "raise"), Fault)
    assert answer(child).pid in pids
    assert child.num_starts == 1


def test_a_fatal_signal_leaves_its_traceback_in_the_log(child: Child) -> None:
    fault = run(child, "segfault")
    assert isinstance(fault, Fault)
    assert "_segfault" in fault.log


def test_an_exception_leaves_its_traceback_in_the_log(child: Child) -> None:
    fault = run(child, "raise")
    assert isinstance(fault, Fault)
    assert fault.log.endswith("RuntimeError: raised on purpose")
    assert len(fault.log.splitlines()) <= 20


def test_noise_is_kept_out_of_the_protocol_and_bounded(child: Child) -> None:
    answer(child, "stdout:8")
    answer(child, "stderr:8")
    fault = run(child, "exit:1")
    assert isinstance(fault, Fault)
    assert fault.log == ""
    assert MAX_LOG_BYTES < 2**20


def test_numbers_that_json_lacks_come_through(child: Child) -> None:
    metrics = answer(child, "nan").metrics
    assert str(metrics) == "{'nan': nan, 'inf': inf, 'minus_inf': -inf}"


def test_a_big_answer_comes_through(tmp_path: Path) -> None:
    with Child(config_in(tmp_path, deadlines_s={"noop": 60.0}, memory_limit_gib=4.0)) as child:
        assert len(answer(child, "big:40").metrics) == 40


@pytest.mark.check
def test_an_answer_beyond_all_bounds_is_a_fault(tmp_path: Path) -> None:
    with Child(config_in(tmp_path, deadlines_s={"noop": 60.0}, memory_limit_gib=4.0)) as child:
        fault = run(child, "big:200")
        assert isinstance(fault, Fault)
        assert fault.reason == "infrastructure"
        assert "cannot be sent" in fault.detail
        answer(child)


def test_each_stage_has_its_own_deadline(child: Child) -> None:
    answer(child, "stages:build,eager,build,eager")


def test_the_stage_that_hangs_is_named(tmp_path: Path) -> None:
    deadlines = {**DEADLINES, "eager": 0.1}
    with Child(config_in(tmp_path, deadlines_s=deadlines)) as child:
        fault = run(child, "stages:build,eager,build")
    assert isinstance(fault, Fault)
    assert (fault.reason, fault.stage) == ("timeout:eager", "eager")


def test_waiting_for_the_device_is_not_charged(child: Child, tmp_path: Path) -> None:
    answer(child)
    lease = DeviceLease("cpu", tmp_path / "lease")
    with lease.hold():
        answers: list[Evidence | Fault] = []
        thread = threading.Thread(target=lambda: answers.append(run(child, "lease")))
        thread.start()
        time.sleep(2 * STAGE_S)
    thread.join()
    (evidence,) = answers
    assert isinstance(evidence, NoopEvidence), evidence
    assert evidence.metrics["wait_s"] > STAGE_S


def test_a_killed_child_gives_the_lease_up(child: Child, tmp_path: Path) -> None:
    fault = run(child, "lease:60")
    assert isinstance(fault, Fault)
    assert fault.reason == "timeout:noop"
    lease = DeviceLease("cpu", tmp_path / "lease")
    with lease.hold():
        assert lease.wait_s < 5.0


def test_dying_while_starting_is_not_the_tasks_fault(
    child: Child, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    fault = run(child, "return")
    assert isinstance(fault, Fault)
    assert (fault.reason, fault.stage) == ("infrastructure", "start")
    assert "crash while starting: exit code 1" in fault.detail


def test_a_child_that_cannot_be_started_is_not_the_tasks_fault(
    child: Child, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    fault = run(child, "return")
    assert isinstance(fault, Fault)
    assert (fault.reason, child.pid) == ("infrastructure", 0)


def test_a_fresh_process_is_one_that_served_nobody(child: Child) -> None:
    first = answer(child).pid
    assert isinstance(run(child, "return", is_fresh=True), NoopEvidence)
    assert child.pid != first


def test_children_are_recycled_after_enough_jobs(tmp_path: Path) -> None:
    with Child(config_in(tmp_path, recycle_after=3)) as child:
        pids = [answer(child).pid for _ in range(7)]
    assert [pids.count(pid) for pid in dict.fromkeys(pids)] == [3, 3, 1]


def test_children_are_recycled_when_old(tmp_path: Path) -> None:
    with Child(config_in(tmp_path, max_child_age_s=0.0)) as child:
        assert answer(child).pid != answer(child).pid


@pytest.mark.parametrize("behaviour", ["spoil", "change:folder"])
def test_a_spoiled_child_answers_but_serves_nobody_else(child: Child, behaviour: str) -> None:
    spoiled_pid = answer(child, behaviour).pid
    assert child.spoiled
    assert answer(child).pid != spoiled_pid
    assert not child.spoiled


def test_a_cancelled_job_ends_at_once_and_is_not_charged(child: Child) -> None:
    stop = threading.Event()
    threading.Timer(0.2, stop.set).start()
    request = NoopRequest(key="k", behaviour="stages:long")
    answer(child)
    fault = child.run(NoopRequest(key="k", behaviour="gil_sleep"), is_cancelled=stop.is_set)
    assert isinstance(fault, Fault)
    assert fault.reason == "worker_lost"
    assert isinstance(child.run(request), NoopEvidence)


def test_closing_from_another_thread_ends_a_job(tmp_path: Path) -> None:
    child = Child(config_in(tmp_path, deadlines_s={"noop": 60.0}))
    threading.Timer(0.4, child.close).start()
    fault = run(child, "hang")
    assert isinstance(fault, Fault)
    assert fault.reason == "worker_lost"


def test_a_child_dies_with_its_supervisor(tmp_path: Path) -> None:
    code = (
        "from opsgen.child import *; from opsgen.records import *\n"
        "child = Child(ChildConfig())\n"
        "print(child.run(NoopRequest(key='k')).pid, flush=True)\n"
        "child.run(NoopRequest(key='k', behaviour='gil_sleep'))"
    )
    supervisor = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert supervisor.stdout is not None
    pid = int(supervisor.stdout.readline())
    process = psutil.Process(pid)
    time.sleep(0.1)
    supervisor.send_signal(signal.SIGKILL)
    supervisor.wait()
    supervisor.stdout.close()
    psutil.wait_procs([process], timeout=5)
    assert not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def test_an_idle_child_leaves_when_its_supervisor_hangs_up(tmp_path: Path) -> None:
    process = Process(config_in(tmp_path))
    while not process.receive(5.0):
        pass
    process._end.close()
    assert process._popen.wait(5.0) == 0
    process.close()


def test_the_environment_is_explicit(
    child: Child, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("_TORCHINDUCTOR_PYOBJECT_TENSOR_DATA_PTR", "1")
    metrics = answer(child, "threads").metrics
    assert metrics["OMP_NUM_THREADS"] == metrics["MKL_NUM_THREADS"] == 3.0
    assert metrics["TORCHINDUCTOR_COMPILE_THREADS"] == 1.0
    config = ChildConfig(device="cuda", device_id="GPU-1")
    environment = child_environment(config, tmp_path)
    assert environment["CUDA_VISIBLE_DEVICES"] == "GPU-1"
    assert environment["TORCHINDUCTOR_CACHE_DIR"].startswith(str(tmp_path))
    assert (
        not {"MALLOC_TRIM_THRESHOLD_", "_TORCHINDUCTOR_PYOBJECT_TENSOR_DATA_PTR"}
        & environment.keys()
    )


@pytest.mark.skipif(sys.platform != "linux", reason="oom_score_adj is Linux's")
def test_a_child_goes_first_when_memory_runs_out(child: Child) -> None:
    pid = answer(child).pid
    assert Path(f"/proc/{pid}/oom_score_adj").read_text().strip() == "900"
    assert os.getsid(pid) == os.getpgid(pid) == pid
