"""Pairs of tasks that are the same, and pairs that only look alike."""

from __future__ import annotations

from dataclasses import dataclass

from honest_tasks import ATTENTION, CONV_BLOCK, GATED_PAIR, PLAIN_CHAIN, PROJECTION, TWO_BRANCHES
from planting import swapped


@dataclass(frozen=True, slots=True)
class Pair:
    """Two tasks of one set.

    Attributes:
        number: Which of the patterns.
        name: Which variant of it.
        first: The earlier task.
        again: The same task in another guise.
        other: A different task, as near to the first as `again` is or nearer.
    """

    number: int
    name: str
    first: str
    again: str
    other: str

    def __str__(self) -> str:
        return f"{self.number}-{self.name}"


_RELABELLED = '''import torch, torch.nn as nn
import torch.nn.functional as F
N, D, E, FACTOR = 128, 256, 192, 1.5
# project, activate, rescale
class Model(nn.Module):
    def __init__(self, d, e, factor):
        super().__init__()
        self.fc, self.factor = nn.Linear(d, e), factor
    def forward(self, rows):
        """Rows in, rows out."""
        a, b = torch.chunk(rows, 2, 1)
        hidden = F.gelu(self.fc(torch.maximum(a, torch.sin(b))))   # exact
        return hidden * self.factor
def get_inputs():
    return [torch.randn(N, 2 * D)]
def get_init_inputs():
    return [D, E, FACTOR]
'''

# 39: comments, layout and names of constants. 40: other sizes, names and spellings.
# 41: operands that commute, and ops that do nothing, are no difference.
PAIRS = (
    Pair(
        39,
        "commented-and-spaced",
        PROJECTION,
        swapped(
            PROJECTION,
            ("        x = F.gelu(x)\n", "\n        # bend\n        x = F.gelu( x )  # here\n\n"),
            (
                '    """Projects a folded input, activates and rescales it."""\n',
                '    """Some ops."""\n',
            ),
        ),
        swapped(PROJECTION, ("F.gelu(x)", "F.elu(x)")),
    ),
    Pair(
        39, "constants-renamed", PROJECTION, _RELABELLED, swapped(PROJECTION, ("gelu", "softsign"))
    ),
    Pair(
        39,
        "moved-definitions",
        CONV_BLOCK,
        swapped(
            CONV_BLOCK,
            ("\n\ndef get_init_inputs():\n    return [in_channels, out_channels, 3]\n", ""),
            (
                "\n\nclass Model",
                "\n\ndef get_init_inputs():\n    return [in_channels, out_channels, 3]\n\n\nclass Model",
            ),
        ),
        swapped(CONV_BLOCK, ("padding=1", "padding=0")),
    ),
    Pair(
        40,
        "other-sizes",
        PROJECTION,
        swapped(
            PROJECTION,
            ("batch_size = 128", "batch_size = 96"),
            ("in_features = 256", "in_features = 320"),
            ("out_features = 192", "out_features = 144"),
        ),
        swapped(PROJECTION, ("F.gelu(x)", 'F.gelu(x, approximate="tanh")')),
    ),
    Pair(
        40,
        "other-spellings",
        TWO_BRANCHES,
        swapped(
            TWO_BRANCHES,
            ("F.silu(self.gate(x))", "nn.SiLU()(F.linear(x, self.gate.weight))"),
            ("value * gate", "torch.mul(value, gate)"),
            ("hidden = 208", "hidden = 176"),
        ),
        swapped(TWO_BRANCHES, ("F.silu(self.gate(x))", "self.gate(F.silu(x))")),
    ),
    Pair(
        41,
        "operands-swapped",
        TWO_BRANCHES,
        swapped(TWO_BRANCHES, ("value * gate", "gate * value")),
        swapped(TWO_BRANCHES, ("value * gate", "value - gate")),
    ),
    Pair(
        41,
        "difference-turned-round",
        GATED_PAIR,
        swapped(
            GATED_PAIR,
            (
                "torch.tanh(normed * opened) + 0.5 * gate",
                "gate * 0.5 + torch.tanh(opened * normed)",
            ),
        ),
        swapped(
            GATED_PAIR,
            (
                "torch.tanh(normed * opened) + 0.5 * gate",
                "torch.tanh(normed + opened) * 0.5 * gate",
            ),
        ),
    ),
    Pair(
        41,
        "branches-in-the-other-order",
        TWO_BRANCHES,
        swapped(
            TWO_BRANCHES,
            (
                "        value = self.value(x)\n        gate = F.silu(self.gate(x))\n",
                "        gate = F.silu(self.gate(x))\n        value = self.value(x)\n",
            ),
        ),
        swapped(
            TWO_BRANCHES, ("gate = F.silu(self.gate(x))", "gate = F.silu(self.gate(x)) + x.mean()")
        ),
    ),
    Pair(
        41,
        "padded-with-identities",
        PLAIN_CHAIN,
        swapped(
            PLAIN_CHAIN,
            ("super().__init__()", "super().__init__()\n        self.same = nn.Identity()"),
            ("mish(h)", "mish(self.same(h).contiguous())"),
        ),
        swapped(PLAIN_CHAIN, ("mish(h)", "mish(h.exp())")),
    ),
    Pair(
        41,
        "padded-with-views",
        ATTENTION,
        swapped(
            ATTENTION,
            (
                "(query, key.transpose(-2, -1))",
                "(query.unsqueeze(0).squeeze(0), key.transpose(3, 2))",
            ),
        ),
        swapped(ATTENTION, ("dim=-1", "dim=-2")),
    ),
    Pair(
        41,
        "padded-with-ones",
        PLAIN_CHAIN,
        swapped(PLAIN_CHAIN, ("mish(h)", "mish(1 * h + 0)")),
        swapped(PLAIN_CHAIN, ("mish(h)", "mish(2 * h + 1)")),
    ),
)
