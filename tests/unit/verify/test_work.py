"""What a run on `meta` tells of memory and work, beside torch's own counter."""

from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from opsgen.verify import Outline, Reference, outline, task_module

HEAD = """import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.linear = nn.Linear(16, 4)

"""
ATTENTION = """    def forward(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v) + self.linear(q).sum() + 0 * q


def get_inputs():
    return [torch.randn(2, 4, 4096, 16) for _ in range(3)]


def get_init_inputs():
    return []
"""
WRITTEN_OUT = ATTENTION.replace(
    "F.scaled_dot_product_attention(q, k, v)",
    "torch.softmax(q @ k.transpose(-2, -1) / 4, -1) @ v",
)
GRADIENT = """    def forward(self, x, grad_output):
        _, pullback = torch.func.vjp(lambda x: self.linear(F.logsigmoid(x)), x)
        return pullback(grad_output)[0]


def get_inputs():
    return [torch.randn(32, 16), torch.randn(32, 4)]


def get_init_inputs():
    return []
"""
CONVOLUTION = """    def forward(self, x):
        return self.linear(F.relu(self.conv(x)))


def get_inputs():
    return [torch.randn(2, 3, 10, 18)]


def get_init_inputs():
    return []
"""
_SCORES = 2 * 4 * 4096 * 4096


def seen(body: str) -> Outline:
    with task_module(HEAD + body) as module:
        found = outline(module, count_flops=True)
    assert found is not None
    return found


def test_scores_that_no_device_stores_are_not_counted() -> None:
    fused, written_out = seen(ATTENTION), seen(WRITTEN_OUT)
    assert fused.largest_elements == 2 * 4 * 4096 * 16
    assert written_out.largest_elements == _SCORES
    assert fused.peak_bytes is not None
    assert written_out.peak_bytes is not None
    assert fused.peak_bytes < 4 * _SCORES < written_out.peak_bytes


def test_gradients_within_a_call_are_counted() -> None:
    # Forward the product, backward that of the gradient with the weight.
    assert seen(GRADIENT).flops == 2 * (2 * 32 * 16 * 4)


@pytest.mark.parametrize("body", [WRITTEN_OUT, CONVOLUTION])
def test_flops_are_those_of_torch_s_counter(body: str) -> None:
    with task_module(HEAD + body) as module:
        reference = Reference.build(module, "meta", 0)
        counter = FlopCounterMode(display=False)
        with counter, torch.no_grad():
            reference.model(*reference.draw(0))
    assert counter.get_total_flops() > 0
    assert seen(body).flops == counter.get_total_flops()
