"""The job that times eager code and nothing else."""

from __future__ import annotations

from opsgen.jobs import calibrate
from opsgen.records import CalibrateEvidence, CalibrateRequest, decode_line, encode_line

CODE = """import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.layer = nn.Linear(size, size)

    def forward(self, x):
        return self.layer(x)


def get_inputs():
    return [torch.randn(rows, 256)]


def get_init_inputs():
    return [256]


rows = 64
"""


def calibrated(context, code: str) -> CalibrateEvidence:
    request = CalibrateRequest(code=code, device="cpu", max_s=0.02, seed=1)
    return calibrate.run(request, context)


def test_more_work_takes_longer(context) -> None:
    small = calibrated(context, CODE)
    large = calibrated(context, CODE.replace("rows = 64", "rows = 16384"))
    assert small.eager_ms > 0
    assert large.eager_ms > small.eager_ms
    assert min(small.num_samples, large.num_samples) >= 7
    assert (small.input_bytes, large.input_bytes) == (64 * 1024, 16384 * 1024)
    assert small.peak_bytes is None  # a processor does not count
    assert small.failure is None
    assert decode_line(encode_line(small), CalibrateEvidence) == small


def test_code_that_raises(context) -> None:
    wrong = calibrated(context, CODE.replace("self.layer(x)", "self.layer(x) @ x"))
    assert wrong.eager_ms is None
    assert wrong.failure.kind == "RuntimeError"
    assert wrong.failure.stage == "eager"
    unbuilt = calibrated(context, CODE.replace("super().__init__()", "raise ValueError(size)"))
    assert unbuilt.failure.stage == "build"
    assert "256" in unbuilt.failure.message


def test_the_lease_is_given_back(context) -> None:
    calibrated(context, CODE)
    assert not context.lease.is_held
    assert context.lease.num_holds == 1
