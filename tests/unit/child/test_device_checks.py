"""The device is checked after a holder that died, and every so many holds, by whoever can."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from children import answer, config_in, fault

from opsgen.child import CHECK_EVERY, Child, DeviceLease, lease, list_gpus, list_pids
from opsgen.errors import MeasureError

_DOOMED = """
import os, signal, sys, pathlib
from opsgen.child import DeviceLease
with DeviceLease(sys.argv[2], pathlib.Path(sys.argv[1])).hold():
    os.kill(os.getpid(), signal.SIGKILL)
"""


class _Verifier:
    """Notes how it was called, and fails as often as told."""

    def __init__(self, num_failures: int = 0) -> None:
        self.calls: list[bool] = []
        self.num_failures = num_failures

    def __call__(self, is_suspect: bool) -> None:
        self.calls.append(is_suspect)
        if self.num_failures:
            self.num_failures -= 1
            raise MeasureError("the device is sick")


def _lease(folder: Path, verifier: _Verifier | None = None) -> DeviceLease:
    made = DeviceLease("gpu", folder)
    made.verifier = verifier
    made.list_pids = lambda device_id: None
    return made


def _hold(device: DeviceLease, times: int = 1) -> None:
    for _ in range(times):
        with device.hold():
            assert device.logbook.read().holder == os.getpid()
    assert device.logbook.read().holder == 0


def _die_in_a_hold(folder: Path, device_id: str = "gpu") -> int:
    doomed = subprocess.Popen([sys.executable, "-c", _DOOMED, str(folder), device_id])
    assert doomed.wait() == -9
    return doomed.pid


def test_holders_that_leave_ask_for_no_check(tmp_path: Path) -> None:
    verifier = _Verifier()
    with pytest.raises(KeyError), _lease(tmp_path, verifier).hold():
        raise KeyError
    _hold(_lease(tmp_path, verifier))
    assert verifier.calls == []


def test_the_next_after_a_killed_holder_checks_once(tmp_path: Path) -> None:
    pid = _die_in_a_hold(tmp_path)
    verifier = _Verifier()
    device = _lease(tmp_path, verifier)
    assert device.logbook.read().holder == pid
    _hold(device, 3)
    assert verifier.calls == [True]


def test_a_check_falls_due_after_so_many_holds_of_all(tmp_path: Path) -> None:
    verifier = _Verifier()
    first, second = _lease(tmp_path, verifier), _lease(tmp_path, verifier)
    _hold(first, CHECK_EVERY // 2)
    _hold(second, CHECK_EVERY - CHECK_EVERY // 2)
    assert verifier.calls == []
    _hold(second, CHECK_EVERY)
    assert verifier.calls == [False]
    _hold(first)
    assert verifier.calls == [False, False]


def test_inner_holds_do_not_count(tmp_path: Path) -> None:
    verifier = _Verifier()
    outer, inner = _lease(tmp_path, verifier), _lease(tmp_path, verifier)
    with outer.hold():
        for _ in range(CHECK_EVERY):
            with inner.hold():
                pass
    assert outer.logbook.read().num_holds == 1
    assert verifier.calls == []


def test_who_cannot_check_leaves_it_to_the_next(tmp_path: Path) -> None:
    _die_in_a_hold(tmp_path)
    _hold(_lease(tmp_path), 3)
    verifier = _Verifier()
    _hold(_lease(tmp_path, verifier), 2)
    assert verifier.calls == [True]
    _hold(_lease(tmp_path), 2 * CHECK_EVERY)
    _hold(_lease(tmp_path, verifier))
    assert verifier.calls == [True, False]


def test_a_check_that_fails_frees_the_device_and_stays_due(tmp_path: Path) -> None:
    verifier = _Verifier(num_failures=2)
    device = _lease(tmp_path, verifier)
    _hold(device, CHECK_EVERY)
    for _ in range(2):
        with pytest.raises(MeasureError, match="sick"), device.hold():
            pytest.fail("the device was used")
        assert not device.is_held
    _hold(device, 2)
    assert verifier.calls == [False, True, True]


def test_whoever_dies_in_a_check_leaves_it_due(tmp_path: Path) -> None:
    verifier = _Verifier()
    device = _lease(tmp_path, verifier)
    _hold(device, CHECK_EVERY)
    pid = os.fork()
    if pid == 0:
        device.verifier = lambda is_suspect: os._exit(3)
        with device.hold():
            os._exit(4)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3
    _hold(device)
    assert verifier.calls == [True]


def test_a_fork_in_a_hold_neither_ends_nor_spoils_it(tmp_path: Path) -> None:
    verifier = _Verifier()
    device = _lease(tmp_path, verifier)
    with device.hold():
        pid = os.fork()
        if pid == 0:
            device._leave()  # As the end of the block would.
            os._exit(0)
        os.waitpid(pid, 0)
        assert device.logbook.read().holder == os.getpid()
    _hold(device)
    assert verifier.calls == []


def test_a_verifier_may_take_the_lease_and_set_the_reference(tmp_path: Path) -> None:
    _die_in_a_hold(tmp_path)
    device = _lease(tmp_path)

    def verify(is_suspect: bool) -> None:
        with device.hold():
            device.logbook.reference_ms = 0.5

    device.verifier = verify
    _hold(device)
    with _lease(tmp_path).hold():
        assert device.logbook.reference_ms == 0.5
    assert not device.logbook.read().is_due


@pytest.mark.parametrize("content", [b"", b"\0" * 7, b"garbage", b"\xff" * 500])
def test_a_spoiled_logbook_costs_a_check_at_most(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "gpu.logbook").write_bytes(content)
    verifier = _Verifier()
    _hold(_lease(tmp_path, verifier), CHECK_EVERY)
    assert verifier.calls == [True] * any(content)


class _Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


def test_a_logbook_that_cannot_be_opened_leaves_the_device_free(tmp_path: Path) -> None:
    (tmp_path / "gpu.logbook").symlink_to(tmp_path / "elsewhere")
    device = _lease(tmp_path)
    with pytest.raises(OSError, match="logbook"), device.hold():
        pytest.fail("the device was used")
    assert not device.is_held
    (tmp_path / "gpu.logbook").unlink()
    _hold(_lease(tmp_path))


def test_checks_are_charged_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = _Clock()
    monkeypatch.setattr(lease, "time", clock)
    dead = _die_in_a_hold(tmp_path)
    device = _lease(tmp_path)
    device.list_pids = lambda device_id: {dead} if clock.now_s < 1.0 else set()
    device.verifier = lambda is_suspect: clock.sleep(2.0)
    with device.hold():
        clock.sleep(4.0)
        device.charge("work")
        clock.sleep(8.0)  # What nobody charges must not go to the next hold's first part.
    with device.hold():
        clock.sleep(16.0)
        device.charge("more")
    assert device.usage().parts_s == pytest.approx({"canary": 3.0, "work": 4.0, "more": 16.0})
    assert device.usage().hold_s == pytest.approx(31.0)


def test_a_dead_holder_is_waited_for_until_the_driver_let_it_go(tmp_path: Path) -> None:
    dead = _die_in_a_hold(tmp_path)
    answers = [{dead, 1}, {dead}, {1}]
    verifier = _Verifier()
    device = _lease(tmp_path, verifier)

    def list_pids(device_id: str) -> set[int]:
        assert device_id == "gpu"
        assert verifier.calls == []
        return answers.pop(0)

    device.list_pids = list_pids
    _hold(device, 2)
    assert answers == []
    assert verifier.calls == [True]


def test_a_holder_that_stays_on_the_device_is_an_error_until_it_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "MAX_WAIT_FOR_DEAD_S", 0.05)
    dead = _die_in_a_hold(tmp_path)
    verifier = _Verifier()
    device = _lease(tmp_path, verifier)
    device.list_pids = lambda device_id: {dead}
    for _ in range(2):
        with pytest.raises(MeasureError, match=f"process {dead} still holds"), device.hold():
            pytest.fail("the device was used")
    assert not device.is_held
    device.list_pids = lambda device_id: set()
    _hold(device)
    assert verifier.calls == [True]


def test_a_later_process_of_the_same_id_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = _die_in_a_hold(tmp_path)
    monkeypatch.setattr(lease, "birth_of", lambda pid: 2**60)
    device = _lease(tmp_path, verifier := _Verifier())
    device.list_pids = lambda device_id: {dead}
    _hold(device)
    assert verifier.calls == [True]


def test_holds_are_announced_and_inner_ones_are_not(tmp_path: Path) -> None:
    calls: list[bool] = []
    device = DeviceLease("gpu", tmp_path, None, calls.append)
    with device.hold(), DeviceLease("gpu", tmp_path, None, calls.append).hold(), device.hold():
        assert calls == [True]
    assert calls == [True, False]


def test_a_job_checks_after_one_that_was_killed(tmp_path: Path) -> None:
    with Child(config_in(tmp_path)) as child, Child(config_in(tmp_path)) as other:
        assert answer(child, "check").metrics["num_checks"] == 0.0
        assert fault(child, "lease:60").reason == "timeout:noop"
        assert answer(other, "check").metrics == {"num_checks": 1.0, "is_suspect": 1.0}
        assert answer(child, "check").metrics["num_checks"] == 0.0


@pytest.mark.parametrize("how", ["raise", "task_error", "cuda_sticky", "segfault", "hang"])
def test_a_check_that_fails_is_never_the_tasks_fault(tmp_path: Path, how: str) -> None:
    config = config_in(tmp_path, deadlines_s={"start": 60.0, "noop": 20.0, "check": 0.5})
    with Child(config) as child:
        _die_in_a_hold(tmp_path / "lease", "cpu")
        found = fault(child, f"check:{how}")
        assert (found.reason, found.stage) == ("infrastructure", "check")
        assert "while checking the device" in found.detail
        assert answer(child, "check").metrics == {"num_checks": 1.0, "is_suspect": 1.0}


@pytest.mark.gpu
def test_a_killed_process_is_off_a_real_gpu_before_the_check(tmp_path: Path) -> None:
    uuid = list_gpus()[0].uuid
    work = "import torch; torch.ones(2**28, device='cuda').sum().item()"
    code = _DOOMED.replace("os.kill(", f"{work}\n    os.kill(")
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": uuid}
    doomed = subprocess.Popen([sys.executable, "-c", code, str(tmp_path), uuid], env=environment)
    # Not reaped before the hold: that is up to its supervisor, and may take longer.
    os.waitid(os.P_PID, doomed.pid, os.WEXITED | os.WNOWAIT)
    seen: list[tuple[bool, bool]] = []
    device = DeviceLease(uuid, tmp_path)
    device.verifier = lambda is_suspect: seen.append(
        (is_suspect, doomed.pid in (list_pids(uuid) or ()))
    )
    with device.hold():
        pass
    assert doomed.wait() == -9
    assert seen == [(True, False)]
