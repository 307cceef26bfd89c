"""The canary: right in every bit, never faster-is-sick, and patient with what has just died."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Callable, Iterable
from types import SimpleNamespace

import pytest
import torch

from opsgen.child import faults
from opsgen.device import canary
from opsgen.device.canary import (
    Verifier,
    ask_device,
    context_works,
    make_verifier,
    run_canary,
)
from opsgen.errors import MeasureError
from opsgen.records import MAX_DRIFT
from opsgen.verify.running import TaskCodeError, task_code


class _Device:
    """A device whose canaries are given, and a clock that only its sleeps and canaries move."""

    def __init__(self, answers: Iterable[object]) -> None:
        self._answers = iter(answers)
        self.now_s = 0.0
        self.num_runs = 0

    def run(self) -> tuple[bool, float]:
        self.num_runs += 1
        self.now_s += 0.01
        answer = next(self._answers)
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, tuple) else (True, answer)  # type: ignore[return-value]

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


def judged(
    answers: Iterable[object], reference_ms: float | None, **kwargs: bool
) -> tuple[Verifier, _Device]:
    device = _Device(answers)
    logbook = SimpleNamespace(reference_ms=reference_ms)
    verifier = Verifier(
        device.run, logbook, sleep=device.sleep, clock=lambda: device.now_s, **kwargs
    )
    return verifier, device


@pytest.fixture(autouse=True)
def _no_context(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(canary, "wait_for_work", lambda: None)


def test_the_result_is_right_here_and_the_time_is_positive() -> None:
    is_right, median_ms = run_canary("cpu")
    assert is_right
    assert median_ms > 0.0


@pytest.mark.parametrize("element", [0, 12345, -1])
@pytest.mark.parametrize("bit", [1, 1 << 31])
def test_one_wrong_bit_anywhere_shows(element: int, bit: int) -> None:
    work = canary._Work("cpu")
    work.do()
    assert work.is_right()
    work._value[element] ^= canary._signed(bit)
    assert not work.is_right()


def test_the_result_is_the_formula_of_plain_integers() -> None:
    work = canary._Work("cpu")
    work.do()
    for element in (0, 1, 40_000, 65_535):
        value = start = element + 1
        for _ in range(8):
            value = (start + 1_664_525 * value) % 2**32
        assert int(work._value[element]) % 2**32 == value


def test_a_fault_that_both_ways_share_shows_in_the_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    work = canary._Work("cpu")
    work._start[7] ^= 4  # what every further step is computed from
    work.do()
    assert torch.equal(work._value, work._start * _factor())
    assert not work.is_right()


def _factor() -> int:
    return canary._signed(sum(1_664_525**power for power in range(9)))


def test_what_a_task_left_as_defaults_does_not_count() -> None:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        assert run_canary("cpu")[0]
    finally:
        torch.set_default_dtype(before)


def test_the_first_call_sets_what_later_ones_are_held_against() -> None:
    idle = [5.0] * 20 + [2.0] * 4
    rounds = [1.01, 1.0, 1.02, 1.0, 1.03, 1.0, 1.01]
    verifier, device = judged([*idle, 1.0, 1.0, *rounds, 1.0], reference_ms=None)
    verifier(False)
    num_runs = device.num_runs
    assert verifier.logbook.reference_ms in {1.0, 1.01}
    assert device.now_s < 0.5
    verifier(False)
    assert device.num_runs == num_runs + 1


@pytest.mark.parametrize("median_ms", [0.1, 1.0, 1.0 + MAX_DRIFT])
def test_as_fast_as_before_or_faster_is_fit_at_the_first_try(median_ms: float) -> None:
    verifier, device = judged([median_ms], reference_ms=1.0)
    verifier(False)
    assert device.num_runs == 1
    assert verifier.logbook.reference_ms == 1.0


@pytest.mark.parametrize("num_slow", [1, 20, 60])
def test_a_device_that_recovers_within_the_tries_is_fit(num_slow: int) -> None:
    verifier, device = judged([1.5] * num_slow + [1.0], reference_ms=1.0)
    verifier(False)
    assert device.num_runs == num_slow + 1
    assert device.now_s < 1.2


def test_a_device_that_stays_slow_is_not_and_both_times_are_told() -> None:
    verifier, device = judged([1.04] * 1000, reference_ms=1.0)
    with pytest.raises(MeasureError, match=r"takes 1\.04 ms .* 1 ms when"):
        verifier(False)
    assert 0.7 < device.now_s < 1.2


@pytest.mark.parametrize("reference_ms", [None, 1.0])
@pytest.mark.parametrize("after_death", [False, True])
def test_a_wrong_result_is_not_tried_again(reference_ms: float, after_death: bool) -> None:
    verifier, device = judged([(False, 1.0)], reference_ms=reference_ms)
    with pytest.raises(MeasureError, match="wrong"):
        verifier(after_death)
    assert device.num_runs == 1


def test_after_a_death_the_device_has_two_seconds_to_become_quiet() -> None:
    no_memory = RuntimeError("CUDA out of memory.")
    verifier, device = judged([no_memory] * 5 + [3.0] * 30 + [1.0] * 2, reference_ms=1.0)
    verifier(True)
    assert device.num_runs == 37
    verifier, device = judged([3.0] * 1000, reference_ms=1.0)
    with pytest.raises(MeasureError, match="3 ms"):
        verifier(True)
    assert 2.5 < device.now_s < 3.5


def test_after_a_death_no_disturbed_time_becomes_the_reference() -> None:
    full = [RuntimeError("CUDA out of memory.")] * 3
    verifier, _ = judged([*full, *[9.0, 4.0] * 20, *[1.0] * 60], reference_ms=None)
    verifier(True)
    assert verifier.logbook.reference_ms == 1.0


def test_a_device_that_does_nothing_is_unfit() -> None:
    verifier, _ = judged([RuntimeError("no kernel image")] * 100, reference_ms=None)
    with pytest.raises(MeasureError, match="does not run on this device: no kernel image"):
        verifier(False)
    assert verifier.logbook.reference_ms is None


def test_what_this_process_has_broken_is_not_the_devices_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken() -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(canary, "wait_for_work", broken)
    verifier, device = judged([], reference_ms=1.0)
    with pytest.raises(RuntimeError, match="illegal memory access"):
        verifier(False)
    assert device.num_runs == 0


def test_on_a_cpu_only_the_result_counts() -> None:
    logbook = SimpleNamespace(reference_ms=1e-9)
    make_verifier("cpu", logbook)(False)
    verifier, _ = judged([(False, 1.0)], reference_ms=1e-9, is_timed=False)
    with pytest.raises(MeasureError, match="wrong"):
        verifier(False)


@pytest.mark.parametrize(
    ("answers", "reference_ms", "told"),
    [
        ([(True, 1.02)], 1.0, (True, 1.02)),
        ([(True, 9.0)], None, (True, 9.0)),
        ([(True, 1.5), (True, 1.01)], 1.0, (True, 1.01)),
        ([(True, 1.5), (True, 1.3), (True, 1.4), (True, 1.03)], 1.0, (True, 1.03)),
        ([(False, 1.5)], 1.0, (False, 1.5)),
        ([(True, 1.5), (False, 1.6)], 1.0, (False, 1.5)),
    ],
)
def test_a_slow_device_is_asked_again_and_a_wrong_one_is_not(
    monkeypatch: pytest.MonkeyPatch,
    answers: list[tuple[bool, float]],
    reference_ms: float | None,
    told: tuple[bool, float],
) -> None:
    pending = iter(answers)
    monkeypatch.setattr(canary, "run_canary", lambda device: next(pending))
    assert ask_device("cuda", reference_ms) == told
    assert next(pending, None) is None


def test_a_device_that_stays_slow_is_asked_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    device = _Device(itertools.cycle([1.5, 1.4]))
    monkeypatch.setattr(canary, "run_canary", lambda name: device.run())
    monkeypatch.setattr(canary.time, "monotonic", lambda: device.now_s)
    assert ask_device("cuda", 1.0) == (True, 1.4)
    assert device.num_runs > 10


class AcceleratorError(RuntimeError):
    """Stands for torch's, which only a device makes."""

    def __init__(self, message: str, error_code: int) -> None:
        super().__init__(message)
        self.error_code = error_code


