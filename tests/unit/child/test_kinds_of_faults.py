"""Every way to fail has exactly its reason, and the next job in the slot sees nothing of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from children import alive_in, answer, config_in, fault

from opsgen.child import Child


@pytest.fixture(name="child")
def _child(tmp_path: Path) -> Iterator[Child]:
    with Child(config_in(tmp_path)) as child:
        yield child
    assert list((tmp_path / "work").iterdir()) == []
    assert alive_in(tmp_path) == []


# What a job may do, the reason it gets, and a part of the detail.
FAULTS = [
    ("raise", "raised", "RuntimeError: raised on purpose"),
    ("task_error", "raised", "TaskError: executes: raised on purpose"),
    ("base_exception", "raised", "_Odd: raised on purpose"),
    ("system_exit", "raised", "SystemExit: 0"),
    ("interrupt", "raised", "KeyboardInterrupt:"),
    ("surrogate", "raised", "half a character: ?"),
    ("measure_error", "infrastructure", "MeasureError: raised on purpose"),
    ("no such behaviour", "infrastructure", "no behaviour"),
    ("cuda_sticky", "cuda_sticky", "illegal memory access"),
    ("gpu_oom", "gpu_oom", "out of memory"),
    ("unsendable", "infrastructure", "the answer cannot be sent"),
    ("no_evidence", "infrastructure", "answered dict, no evidence"),
    ("segfault", "crash", "signal 11 (SIGSEGV)"),
    ("abort", "crash", "signal 6 (SIGABRT)"),
    ("exit", "crash", "exit code 0"),
    ("exit:3", "crash", "exit code 3"),
    ("sigkill", "crash", "signal 9 (SIGKILL), peak 0."),
    ("orphan:exit", "crash", "exit code 0"),
    ("escape:exit", "crash", "exit code 0"),
    ("close_all", "crash", "exit code"),
    ("channel_noise", "crash", "garbage on its channel"),
    ("channel_noise:3", "crash", "garbage on its channel"),
    ("helpers", "crash", "the limit is 128"),
    ("bomb", "crash", "the limit is 128"),
    ("allocate:1", "host_oom", "the limit is 0.4 GiB"),
    ("hang", "timeout:noop", "outlived its deadline of 1.2 s"),
    ("gil_sleep", "timeout:noop", "outlived its deadline of 1.2 s"),
    ("sigstop", "timeout:noop", "outlived its deadline of 1.2 s"),
    ("escape:hang", "timeout:noop", "outlived its deadline of 1.2 s"),
]


@pytest.mark.parametrize(("behaviour", "reason", "detail"), FAULTS)
def test_every_fault_has_its_reason(
    child: Child, tmp_path: Path, behaviour: str, reason: str, detail: str
) -> None:
    before = answer(child, "state").metrics
    found = fault(child, behaviour)
    assert found.reason == reason
    assert detail in found.detail
    name = behaviour.partition(":")[0]
    assert found.stage == (name if name in {"allocate", "helpers", "bomb"} else "noop")
    group = child.pid
    after = answer(child, "state").metrics
    own = {"folder": 0.0, "environment": 0.0}  # Every process has its own.
    assert after | own == before | own
    if reason.partition(":")[0] in {"crash", "timeout", "host_oom", "cuda_sticky", "gpu_oom"}:
        assert child.pid != group
    else:
        assert child.pid == group
    assert alive_in(tmp_path) == [child.pid]
