"""Faults on a GPU among good tasks: the right reason for each, nobody else hurt, the card as before."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
import torch
from faulty_tasks import BESIDE_SHARE, FAULTY, faulty_request, faulty_task, good_requests
from fleet_runs import descendants, settle_all

from opsgen.fleet import Fleet, Journal, Settled
from opsgen.recipe import FleetConfig
from opsgen.records import (
    MAX_DRIFT,
    Attempt,
    CanaryEvidence,
    CanaryRequest,
    MeasureEvidence,
    Request,
)
from opsgen.source import assign_sizes
from opsgen.verify import Reference, task_module

NUM_GOOD = 24
CONFIG = FleetConfig(
    children_per_device=6,
    deadlines_s={"start": 90.0, "build": 20.0, "eager": 10.0, "compile": 60.0, "time": 10.0},
)
BALLAST_SHARE = 0.7
LEFT_OUT = "long_sleep"
"""Does as `hang` does, for as long."""


@pytest.mark.parametrize("name", FAULTY)
def test_on_a_cpu_they_are_tasks_like_any_other(name: str) -> None:
    task = faulty_task(name)
    with task_module(task.code) as module:
        reference = Reference.build(module, "cpu", 0)
        inputs = reference.draw(0)
        assert torch.equal(reference.run(inputs)[0], inputs[0] * 2.0)
    with task_module(assign_sizes(task.code, task.workloads[1].sizes)) as module:
        reference = Reference.build(module, "meta", 0)
        (out,) = reference.run(reference.draw(0))
        assert tuple(out.shape) == task.workloads[1].outputs[0].shape
    assert faulty_task(name, is_foreign=True).code == task.code


@pytest.mark.parametrize(
    ("name", "kernel", "signature", "instruction"),
    [
        ("illegal_access", "scatter", {"out": "*fp32", "offset": "i64"}, "st.global"),
        ("hang", "spin", {"flag": "*i32"}, "atom."),
    ],
)
def test_their_kernels_compile_from_a_tasks_module(
    name: str,
    kernel: str,
    signature: dict[str, str],
    instruction: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Triton reads the source of a function by `inspect`; no GPU is needed to compile it."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    block = {"BLOCK": 128} if kernel == "scatter" else {}
    with task_module(FAULTY[name].code) as module:
        source = ASTSource(
            getattr(module, kernel),
            signature={**signature, **dict.fromkeys(block, "constexpr")},
            constexprs=block,
        )
        compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32))
    ptx = compiled.asm["ptx"]
    assert instruction in ptx
    assert "bra" in ptx or kernel != "spin"


@pytest.mark.gpu
def test_every_fault_on_the_device_among_good_tasks(tmp_path: Path) -> None:
    before = set(descendants())
    with Fleet(CONFIG, "cuda") as fleet, Journal(tmp_path / "journal.jsonl") as journal:
        first = fleet.ask(CanaryRequest(device="cuda"))
        attempts = _run(fleet, journal)
        last = fleet.ask(CanaryRequest(device="cuda"))
    assert set(descendants()) - before == set()

    settled = settle_all(attempts)
    names = set(FAULTY) - {LEFT_OUT}
    assert settled.keys() == names | {name for name, _ in good_requests(NUM_GOOD)}
    reasons = {name: _reason_of(settled[name]) for name in names}
    assert reasons == {name: FAULTY[name].reason for name in names}
    for name in names:
        _check_attempts(name, [attempt for attempt in attempts if attempt.key == name])
    for name, _ in good_requests(NUM_GOOD):
        _check_good(settled[name])

    for canary in (first, last):
        assert isinstance(canary, CanaryEvidence)
        assert canary.is_right
    assert last.reference_ms is not None
    assert last.median_ms <= (1 + MAX_DRIFT) * last.reference_ms


def _run(fleet: Fleet, journal: Journal) -> list[Attempt]:
    """Run everything, beside something that fills the card until one task has failed for it."""
    assert BALLAST_SHARE + BESIDE_SHARE > 1.0
    ballast = [_fill(f"cuda:{number}") for number in range(torch.cuda.device_count())]
    attempts = []
    for attempt in fleet.run(_mixed(), journal):
        attempts.append(attempt)
        if attempt.key == "oom_beside" and ballast:
            # Its second attempt is made when this loop goes on.
            ballast.clear()
            torch.cuda.empty_cache()
    return attempts


def _fill(device: str) -> torch.Tensor:
    size = int(BALLAST_SHARE * torch.cuda.get_device_properties(device).total_memory)
    return torch.empty(size, dtype=torch.uint8, device=device)


def _mixed() -> Iterable[tuple[str, Request]]:
    """Return a faulty task after every second good one, the longest first."""
    names = sorted(set(FAULTY) - {LEFT_OUT}, key=lambda name: name != "hang")
    for number, (key, request) in enumerate(good_requests(NUM_GOOD)):
        yield key, request
        if number % 2 and number // 2 < len(names):
            name = names[number // 2]
            yield name, faulty_request(name)


def _reason_of(end: Settled) -> str | None:
    return None if end.fault is None else end.fault.reason


def _check_attempts(name: str, attempts: list[Attempt]) -> None:
    """Hold that faults were confirmed by another process, and evidence is what it has to be."""
    faults = [attempt.fault for attempt in attempts if attempt.fault is not None]
    if name == "lie":
        (attempt,) = attempts
        assert isinstance(attempt.evidence, MeasureEvidence)
        assert attempt.evidence.failure is not None
        assert "illegal memory access" in attempt.evidence.failure.message
        assert attempt.spoiled == ""
        return
    assert len({attempt.pid for attempt in attempts}) == len(attempts) == 2, faults
    if name == "oom_beside":
        assert [fault.reason for fault in faults] == ["gpu_oom"]
        _check_timed(attempts[1].evidence, num_modes=1)
        return
    assert [fault.reason for fault in faults] == [FAULTY[name].reason] * 2
    if name == "kill":
        assert all("signal 9" in fault.detail for fault in faults)
    assert all(fault.stage == "eager" for fault in faults)


def _check_good(end: Settled) -> None:
    assert end.num_attempts == 1
    _check_timed(end.evidence, num_modes=2)


def _check_timed(evidence: object, num_modes: int) -> None:
    assert isinstance(evidence, MeasureEvidence)
    assert evidence.failure is None
    assert len(evidence.timings) == num_modes
    assert all(timing.median_ms > 0.0 for timing in evidence.timings)
