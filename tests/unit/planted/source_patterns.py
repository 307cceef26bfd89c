"""Defects that the source shows: what is drawn, imported, left over or never read."""

from __future__ import annotations

from honest_tasks import ATTENTION, BATCH_NORM, CONV_BLOCK, GATED_PAIR, PLAIN_CHAIN, PROJECTION
from planting import Pattern, swapped

_OWN = "self_contained"
_IMPORTS = "import torch\nimport torch.nn as nn\n"


def _own(number: int, name: str, good: str, *swaps: tuple[str, str], witness: str = "") -> Pattern:
    return Pattern(number, name, _OWN, swapped(good, *swaps), good, witness=witness)


_HELPER = swapped(
    PLAIN_CHAIN,
    ("class Model", "def jitter(t):\n    return torch.sin(t)\n\n\nclass Model"),
    ("torch.cos(x)", "jitter(x)"),
)
_DROPPED = swapped(
    PROJECTION,
    ("F.gelu(x)", "F.dropout(F.gelu(x), p=0.2, training=self.training)"),
)
_COMMENTED = swapped(
    PROJECTION,
    (
        "        x = F.gelu(x)\n",
        "        # the exact form, not the tanh one\n        x = F.gelu(x)\n",
    ),
)
_SUBMODULE = """
import torch
from torch import nn

rows = 56
width = 288


class Disturbed(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width))

    def forward(self, x):
        return x * self.weight + x.sigmoid()


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body = Disturbed(width)

    def forward(self, x):
        return self.body(x).atan()


def get_inputs():
    return [torch.randn(rows, width)]


def get_init_inputs():
    return [width]
"""
_CHUNKED = swapped(
    PLAIN_CHAIN,
    ("def __init__(self):", "def __init__(self, shift):"),
    ("super().__init__()", "super().__init__()\n        self.shift = shift"),
    ("shifts=1", "shifts=self.shift"),
    ("return []", "return [3]"),
)

# 7: the value that the caller passes makes no difference; a global of its name does.
# 8: the value is stored, and nothing that runs reads the attribute.
ARGUMENTS = (
    _own(
        7,
        "argument-shadowed-by-a-global",
        PROJECTION,
        ("        self.scale = scale\n", ""),
        ("x * self.scale", "x * scale"),
        witness="scale",
    ),
    _own(
        7,
        "size-shadowed-by-a-global",
        CONV_BLOCK,
        ("(out_channels, 1, 1))", "(24, 1, 1))"),
        ("kernel_size, padding=1", "3, padding=1"),
        witness="kernel_size",
    ),
    _own(8, "argument-stored-only", PROJECTION, ("x * self.scale", "x * 1.5"), witness="scale"),
    _own(
        8,
        "argument-stored-under-another-name",
        PROJECTION,
        ("self.scale = scale", "self.factor = float(scale)"),
        ("x * self.scale", "x + 1.5"),
        witness="scale",
    ),
)

# 9: each call draws; two calls on one input differ.
# 10: functional dropout drops unless it is told not to.
RANDOM = (
    _own(
        9,
        "noise-like",
        CONV_BLOCK,
        ("self.conv(x)", "self.conv(x) + torch.randn_like(x).mean()"),
        witness="randn_like",
    ),
    _own(
        9,
        "uniform-in-place",
        PROJECTION,
        ("x = F.gelu(x)", "x = F.gelu(x) * torch.empty_like(x).uniform_(0.9, 1.1)"),
        witness="uniform_",
    ),
    _own(
        9,
        "imported-under-another-name",
        PLAIN_CHAIN,
        (_IMPORTS, _IMPORTS + "from torch import rand_like as weight_of\n"),
        ("torch.cos(x)", "weight_of(x)"),
    ),
    _own(9, "in-a-helper-function", _HELPER, ("torch.sin(t)", "t + torch.rand(1)"), witness="rand"),
    _own(
        9, "in-a-submodule", _SUBMODULE, ("x.sigmoid()", "torch.normal(x, 1.0)"), witness="normal"
    ),
    _own(
        9,
        "in-a-method",
        PROJECTION,
        (
            "    def forward(self, x):\n",
            "    def mask_of(self, x):\n        return torch.bernoulli(torch.full_like(x, 0.8))\n\n"
            "    def forward(self, x):\n",
        ),
        ("x * self.scale", "x * self.scale * self.mask_of(x)"),
        witness="bernoulli",
    ),
    _own(
        9,
        "distribution-object",
        PLAIN_CHAIN,
        ("torch.cos(x)", "torch.distributions.Normal(x, 1.0).sample()"),
    ),
    _own(
        10,
        "dropout-by-default",
        _DROPPED,
        ("p=0.2, training=self.training", "p=0.2"),
        witness="dropout",
    ),
    _own(
        10,
        "dropout-always-on",
        _DROPPED,
        ("p=0.2, training=self.training", "0.2, True"),
        witness="dropout",
    ),
    _own(
        10,
        "alpha-dropout",
        _DROPPED,
        (
            "F.dropout(F.gelu(x), p=0.2, training=self.training)",
            "F.alpha_dropout(F.gelu(x), 0.1, training=True)",
        ),
        witness="alpha_dropout",
    ),
)

