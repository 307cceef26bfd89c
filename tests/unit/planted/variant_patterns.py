"""Further guises of defects that have an example elsewhere, and nets too deep for their signal."""

from __future__ import annotations

from honest_tasks import ATTENTION, GATED_PAIR, PLAIN_CHAIN, TWO_BRANCHES
from planting import Pattern, swapped

_DEEP = """
import torch
import torch.nn as nn

batch_size = 40
width = 64
depth = 20


class Model(nn.Module):
    \"\"\"A stack of equal layers at their default initialisation, each added to its input.\"\"\"

    def __init__(self, width, depth):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(width, width) for _ in range(depth)])

    def forward(self, x):
        for layer in self.layers:
            x = x + torch.tanh(layer(x))
        return x


def get_inputs():
    return [torch.randn(batch_size, width)]


def get_init_inputs():
    return [width, depth]
"""
_IMPORTS = "import torch\nimport torch.nn as nn\n"


def _variant(kind: tuple[int, str], name: str, good: str, *swaps: tuple[str, str]) -> Pattern:
    number, criterion = kind
    earlier = ("nontrivial",) if number in (13, 51, 53) else ()
    return Pattern(number, name, criterion, swapped(good, *swaps), good, earlier=earlier)


def _line(kind: tuple[int, str], name: str, line: str) -> Pattern:
    return _variant(kind, name, PLAIN_CHAIN, ("        return", f"        {line}\n        return"))


def _term(kind: tuple[int, str], name: str, term: str) -> Pattern:
    return _variant(kind, name, PLAIN_CHAIN, ("torch.cos(x)", term))


_RANDOM, _FIXED = (9, "self_contained"), (13, "stable_inputs")
_FINITE, _PURE, _WAITS = (20, "finite"), (26, "deterministic"), (29, "executes")
_UNSAFE, _IDLE, _ABSORBED = (47, "self_contained"), (22, "live"), (53, "live")
_DEPTH = (51, "nontrivial")

