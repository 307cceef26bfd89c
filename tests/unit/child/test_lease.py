"""The lease excludes other processes, outlives no holder, and counts what it should."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from opsgen.child import DeviceLease, LocalContext
from opsgen.child.lease import default_directory
from opsgen.errors import MeasureError

_HOLDER = """
import sys, time, pathlib, subprocess
from opsgen.child import DeviceLease
lease = DeviceLease("gpu", pathlib.Path(sys.argv[1]))
for _ in range(int(sys.argv[2])):
    with lease.hold():
        begin = time.monotonic()
        helper = subprocess.Popen(["sleep", "30"]) if sys.argv[4] == "helper" else None
        print("held", helper.pid if helper else 0, flush=True)
        time.sleep(float(sys.argv[3]))
        print(begin, time.monotonic(), flush=True)
"""


def _holder(
    folder: Path, *, num_holds: int = 1, hold_s: float = 30.0, helper: bool = False
) -> subprocess.Popen[str]:
    extra = "helper" if helper else "alone"
    return subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(folder), str(num_holds), str(hold_s), extra],
        stdout=subprocess.PIPE,
        text=True,
    )


def _held(process: subprocess.Popen[str]) -> int:
    """Wait until the process holds the lease; return its helper's pid."""
    assert process.stdout is not None
    word, helper = process.stdout.readline().split()
    assert word == "held"
    return int(helper)


def test_holds_of_two_processes_never_overlap(tmp_path: Path) -> None:
    holders = [_holder(tmp_path, num_holds=200, hold_s=0.0005) for _ in range(2)]
    spans: list[tuple[float, float]] = []
    for holder in holders:
        output, _ = holder.communicate(timeout=60)
        lines = [line.split() for line in output.splitlines() if not line.startswith("held")]
        spans += [(float(begin), float(end)) for begin, end in lines]
    assert len(spans) == 400
    spans.sort()
    assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(spans))


def test_a_killed_holder_hands_over(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    holder = _holder(tmp_path)
    _held(holder)
    lease = DeviceLease("gpu", tmp_path)
    killed_s: list[float] = []

    def kill() -> None:
        killed_s.append(time.monotonic())
        holder.kill()

    threading.Timer(0.2, kill).start()
    with lease.hold():
        over_s = time.monotonic() - killed_s[0]
    record_property("from SIGKILL of the holder to the next hold, ms", f"{over_s * 1e3:.1f}")
    assert 0.0 < over_s < 2.0
    assert lease.wait_s > 0.1
    holder.wait()
    assert holder.stdout is not None
    holder.stdout.close()


def test_a_helper_that_outlives_the_holder_does_not_keep_the_lease(tmp_path: Path) -> None:
    holder = _holder(tmp_path, helper=True)
    helper = _held(holder)
    holder.kill()
    holder.wait()
    os.kill(helper, 0)
    lease = DeviceLease("gpu", tmp_path)
    with lease.hold():
        os.kill(helper, 9)
    assert lease.wait_s == 0.0
    assert holder.stdout is not None
    holder.stdout.close()


def test_a_forked_helper_does_not_keep_the_lease(tmp_path: Path) -> None:
    lease = DeviceLease("gpu", tmp_path)
    with lease.hold():
        helper = os.fork()
        if helper == 0:
            time.sleep(30)
            os._exit(0)
        is_held = lease.is_held
    assert is_held
    other = _holder(tmp_path, hold_s=0.0)
    output, _ = other.communicate(timeout=20)
    os.kill(helper, 9)
    os.waitpid(helper, 0)
    assert output.startswith("held")


def test_holds_nest_and_count_once(tmp_path: Path) -> None:
    lease, alias = DeviceLease("gpu", tmp_path), DeviceLease("gpu", tmp_path)
    assert not lease.is_held
    with lease.hold(), alias.hold(), lease.hold():
        assert lease.is_held
        assert alias.is_held
        time.sleep(0.01)
    assert not alias.is_held
    assert (lease.num_holds, alias.num_holds) == (1, 0)
    assert lease.hold_s >= 0.01
    assert alias.hold_s == 0.0


def test_an_inner_hold_that_ends_last_keeps_the_lease(tmp_path: Path) -> None:
    outer, inner = DeviceLease("gpu", tmp_path), DeviceLease("gpu", tmp_path)
    first, second = outer.hold(), inner.hold()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert outer.is_held
    second.__exit__(None, None, None)
    assert not outer.is_held
    hold_s = outer.hold_s
    time.sleep(0.01)
    assert outer.hold_s == hold_s


def test_the_lease_is_given_up_when_the_block_raises(tmp_path: Path) -> None:
    lease = DeviceLease("gpu", tmp_path)
    with pytest.raises(KeyError), lease.hold():
        raise KeyError
    assert not lease.is_held


def test_counters_start_anew(tmp_path: Path) -> None:
    lease = DeviceLease("gpu", tmp_path)
    with lease.hold():
        time.sleep(0.02)
        before_s = lease.hold_s
        begin_s = time.monotonic()
        lease.reset_counters()
        assert lease.hold_s <= time.monotonic() - begin_s
        assert before_s >= 0.02
    assert lease.num_holds == 0
    assert lease.usage().hold_s == lease.hold_s


def test_devices_do_not_exclude_each_other(tmp_path: Path) -> None:
    holder = _holder(tmp_path)
    _held(holder)
    other = DeviceLease("another/gpu", tmp_path)
    with other.hold():
        assert other.wait_s == 0.0
    holder.kill()
    holder.communicate()


def test_waiting_is_announced_and_only_when_it_happens(tmp_path: Path) -> None:
    calls: list[bool] = []
    lease = DeviceLease("gpu", tmp_path, calls.append)
    with lease.hold():
        pass
    assert calls == []
    holder = _holder(tmp_path, hold_s=0.3)
    _held(holder)
    with lease.hold():
        pass
    holder.communicate()
    assert calls == [True, False]


def test_a_folder_that_others_can_write_to_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    folder = default_directory()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert default_directory() == folder
    folder.chmod(0o777)
    with pytest.raises(MeasureError, match="only user"):
        default_directory()


def test_a_local_context_needs_no_supervisor(tmp_path: Path) -> None:
    context = LocalContext(lease_dir=tmp_path)
    context.stage("eager")
    with context.lease.hold():
        assert context.lease.is_held
    assert (context.device, context.current_stage) == ("cpu", "eager")
