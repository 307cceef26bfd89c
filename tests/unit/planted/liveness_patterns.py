"""Parts that make no difference: unused, overwritten, absorbed, or nothing in the first place."""

from __future__ import annotations

from honest_tasks import ATTENTION, CONV_BLOCK, GATED_PAIR, PLAIN_CHAIN, PROJECTION, TWO_BRANCHES
from planting import Pattern, swapped


def _dead(
    number: int,
    name: str,
    good: str,
    *swaps: tuple[str, str],
    witness: str = "",
    earlier: tuple[str, ...] = (),
) -> Pattern:
    bad = swapped(good, *swaps)
    return Pattern(number, name, "live", bad, good, witness=witness, earlier=earlier)


# 3: nothing reads the weights. 4: what is computed is thrown away or overwritten.
UNUSED = (
    _dead(
        3,
        "module-never-called",
        TWO_BRANCHES,
        ("F.silu(self.gate(x))", "F.silu(value)"),
        witness="gate",
    ),
    _dead(
        3,
        "parameter-never-read",
        CONV_BLOCK,
        ("return h * self.gain", "return h * 0.75"),
        witness="gain",
    ),
    _dead(
        3,
        "bias-multiplied-by-zero",
        PROJECTION,
        (
            "self.linear = nn.Linear(in_features, out_features)",
            "self.linear = nn.Linear(in_features, out_features)\n"
            "        self.offset = nn.Parameter(torch.randn(out_features))",
        ),
        ("x * self.scale", "x * self.scale + 0.0 * self.offset"),
        witness="add",
    ),
    _dead(
        4,
        "branch-overwritten",
        TWO_BRANCHES,
        (
            "        return value * gate",
            "        gate = torch.tanh(value)\n        return value * gate",
        ),
        witness="gate",
    ),
    _dead(
        4,
        "result-discarded",
        PLAIN_CHAIN,
        ("        return", "        torch.exp(h).cumsum(1)\n        return"),
    ),
    _dead(
        4,
        "result-kept-in-a-name",
        GATED_PAIR,
        ("        return", "        spread = normed.var(dim=-1, keepdim=True)\n        return"),
    ),
    _dead(
        4,
        "selected-away",
        GATED_PAIR,
        (
            "        return torch.tanh(normed * opened)",
            "        pair = torch.stack([normed * opened, normed.exp() - gate.cos()])\n"
            "        return torch.tanh(pair[0])",
        ),
    ),
)

# 5: no value of the argument is read. 6: its shape is, its values are not.
# 52: scores against a single key: their softmax is 1 whatever the query.
_CROSS = """
import torch
import torch.nn as nn

batch_size = 12
length = 36
width = 64


class Model(nn.Module):
    \"\"\"Pools the tokens of `memory` by their agreement with a query.\"\"\"

    def __init__(self, width):
        super().__init__()
        self.project = nn.Linear(width, width)

    def forward(self, query, memory):
        agreement = torch.matmul(memory, self.project(query).unsqueeze(-1))
        weights = torch.softmax(agreement, dim=1)
        return torch.sum(weights * memory, dim=1)


def get_inputs():
    return [torch.randn(batch_size, width), torch.randn(batch_size, length, width)]


def get_init_inputs():
    return [width]
"""
ARGUMENTS = (
    _dead(
        5,
        "argument-unused",
        GATED_PAIR,
        ("torch.sigmoid(gate)", "torch.sigmoid(x)"),
        ("0.5 * gate", "0.5 * x"),
        witness="gate",
    ),
    _dead(
        5,
        "argument-times-zero",
        GATED_PAIR,
        ("torch.sigmoid(gate)", "torch.sigmoid(x + 0 * gate)"),
        ("0.5 * gate", "0.5 * x"),
        witness="add",
    ),
    _dead(
        6,
        "argument-as-a-shape",
        GATED_PAIR,
        ("torch.sigmoid(gate)", "torch.sigmoid(x.view(gate.shape))"),
        ("0.5 * gate", "0.5 * x"),
        witness="gate",
    ),
    _dead(
        6,
        "argument-as-ones",
        GATED_PAIR,
        ("torch.sigmoid(gate)", "torch.sigmoid(torch.ones_like(gate) * x)"),
        ("0.5 * gate", "0.5 * x"),
        witness="mul",
    ),
    _dead(
        52,
        "softmax-over-one-key",
        _CROSS,
        ("dim=1)\n        return", "dim=-1)\n        return"),
        witness="Linear",
        earlier=("nontrivial",),
    ),
    _dead(
        52,
        "weights-averaged-out",
        ATTENTION,
        ("torch.matmul(weights, value)", "value * weights.sum(dim=-1, keepdim=True)"),
        witness="mul",
        earlier=("nontrivial",),
    ),
)