PATTERNS = (
    # 51: each layer shrinks what tells two inputs apart; after twenty the biases are all there is.
    _variant(
        _DEPTH, "tanh-stack", _DEEP, ("x + torch.tanh(layer(x))", "torch.tanh(0.5 * layer(x))")
    ),
    _variant(
        _DEPTH, "sigmoid-stack", _DEEP, ("x + torch.tanh(layer(x))", "torch.sigmoid(layer(x))")
    ),
    _variant(_DEPTH, "relu-stack", _DEEP, ("x + torch.tanh(layer(x))", "torch.relu(layer(x))")),
    _variant(
        (3, "live"),
        "layers-never-reached",
        _DEEP,
        ("in self.layers:", "in self.layers[:14]:"),
    ),
    # Where sizes are cut to try a task out, the number of layers is one of them.
    _variant(
        (3, "live"),
        "half-of-many-layers",
        swapped(_DEEP, ("width = 64\ndepth = 20", "width = 160\ndepth = 40")),
        ("in self.layers:", "in self.layers[:20]:"),
    ),
    _variant(
        (6, "live"),
        "argument-as-a-length",
        GATED_PAIR,
        ("torch.sigmoid(gate)", "torch.sigmoid(x[:, : gate.shape[1]])"),
        ("0.5 * gate", "0.5 * x"),
    ),
    _line(_RANDOM, "initialiser", "h = h + nn.init.normal_(torch.empty_like(h))"),
    _line(_RANDOM, "shuffled", "h = h[torch.randperm(h.shape[0])]"),
    _line(_RANDOM, "torch-dropout", "h = torch.dropout(h, 0.3, True)"),
    _variant(
        _RANDOM,
        "dropped-attention",
        ATTENTION,
        (
            "torch.matmul(weights, value)",
            "weights @ value + torch.nn.functional.scaled_dot_product_attention("
            "query, key, value, dropout_p=0.2)",
        ),
    ),
    _variant(
        _FIXED,
        "cached",
        PLAIN_CHAIN,
        (_IMPORTS, "import functools\n\n" + _IMPORTS),
        ("def get_inputs", "@functools.lru_cache\ndef get_inputs"),
    ),
    _variant(
        _FIXED,
        "default-argument",
        PLAIN_CHAIN,
        ("def get_inputs():", "def get_inputs(x=torch.randn(batch_size, length)):"),
        ("[torch.randn(batch_size, length)]", "[x]"),
    ),
    _term(_FINITE, "fractional-power", "x ** 0.5"),
    _term(_FINITE, "arc-cosine", "torch.acos(2 * x)"),
    _term(_FINITE, "division-by-zero", "torch.cos(x) / (h - h)"),
    _line(_PURE, "out-argument", "torch.add(x, 1, out=x)"),
    _line(_PURE, "past-autograd", "x.data.clamp_(-1, 1)"),
    _line(_PURE, "many-at-once", "torch._foreach_mul_([x], 1.1)"),
    _term(_WAITS, "distinct-values", "torch.unique(x.round()).numel()"),
    _term(_WAITS, "python-list", "max(x.flatten()[:3].tolist())"),
    _term(_WAITS, "python-integer", "int(x.sum())"),
    _term(_WAITS, "array-and-back", "torch.from_numpy(x.numpy())"),
    _line((30, "executes"), "loop-on-a-value", "while h.max() > 3:\n            h = h * 0.9"),
    _line(_UNSAFE, "jit-load", 'torch.jit.load("f")'),
    _line(_UNSAFE, "vars", 'vars(torch)["load"]("f")'),
    _line(_UNSAFE, "object-getattribute", 'object.__getattribute__(torch, "load")("f")'),
    _line(_UNSAFE, "flags", "torch.backends.cuda.matmul.allow_tf32 = True"),
    _line(_UNSAFE, "threads", "torch.set_num_threads(1)"),
    _line(_UNSAFE, "setattr", 'setattr(torch, "relu", None)'),
    _line(_UNSAFE, "patched-call", "nn.Module.__call__ = None"),
    _variant(
        _UNSAFE,
        "class-body",
        PLAIN_CHAIN,
        ("    def __init__(self):", '    data = open("f")\n\n    def __init__(self):'),
    ),
    _line(_IDLE, "times-one", "h = h * 1"),
    _line(_IDLE, "clamp-far-below", "h = h.clamp(min=-1e30)"),
    _line(_IDLE, "padded-by-nothing", "h = nn.functional.pad(h, (0, 0))"),
    _line(_IDLE, "rolled-all-round", "h = h.roll(h.shape[1], 1)"),
    _line(_IDLE, "joined-with-nothing", "h = torch.cat([h], dim=1)"),
    _line(_IDLE, "first-power", "h = h.pow(1)"),
    _line(_IDLE, "either-way-the-same", "h = torch.where(h > 0, h, h)"),
    _line(_IDLE, "times-the-identity", "h = h @ torch.eye(h.shape[1], device=h.device)"),
    _line(_IDLE, "windows-of-one", "h = nn.functional.avg_pool1d(h, 1)"),
    _line(_IDLE, "magnitude-of-a-power", "h = h.exp().abs()"),
    _line(_IDLE, "flipped-twice", "h = h.flip(1).flip(1)"),
    _line(_IDLE, "log-of-exp", "h = h.exp().log()"),
    _line(_IDLE, "mean-of-copies", "h = torch.stack([h, h]).mean(0)"),
    _line(_ABSORBED, "scale-before-normalize", "h = nn.functional.normalize(h * 3.0, dim=1)"),
    _variant(
        _ABSORBED,
        "scalar-parameter-before-softmax",
        ATTENTION,
        (
            "super().__init__()",
            "super().__init__()\n        self.level = nn.Parameter(torch.randn(1))",
        ),
        ("* self.factor", "* self.factor + self.level"),
    ),
    _variant(
        (4, "live"),
        "result-deleted",
        TWO_BRANCHES,
        ("        return", "        spare = torch.exp(value)\n        del spare\n        return"),
    ),
)