# 27: the weights have no shape before a first call. 38: the package is not part of torch.
# 45: the later definition silently wins. 49: another model at every construction.
FORM = (
    _own(
        27,
        "lazy-linear",
        PROJECTION,
        ("nn.Linear(in_features, out_features)", "nn.LazyLinear(out_features + 0 * in_features)"),
        witness="Lazy",
    ),
    _own(27, "lazy-batch-norm", BATCH_NORM, ("nn.BatchNorm1d(channels)", "nn.LazyBatchNorm1d()")),
    _own(
        38,
        "transformers",
        PROJECTION,
        (
            "import torch\nimport torch.nn as nn\n",
            _IMPORTS + "from transformers.activations import ACT2FN\n",
        ),
        ("F.gelu(x)", 'ACT2FN["gelu"](x)'),
        witness="transformers",
    ),
    _own(
        38,
        "local-helper",
        PROJECTION,
        ("import torch\nimport torch.nn as nn\n", _IMPORTS + "from layers import gelu_fast\n"),
        ("F.gelu(x)", "gelu_fast(x)"),
        witness="layers",
    ),
    _own(
        38,
        "numpy",
        ATTENTION,
        ("import math\n", "import numpy as np\n"),
        ("math.sqrt", "np.sqrt"),
        witness="numpy",
    ),
    _own(
        45,
        "two-models",
        CONV_BLOCK,
        (
            "def get_inputs():",
            "class Model(nn.Module):\n    def forward(self, x):\n        return x.relu() + 1\n\n\n"
            "def get_inputs():",
        ),
        witness="Model",
    ),
    _own(
        45,
        "two-forwards",
        GATED_PAIR,
        (
            "    def forward(self, x, gate):",
            "    def forward(self, x, gate):\n        return self.norm(x) * gate\n\n"
            "    def forward(self, x, gate):",
        ),
        witness="forward",
    ),
    _own(
        45,
        "two-draws",
        PLAIN_CHAIN,
        (
            "def get_init_inputs():",
            "def get_inputs():\n    return [torch.rand(batch_size, length)]\n\n\n"
            "def get_init_inputs():",
        ),
        witness="get_inputs",
    ),
    _own(
        48,
        "code-fence",
        PROJECTION,
        (
            "return [in_features, out_features, scale]\n",
            "return [in_features, out_features, scale]\n```\n",
        ),
        witness="fence",
    ),
    _own(
        48,
        "fence-in-a-comment",
        CONV_BLOCK,
        ("import torch\nimport torch.nn", "# ```python\nimport torch\nimport torch.nn"),
        witness="fence",
    ),
    _own(
        48,
        "notes-on-the-rewrite",
        _COMMENTED,
        (
            "# the exact form, not the tanh one",
            "# Increased from 128 to 192 features to make the task heavier",
        ),
    ),
    _own(
        48,
        "notes-beside-a-size",
        PROJECTION,
        ("batch_size = 128\n", "batch_size = 128  # increased from 16 to keep the GPU busy\n"),
        witness="increased",
    ),
    _own(
        48,
        "sentence-before-the-code",
        PLAIN_CHAIN,
        (
            "\nimport torch\nimport",
            "Here is the fused module you asked for:\n\nimport torch\nimport",
        ),
    ),
    _own(
        49,
        "drawn-shift",
        _CHUNKED,
        ("return [3]", "return [int(torch.randint(1, 9, (1,)).item())]"),
    ),
    _own(
        49,
        "drawn-by-python",
        _CHUNKED,
        (_IMPORTS, "import random\n\n" + _IMPORTS),
        ("return [3]", "return [random.randint(1, 9)]"),
        witness="random",
    ),
    _own(
        49,
        "drawn-in-the-constructor",
        _CHUNKED,
        ("self.shift = shift", "self.shift = shift + int(torch.rand(()) * 5)"),
    ),
)

_UNSAFE = {
    "open": ('        with open("weights.txt") as file:\n            file.read()\n', "open"),
    "exec": ('        exec("y = 1")\n', "exec"),
    "environ": ('        __import__("os").environ.clear()\n', ""),
    "torch-load": ('        torch.load("weights.pt")\n', "load"),
    "bound-load": ('        read = torch.load\n        read("weights.pt")\n', "load"),
    "eval": ('        x = x + eval("0")\n', "eval"),
    "getattr-by-parts": ('        getattr(torch, "lo" + "ad")("weights.pt")\n', "getattr"),
    "hub": ('        torch.hub.load("a/b", "c")\n', "hub"),
    "library": ('        torch.ops.load_library("kernel.so")\n', "load_library"),
    "subclasses": ("        ().__class__.__base__.__subclasses__()\n", ""),
    "builtins": ('        torch.nn.functional.__dict__["__builtins__"]["open"]("f")\n', ""),
    "module-of-module": ("        nn.modules.module.sys.exit(0)\n", "sys"),
    "patching": ("        torch.relu = torch.tanh\n", "relu"),
}
_UNSAFE_IMPORTS = {
    "os": "import os\n",
    "subprocess": "import subprocess\n",
    "socket": "from socket import socket\n",
    "extension": "from torch.utils.cpp_extension import load_inline\n",
}

# 47: code that reaches beyond its tensors.
UNSAFE = tuple(
    _own(47, name, PLAIN_CHAIN, ("        h = x +", f"{line}        h = x +"), witness=witness)
    for name, (line, witness) in _UNSAFE.items()
) + tuple(
    _own(47, f"import-{name}", PLAIN_CHAIN, (_IMPORTS, _IMPORTS + line), witness="import")
    for name, line in _UNSAFE_IMPORTS.items()
)

PATTERNS = ARGUMENTS + RANDOM + FORM + UNSAFE