_CONV_NORM = swapped(
    CONV_BLOCK,
    (
        "kernel_size, padding=1)",
        "kernel_size, padding=1, bias=False)\n        self.norm = nn.InstanceNorm2d(out_channels)",
    ),
    ("silu(h)", "silu(self.norm(h))"),
)
_POOLED = """
import torch
import torch.nn as nn
import torch.nn.functional as F

batch_size = 32
channels = 24
side = 12


class Model(nn.Module):
    \"\"\"Squeezes maps to their means and excites the channels.\"\"\"

    def __init__(self, channels):
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.excite = nn.Linear(channels, channels)

    def forward(self, x):
        squeezed = self.pool(F.relu(x))
        gains = torch.tanh(4 * self.excite(squeezed.flatten(1)))
        return gains[:, :, None, None] * x


def get_inputs():
    return [torch.randn(batch_size, channels, side, side)]


def get_init_inputs():
    return [channels]
"""
_NORMED = """
import torch
import torch.nn as nn

tokens = 144
width = 256


class Model(nn.Module):
    \"\"\"A projection, its layer norm and an activation.\"\"\"

    def __init__(self, width):
        super().__init__()
        self.up = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        h = self.up(x)
        return torch.nn.functional.elu(self.norm(h))


def get_inputs():
    return [torch.randn(tokens, width)]


def get_init_inputs():
    return [width]
"""
_TRANSPOSED = """
import torch
import torch.nn as nn
import torch.nn.functional as F

batch_size = 16
length = 72
width = 80


class Model(nn.Module):
    \"\"\"Mixes along the sequence, then along the features.\"\"\"

    def __init__(self, width):
        super().__init__()
        self.mix = nn.Linear(width, width)

    def forward(self, x):
        h = F.gelu(self.mix(x))
        h = h.transpose(1, 2).contiguous().cumsum(dim=-1)
        return torch.tanh(h.transpose(1, 2)) * x


def get_inputs():
    return [torch.randn(batch_size, length, width)]


def get_init_inputs():
    return [width]
"""
_RECTIFIED = swapped(PLAIN_CHAIN, ("torch.nn.functional.mish(h)", "torch.relu(h)"))
_SCALAR = swapped(PLAIN_CHAIN, ("- torch.cos(x)", "* h.abs().mean().log1p() - torch.cos(x)"))
_SQUARED = swapped(PLAIN_CHAIN, ("torch.nn.functional.mish(h)", "torch.square(h)"))
_TANH = swapped(PLAIN_CHAIN, ("torch.nn.functional.mish(h)", "torch.tanh(h).clamp(max=0.9)"))
_MEANS = swapped(
    PLAIN_CHAIN, ("- torch.cos(x)", "* (3 * h.mean(dim=1, keepdim=True)).exp() - torch.cos(x)")
)
_MASKED = swapped(PLAIN_CHAIN, ("torch.cos(x)", "torch.cos(x) * torch.logical_xor(x > 0.3, h > 0)"))

