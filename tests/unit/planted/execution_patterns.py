"""Defects of running: leaves, control flow, devices, and hidden randomness."""

from __future__ import annotations

from honest_tasks import CONV_BLOCK, GATED_PAIR, PLAIN_CHAIN, PROJECTION
from planting import planted, swapped

_CAST = swapped(PROJECTION, ("return x * self.scale", "return x * self.scale, x.amax(dim=1)"))
_PICKED = swapped(PLAIN_CHAIN, ("torch.nn.functional.mish(h)", "torch.where(h > 0, h, h.exp())"))
_SCALED = swapped(PLAIN_CHAIN, ("torch.cos(x)", "x / x.abs().amax()"))
_TABLE = swapped(
    PLAIN_CHAIN,
    ("torch.cos(x)", "x * torch.arange(x.shape[1], device=x.device, dtype=x.dtype).sin()"),
)
_VIEWED = """
import torch
import torch.nn as nn

batch_size = 16
length = 60
heads = 4
head_dim = 20


class Model(nn.Module):
    \"\"\"Splits heads off the features and activates them.\"\"\"

    def __init__(self, heads):
        super().__init__()
        self.heads = heads

    def forward(self, x):
        split = x.view(x.shape[0], x.shape[1], self.heads, -1)
        return torch.sin(split.transpose(1, 2)).mul(2)


def get_inputs():
    return [torch.randn(batch_size, length, heads * head_dim)]


def get_init_inputs():
    return [heads]
"""

# 28: a leaf is no tensor. 29: the values decide the shape, or the host waits for them. 30: one
# graph cannot hold it, or it runs otherwise when compiled. 37: the device is the constant CPU.
# 50: nothing computes.
LEAVES = (
    planted(
        28,
        "float-output",
        "executes",
        PLAIN_CHAIN,
        ("mish(h) - torch.cos(x)", "mish(h).mean().tolist()"),
    ),
    planted(28, "none-output", "executes", _CAST, ("x.amax(dim=1)", "None")),
    planted(28, "list-with-a-size", "executes", _CAST, ("x.amax(dim=1)", "x.shape[0]")),
    planted(
        28,
        "number-input",
        "executes",
        GATED_PAIR,
        (
            "torch.randn(rows, features), torch.randn(rows, features)",
            "torch.randn(rows, features), 0.3",
        ),
        ("torch.sigmoid(gate)", "torch.sigmoid(gate + x)"),
    ),
    planted(
        28,
        "none-input",
        "executes",
        PLAIN_CHAIN,
        ("def forward(self, x):", "def forward(self, x, mask=None):"),
        ("[torch.randn(batch_size, length)]", "[torch.randn(batch_size, length), None]"),
    ),
    planted(
        29,
        "masked-selection",
        "executes",
        PLAIN_CHAIN,
        ("torch.cos(x)", "torch.cos(x)[x > 0].mean()"),
    ),
    planted(
        29,
        "number-of-hits",
        "executes",
        PLAIN_CHAIN,
        ("return torch", "return torch.nonzero(h > 1).float() if True else torch"),
    ),
    planted(
        29,
        "host-reads-the-maximum",
        "executes",
        _SCALED,
        ("x.abs().amax()", "x.abs().amax().item()"),
    ),
    planted(
        29, "host-reads-a-number", "executes", _SCALED, ("x.abs().amax()", "float(x.abs().amax())")
    ),
    planted(
        30,
        "branch-on-a-value",
        "executes",
        PLAIN_CHAIN,
        ("        return", "        if h.sum() > 0:\n            h = h.exp()\n        return"),
    ),
    planted(
        30,
        "asks-for-the-compiler",
        "executes",
        PLAIN_CHAIN,
        (
            "        return",
            "        if torch.compiler.is_compiling():\n            h = h * 2\n        return",
        ),
    ),
    planted(
        30,
        "deliberate-break",
        "executes",
        PLAIN_CHAIN,
        ("        return", "        torch._dynamo.graph_break()\n        return"),
    ),
    planted(37, "table-on-the-host", "executes", _TABLE, ("device=x.device", 'device="cpu"')),
    planted(37, "table-without-a-device", "executes", _TABLE, ("device=x.device, ", "")),
    planted(
        37, "moved-to-the-host", "executes", PLAIN_CHAIN, ("torch.cos(x)", "torch.cos(x.cpu())")
    ),
    planted(
        50,
        "view-only",
        "executes",
        _VIEWED,
        ("torch.sin(split.transpose(1, 2)).mul(2)", "split.transpose(1, 2)"),
    ),
    planted(
        50,
        "slices-only",
        "executes",
        _VIEWED,
        (
            "torch.sin(split.transpose(1, 2)).mul(2)",
            "split[:, 1:].permute(2, 0, 3, 1).unsqueeze(1)",
        ),
    ),
)

_POOL = swapped(
    CONV_BLOCK, ("return h * self.gain", "return nn.functional.max_pool2d(h * self.gain, 2)")
)
_LEAKY = swapped(PROJECTION, ("F.gelu(x)", "F.leaky_relu(x, 0.2)"))
_SOFT = swapped(PROJECTION, ("F.gelu(x)", "F.softmax(4 * x, dim=-1) - x"))

# 11: randomness inside an op that does not look random. Where the source shows it, the source
# rules may speak first.
HIDDEN = (
    planted(
        11,
        "fractional-pool",
        "deterministic",
        _POOL,
        (
            "max_pool2d(h * self.gain, 2)",
            "fractional_max_pool2d(h * self.gain, 2, output_ratio=(0.5, 0.5))",
        ),
    ),
    planted(
        11,
        "fractional-pool-module",
        "deterministic",
        _POOL,
        ("nn.functional.max_pool2d(h * self.gain, 2)", "self.pool(h * self.gain)"),
        (
            "super().__init__()",
            "super().__init__()\n        self.pool = nn.FractionalMaxPool2d(3, output_size=(11, 12))",
        ),
    ),
    planted(
        11,
        "randomised-slope",
        "deterministic",
        _LEAKY,
        ("F.leaky_relu(x, 0.2)", "F.rrelu(x, 0.1, 0.3, training=True)"),
    ),
    planted(
        11,
        "gumbel",
        "deterministic",
        _SOFT,
        ("F.softmax(4 * x, dim=-1)", "F.gumbel_softmax(4 * x, dim=-1)"),
    ),
)

PATTERNS = LEAVES + HIDDEN