@pytest.mark.parametrize(
    ("errors", "works"),
    [
        ([None], True),
        ([AcceleratorError("illegal", 700), AcceleratorError("illegal", 700)], False),
        # Told once: a launch of the task's was refused.
        ([AcceleratorError("invalid configuration argument", 9), None], True),
        ([AcceleratorError("gone", 3), AcceleratorError("gone", 3)], False),
        ([AcceleratorError("out of memory", 2)], True),
        ([AcceleratorError("stream is capturing", 900)], True),
        ([torch.OutOfMemoryError("CUDA out of memory. Tried")], True),
    ],
)
def test_a_context_is_broken_when_it_says_so_twice(
    monkeypatch: pytest.MonkeyPatch, errors: list[Exception | None], works: bool
) -> None:
    answers = iter(errors)
    monkeypatch.setattr(torch.cuda, "synchronize", _raising(answers))
    monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: None)
    assert context_works() is works


def _raising(answers: Iterable[Exception | None]) -> Callable[[], None]:
    pending = iter(answers)

    def synchronize() -> None:
        error = next(pending, None)
        if error is not None:
            raise error

    return synchronize


@pytest.mark.parametrize(
    ("works", "raised"), [(True, TaskCodeError), (False, RuntimeError), (None, RuntimeError)]
)
def test_what_a_task_claims_of_its_context_is_evidence_only_if_the_context_works(
    monkeypatch: pytest.MonkeyPatch, works: bool | None, raised: type[Exception]
) -> None:
    monkeypatch.setattr(faults, "context_works", lambda: works)
    claim = RuntimeError("CUDA error: an illegal memory access was encountered")
    with pytest.raises(raised) as caught, task_code("eager"):
        raise claim
    assert (caught.value is claim) == (works is not True)


