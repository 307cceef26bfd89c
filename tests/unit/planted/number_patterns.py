"""Defects of values: inputs that never change, outputs that are no numbers or no digits."""

from __future__ import annotations

from honest_tasks import ATTENTION, GATED_PAIR, PLAIN_CHAIN, PROJECTION
from planting import planted, swapped

_TABLED = swapped(
    GATED_PAIR,
    (
        "torch.randn(rows, features), torch.randn(rows, features)",
        "torch.randn(rows, features), torch.randn(features)",
    ),
)

# 13: every draw is the same. 36: drawing takes longer than anything else. 46: each draw has
# another structure.
INPUTS = (
    planted(
        13,
        "ones",
        "stable_inputs",
        PLAIN_CHAIN,
        ("torch.randn(batch_size, length)", "torch.ones(batch_size, length)"),
        earlier=("nontrivial",),
    ),
    planted(
        13,
        "ramp",
        "stable_inputs",
        PLAIN_CHAIN,
        (
            "torch.randn(batch_size, length)",
            "torch.linspace(-2, 2, batch_size * length).view(batch_size, length)",
        ),
        earlier=("nontrivial",),
    ),
    planted(
        13,
        "one-of-two",
        "stable_inputs",
        _TABLED,
        ("torch.randn(features)", "torch.linspace(0, 1, features)"),
    ),
    planted(
        13,
        "own-generator",
        "stable_inputs",
        PLAIN_CHAIN,
        (
            "return [torch.randn(batch_size, length)]",
            "source = torch.Generator().manual_seed(7)\n"
            "    return [torch.randn(batch_size, length, generator=source)]",
        ),
        earlier=("nontrivial",),
    ),
    planted(
        13,
        "made-at-import",
        "stable_inputs",
        PLAIN_CHAIN,
        ("\n\nclass Model", "\nfixed = torch.randn(batch_size, length)\n\n\nclass Model"),
        ("[torch.randn(batch_size, length)]", "[fixed]"),
        earlier=("nontrivial",),
    ),
    planted(
        46,
        "drawn-length",
        "stable_inputs",
        PLAIN_CHAIN,
        (
            "[torch.randn(batch_size, length)]",
            "[torch.randn(batch_size, 400 + torch.randint(0, 100, ()).item())]",
        ),
    ),
    planted(
        46,
        "drawn-type",
        "stable_inputs",
        PLAIN_CHAIN,
        (
            "return [torch.randn(batch_size, length)]",
            "kind = (torch.float32, torch.float64)[torch.randint(0, 2, ()).item()]\n"
            "    return [torch.randn(batch_size, length, dtype=kind)]",
        ),
    ),
)

_LOGS = swapped(
    PROJECTION, ("return x * self.scale", "return torch.log(x.abs() + 0.1) * self.scale")
)
_SPREAD = """
import torch
import torch.nn as nn

rows = 80
width = 400


class Model(nn.Module):
    \"\"\"Variance of rows far from zero, by its definition.\"\"\"

    def __init__(self):
        super().__init__()

    def forward(self, x):
        mean = x.mean(dim=1, keepdim=True)
        variance = (x - mean).square().mean(dim=1, keepdim=True)
        return torch.tanh(x - mean) * torch.sqrt(variance + 1e-3)


def get_inputs():
    spread = 0.5 + torch.rand(rows, 1)
    return [100 + torch.randn(rows, width) * spread]


def get_init_inputs():
    return []
"""
_GROWING = swapped(
    PLAIN_CHAIN, ("torch.nn.functional.mish(h)", "torch.cumsum(torch.sin(h), dim=1)")
)

# 20: logarithms and roots outside their domain, products that overflow. 32: float32 has no
# correct digit of the result.
NUMBERS = (
    planted(20, "log-of-a-negative", "finite", _LOGS, ("x.abs() + 0.1", "x + 0.1")),
    planted(20, "root-of-a-normal", "finite", _LOGS, ("torch.log(x.abs() + 0.1)", "torch.sqrt(x)")),
    planted(
        20,
        "digamma-at-its-poles",
        "finite",
        _LOGS,
        ("torch.log(x.abs() + 0.1)", "torch.digamma(torch.floor(x))"),
    ),
    planted(
        20,
        "product-that-overflows",
        "finite",
        PLAIN_CHAIN,
        ("torch.nn.functional.mish(h)", "torch.prod(3 + h.abs(), dim=1, keepdim=True)"),
    ),
    planted(
        20,
        "everything-masked",
        "finite",
        ATTENTION,
        (
            "* self.factor\n",
            "* self.factor\n        scores = scores.masked_fill(scores < 9e9, -math.inf)\n",
        ),
    ),
    planted(
        32,
        "squares-that-cancel",
        "judgeable",
        _SPREAD,
        ("100 + torch.randn", "20000 + torch.randn"),
        (
            "(x - mean).square().mean(dim=1, keepdim=True)",
            "(x.square().mean(dim=1, keepdim=True) - mean.square()).abs()",
        ),
    ),
    planted(
        32,
        "chaos",
        "judgeable",
        PLAIN_CHAIN,
        (
            "        return",
            "        for _ in range(60):\n            h = 1 - 1.9 * (h * h).clamp(max=1)\n        return",
        ),
    ),
    planted(
        32, "sine-of-huge", "judgeable", _GROWING, ("torch.sin(h)", "torch.sin(1e9 * h.exp())")
    ),
)

PATTERNS = INPUTS + NUMBERS
