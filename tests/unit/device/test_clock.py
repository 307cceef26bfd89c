"""The clock: nothing without the lease, adaptive stop, interleaving, inputs never alike."""

import itertools
import statistics
import time
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from opsgen.device import MIN_SAMPLES, Clock, median_interval
from opsgen.device import clock as clock_module
from opsgen.device.stopwatch import Reading
from opsgen.errors import MeasureError

HELD = SimpleNamespace(is_held=True)


class _Script:
    """A stopwatch whose readings are given, whatever is called."""

    def __init__(self, readings):
        self.readings = readings

    def read(self, trials):
        read = []
        for trial in trials:
            trial.prepare()
            trial.call()
            reading = next(self.readings)
            read.append(reading if isinstance(reading, Reading) else Reading(reading))
        return read


def scripted(readings):
    clock = Clock("cpu", HELD)
    clock._stopwatch = _Script(readings)
    return clock


def test_no_timing_without_the_lease():
    lease = SimpleNamespace(is_held=False)
    with pytest.raises(MeasureError, match="lease"):
        Clock("cpu", lease)
    lease.is_held = True
    clock = Clock("cpu", lease)
    lease.is_held = False
    with pytest.raises(MeasureError, match="lease"):
        clock.measure_modes({"eager": lambda x: x}, [(torch.ones(1),)], 0.01)
    with pytest.raises(MeasureError, match="lease"):
        clock.measure_launch_floor()


def test_steady_calls_stop_at_the_minimum():
    clock = scripted(iter([2.0] * 1000))
    (timing,) = clock.measure_modes({"eager": lambda x: x}, [(torch.ones(1),)], 10.0)
    assert len(timing.samples_ms) == MIN_SAMPLES
    assert timing.num_warmup == 6
    assert timing.ci_ms == (2.0, 2.0)
    assert (timing.q25_ms, timing.median_ms, timing.q75_ms) == (2.0, 2.0, 2.0)


def test_long_calls_warm_up_in_windows_of_one():
    clock = scripted(iter([99.0, 50.0, 20.0, 20.1] + [20.0] * 7))
    (timing,) = clock.measure_modes({"eager": lambda x: x}, [(torch.ones(1),)], 10.0)
    assert timing.num_warmup == 4
    assert timing.median_ms == 20.0


@given(st.lists(st.floats(0.0, 40.0), min_size=1, max_size=60))
def test_warming_ends_with_the_first_two_windows_alike_or_its_time(readings):
    later = [readings[-1]] * 2000
    clock = scripted(iter(readings + later))
    (timing,) = clock.measure_modes({"eager": lambda x: x}, [(torch.ones(1),)], 0.1)
    size = 3 if readings[0] <= 10.0 else 1
    warm = (readings + later)[: timing.num_warmup]
    assert timing.num_warmup % size == 0 or timing.num_warmup == 1
    medians = [statistics.median(warm[i : i + size]) for i in range(0, len(warm), size)]
    alike = [abs(b - a) <= 0.02 * a for a, b in itertools.pairwise(medians)]
    assert alike.count(True) == 0 or alike.index(True) == len(alike) - 1
    assert any(alike) or sum(warm) / 1e3 >= 0.2


def test_noisy_calls_go_on_until_the_interval_is_narrow():
    noise = torch.randn(5000, generator=torch.Generator().manual_seed(0))
    readings = [5.0] * 6 + (5 + 0.2 * noise).tolist()
    clock = scripted(iter(readings))
    (timing,) = clock.measure_modes({"eager": lambda x: x}, [(torch.ones(1),)], 60.0)
    low, high = median_interval(timing.samples_ms)
    assert 30 < len(timing.samples_ms) < 2000
    assert timing.median_ms * 0.99 <= low <= high <= timing.median_ms * 1.01


def test_the_cap_bounds_a_noisy_mode_but_not_the_minimum(monkeypatch):
    monkeypatch.setattr(clock_module, "_MAX_WARMUP_S", 0.0)
    clock = scripted(iter([float(n) for n in range(1, 1000)]))
    (timing,) = clock.measure_modes({"e": lambda x: time.sleep(2e-3)}, [(torch.ones(1),)], 1e-3)
    assert len(timing.samples_ms) == MIN_SAMPLES


def test_modes_alternate_first_to_last_and_back(monkeypatch):
    monkeypatch.setattr(clock_module, "_MAX_WARMUP_S", 0.0)
    order = []
    clock = scripted(iter([1.0] * 100))
    calls = {name: (lambda x, name=name: order.append(name)) for name in ("eager", "compile")}
    timings = clock.measure_modes(calls, [(torch.ones(1),)], 10.0)
    assert order[:8] == ["eager", "compile", "compile", "eager"] * 2
    assert [timing.mode for timing in timings] == ["eager", "compile"]


def test_no_call_sees_pointer_version_and_value_again():
    seen = []

    def call(x, mask):
        seen.append((x.data_ptr(), x._version, mask.data_ptr(), mask._version))

    draws = [(torch.randn(3, 4).t(), torch.ones(5, dtype=torch.bool)) for _ in range(2)]
    before = [(x.clone(), mask.clone()) for x, mask in draws]
    scripted(iter([1.0] * 100)).measure_modes({"eager": call}, draws, 10.0)
    assert len(set(seen)) == len(seen) >= 13
    assert seen[0][0] != seen[1][0]
    for (x, mask), (old_x, old_mask) in zip(draws, before, strict=True):
        assert torch.equal(x, old_x)
        assert torch.equal(mask, old_mask)


def test_samples_that_the_device_was_too_early_for_are_taken_again():
    readings = [Reading(2.0)] * 6 + [Reading(9.0, is_overtaken=True)] * 5 + [Reading(2.0)] * 7
    (timing,) = scripted(iter(readings)).measure_modes({"e": id}, [(torch.ones(1),)], 10.0)
    assert timing.samples_ms == (2.0,) * MIN_SAMPLES
    assert timing.num_overtaken == 0


def test_calls_that_wait_for_the_device_are_told():
    readings = [Reading(3.0, is_overtaken=True)] * 1000
    (timing,) = scripted(iter(readings)).measure_modes({"e": id}, [(torch.ones(1),)], 10.0)
    assert timing.samples_ms == (3.0,) * timing.num_overtaken


@pytest.mark.gpu
def test_on_a_gpu_calls_are_queued_before_they_begin():
    clock = Clock("cuda", HELD)
    x = torch.randn(1 << 26, device="cuda")

    def many(x):
        for _ in range(40):
            x = x + 1.0
        return x

    calls = {"one": lambda x: x * 2.0, "many": many, "waits": lambda x: x.sum().item()}
    one, several, waits = clock.measure_modes(calls, [(x,), (x + 1.0,)], 0.15)
    assert one.num_overtaken == several.num_overtaken == 0
    assert waits.num_overtaken > 0
    assert several.median_ms == pytest.approx(40 * one.median_ms, rel=0.1)


@pytest.mark.timing
def test_the_host_clock_reads_milliseconds():
    clock = Clock("cpu", HELD)
    assert clock.is_advisory
    calls = {"sleep": lambda x: time.sleep(5e-3)}
    (timing,) = clock.measure_modes(calls, [(torch.ones(1),)], 0.1)
    assert 5.0 <= timing.median_ms < 10.0
    assert 0 < clock.measure_launch_floor() < 1.0


def test_inputs_are_needed():
    with pytest.raises(ValueError, match="inputs"):
        Clock("cpu", HELD).measure_modes({"eager": print}, [], 0.1)
