"""What a device reaches at best: as much as torch gets out of it, measured once."""

import pytest
import torch

from opsgen.device import TF32, measure_bandwidth, measure_rate, peaks


@pytest.fixture(autouse=True)
def _forget(monkeypatch):
    monkeypatch.setattr(peaks, "_BANDWIDTHS", {})
    monkeypatch.setattr(peaks, "_RATES", {})


def test_the_figures_follow_from_the_shortest_time(monkeypatch):
    monkeypatch.setattr(peaks, "_shortest_ms", lambda kind, call: call() is None or 2.0)
    assert measure_bandwidth("cpu") == pytest.approx(2 * 2**26 / 2e-3 / 1e9)
    assert measure_rate("cpu", "float64") == pytest.approx(2 * 512**3 / 2e-3 / 1e12)


def test_they_are_measured_once(monkeypatch):
    first = measure_bandwidth("cpu"), measure_rate("cpu", "bfloat16")
    monkeypatch.setattr(peaks, "_shortest_ms", None)
    assert (measure_bandwidth("cpu"), measure_rate("cpu", "bfloat16")) == first
    assert min(first) > 0.0


def test_precision_is_as_before():
    before = torch.get_float32_matmul_precision()
    measure_rate("cpu", TF32)
    assert torch.get_float32_matmul_precision() == before


@pytest.mark.gpu
def test_a_gpu_is_faster_in_fewer_bits():
    rates = [measure_rate("cuda", kind) for kind in ("float32", TF32, "bfloat16")]
    assert rates == sorted(rates)
    assert rates[2] > 4 * rates[0]
    assert measure_bandwidth("cuda") > 100.0