# 22: a stage that gives back what it got. 54: the same, because of what came before.
NO_OPS = (
    _dead(22, "product-of-a-scalar", _SCALAR, ("mean().log1p()", "mean().prod().log1p()")),
    _dead(22, "relu-of-relu", _RECTIFIED, ("relu(h)", "relu(h).relu()")),
    _dead(22, "abs-of-square", _SQUARED, ("square(h)", "square(h).abs()")),
    _dead(
        22,
        "transposed-there-and-back",
        _TRANSPOSED,
        (
            "        h = h.transpose(1, 2)",
            "        h = h.transpose(1, 2).contiguous().transpose(1, 2)\n        h = h.transpose(1, 2)",
        ),
    ),
    _dead(22, "xor-with-itself", _MASKED, ("(x > 0.3, h > 0)", "(h > 0, h > 0)")),
    _dead(22, "maximum-with-itself", PLAIN_CHAIN, ("mish(h)", "mish(torch.maximum(h, h))")),
    _dead(22, "difference-with-itself", PLAIN_CHAIN, ("torch.cos(x)", "torch.cos(x) + (h - h)")),
    _dead(22, "negated-twice", PLAIN_CHAIN, ("mish(h)", "mish(torch.neg(torch.neg(h)))")),
    _dead(
        22,
        "sorted-twice",
        _MEANS,
        (
            "h.mean(dim=1, keepdim=True)",
            "torch.sort(torch.sort(h, dim=1)[0], dim=1)[0][:, :200].mean(dim=1, keepdim=True)",
        ),
    ),
    _dead(
        54,
        "second-global-pool",
        _POOLED,
        ("self.pool(F.relu(x))", "F.adaptive_avg_pool2d(self.pool(F.relu(x)), 1)"),
    ),
    _dead(
        54,
        "maximum-over-one-place",
        _POOLED,
        ("self.pool(F.relu(x))", "self.pool(F.relu(x)).amax(dim=(2, 3), keepdim=True)"),
    ),
    _dead(
        54,
        "mean-of-a-mean",
        _MEANS,
        ("h.mean(dim=1, keepdim=True)", "h.mean(dim=1, keepdim=True).mean(dim=1, keepdim=True)"),
    ),
    _dead(54, "clamp-after-tanh", _TANH, ("clamp(max=0.9)", "clamp(-1.0, 1.0)")),
    _dead(54, "relu-after-softplus", PROJECTION, ("F.gelu(x)", "F.relu(F.softplus(x))")),
    _dead(
        54,
        "logsumexp-of-one",
        _MEANS,
        ("h.mean(dim=1, keepdim=True)", "h.mean(dim=1, keepdim=True).logsumexp(1, keepdim=True)"),
    ),
)

# 53: the norm divides out what was multiplied before it, and takes away what was added.
# 24: most of what is computed is cut off. 55: the statistic is the same for every draw.
_SHORT = """
import torch
import torch.nn as nn

rows = 2048
features = 128


class Model(nn.Module):
    \"\"\"Divides by a deviation and bends what is left.\"\"\"

    def __init__(self):
        super().__init__()

    def forward(self, x):
        spread = x.std(dim=1, keepdim=True)
        return torch.tanh(x / spread)


def get_inputs():
    level = torch.rand(rows, 1, dtype=torch.bfloat16) + 0.25
    return [torch.randn(rows, features, dtype=torch.bfloat16) * level]


def get_init_inputs():
    return []
"""
ABSORBED = (
    _dead(53, "bias-before-instance-norm", _CONV_NORM, ("bias=False", "bias=True"), witness="bias"),
    _dead(53, "gain-before-instance-norm", _CONV_NORM, ("self.norm(h)", "self.norm(h * 3.0)")),
    _dead(53, "scale-before-layer-norm", _NORMED, ("self.norm(h)", "self.norm(h * 2.5)")),
    _dead(53, "shift-before-layer-norm", _NORMED, ("self.norm(h)", "self.norm(h - 0.7)")),
    _dead(53, "shift-before-softmax", ATTENTION, ("* self.factor", "* self.factor - self.factor")),
    _dead(
        24,
        "all-channels-but-one-cut-off",
        CONV_BLOCK,
        ("return h * self.gain", "return (h * self.gain)[:, :1]"),
    ),
    _dead(
        24,
        "diagonal-of-a-product",
        _TRANSPOSED,
        ("torch.tanh(h.transpose(1, 2)) * x", "torch.diagonal(torch.matmul(x, h), dim1=1, dim2=2)"),
    ),
    _dead(
        55,
        "deviation-of-everything",
        _SHORT,
        ("x.std(dim=1, keepdim=True)", "x.std()"),
        ("* level", "* (1 + 0 * level)"),
    ),
    _dead(55, "mean-of-everything", _SHORT, ("x / spread", "(x - x.mean()) / spread"), witness=""),
)

PATTERNS = UNUSED + ARGUMENTS + NO_OPS + ABSORBED