@pytest.mark.gpu
@pytest.mark.timing
def test_on_a_gpu_the_canary_is_right_short_and_steady() -> None:
    run_canary("cuda")
    times_ms = []
    torch.cuda.reset_peak_memory_stats()
    before_bytes = torch.cuda.memory_allocated()
    for _ in range(5):
        is_right, median_ms = run_canary("cuda")
        assert is_right
        assert torch.cuda.max_memory_allocated() - before_bytes <= 512 << 20
        times_ms.append(median_ms)
    assert min(times_ms) > 0.2
    assert max(times_ms) < min(2.0, (1 + MAX_DRIFT) * min(times_ms))
    assert context_works()


@pytest.mark.gpu
@pytest.mark.timing
def test_on_a_gpu_a_slower_device_is_seen_and_a_lost_memory_waited_for() -> None:
    logbook = SimpleNamespace(reference_ms=None)
    verify = make_verifier("cuda", logbook)
    verify(False)
    verify(True)
    logbook.reference_ms *= 0.9
    with pytest.raises(MeasureError, match="when it was first asked"):
        verify(False)


_BREAKER = """
import os
import torch
from opsgen.child.faults import code_of, context_works, reason_of

def tell(call):
    try:
        call()
    except Exception as error:
        print(code_of(error), reason_of(error), context_works(), flush=True)

def claim():
    raise RuntimeError("CUDA error: an illegal memory access was encountered")

x = torch.zeros(4, device="cuda")
far = torch.full((1,), 1 << 20, device="cuda")
tell(claim)
tell(lambda: torch.empty(1 << 45, dtype=torch.uint8, device="cuda"))
tell(lambda: torch.gather(x, 0, far).item())
tell(lambda: x.add_(1).sum().item())
os._exit(0)
"""


@pytest.mark.gpu
def test_on_a_gpu_errors_are_told_apart_by_what_they_leave_behind() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _BREAKER], capture_output=True, text=True, timeout=120, check=True
    )
    told = [line for line in done.stdout.splitlines() if "Assertion" not in line]
    assert told == [
        "None raised True",
        "None gpu_oom True",
        "710 cuda_sticky False",
        "710 cuda_sticky False",
    ]
