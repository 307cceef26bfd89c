"""Outputs that need no work: constants, copies, and what saturates."""

from __future__ import annotations

from honest_tasks import CONV_BLOCK, PLAIN_CHAIN, PROJECTION
from planting import planted, swapped

_SOFTENED = swapped(
    PROJECTION, ("return x * self.scale", "return torch.softmax(4 * x, -1) * self.scale")
)
_POOLED = """
import torch
import torch.nn as nn

batch_size = 48
features = 20000


class Model(nn.Module):
    \"\"\"Sums up each row.\"\"\"

    def __init__(self):
        super().__init__()

    def forward(self, x):
        bent = torch.sin(2 * x)
        return bent.square().sum(dim=1).sqrt() + bent.amax(dim=1) + 2 * bent[:, 0]


def get_inputs():
    return [torch.randn(batch_size, features)]


def get_init_inputs():
    return []
"""
_MAPS = """
import torch
import torch.nn as nn

batch_size = 4
channels = 6
height = 256
width = 256


class Model(nn.Module):
    \"\"\"Normalises every map and bends it.\"\"\"

    def __init__(self, channels):
        super().__init__()
        self.norm = nn.InstanceNorm2d(channels)

    def forward(self, x):
        return torch.tanh(self.norm(x))


def get_inputs():
    return [torch.randn(batch_size, channels, height, width)]


def get_init_inputs():
    return [channels]
"""
_WHOLE = """
import torch
import torch.nn as nn

rows = 64
width = 96


class Model(nn.Module):
    \"\"\"Compares two tensors softly.\"\"\"

    def __init__(self):
        super().__init__()

    def forward(self, x, y):
        return torch.where(x > y, torch.exp(-x), torch.sin(y))


def get_inputs():
    return [torch.randn(rows, width), torch.randn(rows, width)]


def get_init_inputs():
    return []
"""
_POSITIVE = """
import torch
import torch.nn as nn

batch_size = 8
height = 40
width = 44


class Model(nn.Module):
    \"\"\"Mixes positive channels into one and clamps it.\"\"\"

    def __init__(self):
        super().__init__()
        self.mix = nn.Conv2d(1, 1, kernel_size=1, bias=False)

    def forward(self, x):
        return torch.clamp(self.mix(x - 0.5), max=0.0)


def get_inputs():
    return [torch.rand(batch_size, 1, height, width)]


def get_init_inputs():
    return []
"""

# 14 to 19, 21: an answer that never looks at the input, or only copies it, would pass.
TRIVIAL = (
    planted(
        14,
        "softmax-summed-up",
        "nontrivial",
        PROJECTION,
        ("return x * self.scale", "return torch.softmax(x * self.scale, dim=-1).sum(dim=-1)"),
    ),
    planted(14, "zeros", "nontrivial", PLAIN_CHAIN, ("- torch.cos(x)", "* torch.zeros_like(x)")),
    planted(
        14,
        "softmax-over-one",
        "nontrivial",
        CONV_BLOCK,
        (
            "return h * self.gain",
            "return torch.softmax((h * self.gain).mean(dim=1, keepdim=True), dim=1)",
        ),
    ),
    planted(
        15,
        "mean-of-sigmoids",
        "nontrivial",
        _POOLED,
        (
            "bent.square().sum(dim=1).sqrt() + bent.amax(dim=1) + 2 * bent[:, 0]",
            "torch.sigmoid(bent).mean(dim=1)",
        ),
        stage="measure",
    ),
    planted(
        15,
        "largest-of-many",
        "nontrivial",
        _POOLED,
        (
            "bent.square().sum(dim=1).sqrt() + bent.amax(dim=1) + 2 * bent[:, 0]",
            "3 * bent.amax(dim=1)",
        ),
        stage="measure",
    ),
    planted(
        16,
        "mean-of-normals",
        "nontrivial",
        _POOLED,
        (
            "bent.square().sum(dim=1).sqrt() + bent.amax(dim=1) + 2 * bent[:, 0]",
            "bent.mean()",
        ),
        stage="measure",
    ),
    planted(
        17,
        "instance-norm-of-normals",
        "nontrivial",
        _MAPS,
        ("torch.tanh(self.norm(x))", "self.norm(x)"),
        stage="measure",
    ),
    planted(
        17,
        "copy",
        "nontrivial",
        PLAIN_CHAIN,
        ("torch.nn.functional.mish(h) - torch.cos(x)", "x + 1e-9 * torch.cos(h)"),
    ),
    planted(
        18,
        "rare-equality",
        "nontrivial",
        _WHOLE,
        ("torch.where(x > y, torch.exp(-x), torch.sin(y))", "torch.eq(x, y).float()"),
    ),
    planted(
        18,
        "no-nan-to-find",
        "nontrivial",
        _WHOLE,
        ("torch.where(x > y, torch.exp(-x), torch.sin(y))", "torch.isnan(x * y)"),
    ),
    planted(
        18,
        "far-tail",
        "nontrivial",
        _WHOLE,
        ("torch.where(x > y, torch.exp(-x), torch.sin(y))", "torch.relu(x * y - 40.0)"),
    ),
    planted(
        19,
        "floor-of-rand",
        "nontrivial",
        PROJECTION,
        ("return x * self.scale", "return torch.floor(torch.sigmoid(x)) * self.scale"),
    ),
    planted(
        19,
        "saturated-sigmoid",
        "nontrivial",
        PROJECTION,
        ("return x * self.scale", "return torch.sigmoid(x * self.scale + 60.0)"),
    ),
    planted(
        19,
        "saturated-clamp",
        "nontrivial",
        PROJECTION,
        ("return x * self.scale", "return torch.clamp(x * self.scale + 9.0, 0.0, 2.0)"),
    ),
    planted(21, "one-hot-softmax", "nontrivial", _SOFTENED, ("4 * x", "4e5 * x"), stage="measure"),
    planted(
        23,
        "negative-part-of-a-positive",
        "nontrivial",
        _POSITIVE,
        ("self.mix(x - 0.5)", "self.mix(x)"),
    ),
)

PATTERNS = TRIVIAL
