"""Defects of state and size: calls that leave traces, too much memory, too little or too much time."""

from __future__ import annotations

from honest_tasks import BATCH_NORM, CONV_BLOCK, PLAIN_CHAIN, TWO_BRANCHES
from planting import planted, swapped

_KEPT = swapped(
    BATCH_NORM,
    (
        "super().__init__()",
        'super().__init__()\n        self.register_buffer("seen", torch.rand(channels, 1))',
    ),
    ("y + self.shift", "y + self.shift + self.seen"),
)

# 25: what eval mode gives depends on what was seen before. 26: a call leaves traces.
STATE = (
    planted(
        25,
        "moving-mean-in-eval",
        "deterministic",
        _KEPT,
        (
            "        y = self.norm(x)\n",
            "        y = self.norm(x)\n"
            "        self.seen = 0.9 * self.seen + 0.1 * x.mean(dim=(0, 2))[:, None]\n",
        ),
    ),
    planted(
        25,
        "statistics-in-eval",
        "deterministic",
        BATCH_NORM,
        (
            "self.norm(x)",
            "F.batch_norm(x, self.norm.running_mean, self.norm.running_var, self.norm.weight, "
            "self.norm.bias, True)",
        ),
    ),
    planted(
        25,
        "first-call-remembered",
        "deterministic",
        PLAIN_CHAIN,
        ("super().__init__()", "super().__init__()\n        self.level = None"),
        (
            "        return",
            "        if self.level is None:\n            self.level = x.mean()\n        h = h - self.level\n        return",
        ),
    ),
    planted(
        26,
        "input-in-place",
        "deterministic",
        PLAIN_CHAIN,
        ("        return", "        x.mul_(1.5)\n        return"),
    ),
    planted(
        26,
        "input-by-index",
        "deterministic",
        PLAIN_CHAIN,
        ("        return", "        x[:, 0] = h[:, 1]\n        return"),
    ),
    planted(
        26,
        "input-through-a-view",
        "deterministic",
        CONV_BLOCK,
        (
            "h = self.conv(x)",
            "nn.functional.relu(x[:, 2:5], inplace=True)\n        h = self.conv(x)",
        ),
    ),
    planted(
        26,
        "counted-calls",
        "deterministic",
        BATCH_NORM,
        ("y = self.norm(x)", "self.norm.num_batches_tracked += 1\n        y = self.norm(x)"),
    ),
    planted(
        26,
        "weight-in-place",
        "deterministic",
        TWO_BRANCHES,
        (
            "value = self.value(x)",
            "self.gate.weight.data.mul_(0.99)\n        value = self.value(x)",
        ),
    ),
)

_SCORES = """
import torch
import torch.nn as nn

batch_size = 2
length = 512
width = 64


class Model(nn.Module):
    \"\"\"Scores of all pairs, their softmax, and what both make of the values.\"\"\"

    def __init__(self):
        super().__init__()

    def forward(self, x):
        scores = torch.matmul(x, x.transpose(1, 2)) / 8
        weights = torch.softmax(scores, dim=-1)
        mixed = weights * torch.tanh(scores)
        return torch.matmul(mixed, x)


def get_inputs():
    return [torch.randn(batch_size, length, width)]


def get_init_inputs():
    return []
"""
_OUTER = """
import torch
import torch.nn as nn

num_left = 700
num_right = 900


class Model(nn.Module):
    \"\"\"Sums of the larger of all pairs.\"\"\"

    def __init__(self):
        super().__init__()

    def forward(self, left, right):
        pairs = torch.maximum(left[:, None], right[None, :])
        return pairs.sum(dim=1) * left


def get_inputs():
    return [torch.randn(num_left), torch.randn(num_right)]


def get_init_inputs():
    return []
"""
_TIMED = swapped(PLAIN_CHAIN, ("batch_size = 64\nlength = 500", "batch_size = 1024\nlength = 2000"))
_DRAWN = """
import torch
import torch.nn as nn

rows = 1500
width = 400


class Model(nn.Module):
    \"\"\"Bends rows and sums them up as it goes.\"\"\"

    def __init__(self):
        super().__init__()

    def forward(self, x):
        return torch.cumsum(torch.atan(x), dim=1)


def get_inputs():
    order = torch.randperm(rows * width)
    return [torch.randn(rows * width)[order].view(rows, width)]


def get_init_inputs():
    return []
"""

# 33: three tensors of 6.4 GB live at once. 35: 2**31 + 2**16 elements. 34: microseconds.
# 36: a Python loop per element.
LIMITS = (
    planted(
        33,
        "several-score-matrices",
        "memory",
        _SCORES,
        ("batch_size = 2\nlength = 512", "batch_size = 24\nlength = 8192"),
    ),
    planted(
        35,
        "all-pairs",
        "memory",
        _OUTER,
        ("num_left = 700\nnum_right = 900", "num_left = 65536\nnum_right = 32769"),
    ),
    planted(
        34,
        "microseconds",
        "runtime_window",
        _TIMED,
        ("batch_size = 1024\nlength = 2000", "batch_size = 8\nlength = 100"),
        stage="measure",
        admit=(("runtime_window_ms", (1.05, 1e4)),),
    ),
    planted(
        36,
        "loop-over-elements",
        "stable_inputs",
        _DRAWN,
        (
            "torch.randperm(rows * width)",
            "torch.tensor(sorted(range(rows * width), key=lambda i: i * 7919 % 600011))",
        ),
        admit=(("max_draw_s", 0.08),),
    ),
)

PATTERNS = STATE + LIMITS
