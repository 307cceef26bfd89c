"""A death is charged to whom it belongs: the task, its memory, or the machine."""

from __future__ import annotations

import resource
from pathlib import Path
from types import SimpleNamespace

import pytest
from children import answer, config_in, fault

from opsgen.child import Child, supervisor
from opsgen.child.endings import ending_of, num_oom_kills

GIB = float(2**30)


@pytest.mark.parametrize(
    ("code", "peak_gib", "is_oom_likely", "reason", "detail"),
    [
        (0, 1.0, True, "crash", "exit code 0, peak 1.0 GiB"),
        (-11, 1.0, True, "crash", "signal 11 (SIGSEGV), peak 1.0 GiB"),
        (-40, 1.0, False, "crash", "signal 40 (real-time)"),
        (-9, 1.0, False, "crash", "signal 9 (SIGKILL), peak 1.0 GiB"),
        (-9, 4.5, True, "host_oom", "the kernel ran out of memory"),
        # It had outgrown its limit between two looks.
        (-9, 8.5, False, "host_oom", "the limit is 8 GiB"),
        # Others had taken the memory.
        (-9, 0.5, True, "infrastructure", "the kernel ran out of memory"),
    ],
)
def test_endings(code: int, peak_gib: float, is_oom_likely: bool, reason: str, detail: str) -> None:
    found = ending_of(
        code, peak_bytes=int(peak_gib * GIB), limit_bytes=8 * GIB, is_oom_likely=is_oom_likely
    )
    assert found[0] == reason
    assert detail in found[1]


def test_the_kernel_counts_its_kills() -> None:
    assert num_oom_kills() == num_oom_kills() >= 0


def test_a_kill_by_the_kernel_is_told_from_the_tasks_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As under a small supervisor, whose own size hides no child's.
    monkeypatch.setattr(resource, "getrusage", lambda who: SimpleNamespace(ru_maxrss=0))
    counts = iter([0, 0, 0, 1])
    monkeypatch.setattr(supervisor, "num_oom_kills", lambda: next(counts))
    # A child that starts slowly would be seen to be over its limit before it kills itself.
    monkeypatch.setattr(supervisor, "WATCH_S", 60.0)
    with Child(config_in(tmp_path, memory_limit_gib=0.01)) as child:
        assert fault(child, "sigkill").reason == "host_oom"
    with Child(config_in(tmp_path, memory_limit_gib=64.0)) as child:
        assert fault(child, "sigkill").reason == "infrastructure"


def test_the_peak_is_that_of_the_whole_life(tmp_path: Path) -> None:
    # More than this process ever held: what a child inherits of it hides smaller peaks.
    config = config_in(tmp_path, memory_limit_gib=8.0, deadlines_s={"noop": 30.0})
    with Child(config) as child:
        answer(child, "spike:2.5")
        detail = fault(child, "sigkill").detail
    assert detail == "signal 9 (SIGKILL), peak 2.5 GiB"


def test_memory_that_helpers_share_is_counted_once(tmp_path: Path) -> None:
    """Forty of 25 MiB each, nearly all of it the same."""
    with Child(config_in(tmp_path, deadlines_s={"helpers": 1.5})) as child:
        assert fault(child, "helpers:40").reason == "timeout:helpers"
