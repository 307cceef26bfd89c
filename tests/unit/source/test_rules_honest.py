"""Idioms of honest code that stand near a breach: none is one, and each runs and repeats."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from opsgen.source import check_source

HEAD = """\
import math
from dataclasses import dataclass
import torch
import torch.nn as nn
import torch.nn.functional as F
"""
TAIL = """
def get_inputs():
    return [torch.randn(4, 6, 16)]

def get_init_inputs():
    return []
"""
POSITIONS = """
class Positions(nn.Module):
    def __init__(self, width, length=32):
        super(Positions, self).__init__()
        table = torch.zeros(length, width)
        place = torch.arange(0, length, dtype=torch.float).unsqueeze(1)
        rate = torch.exp(torch.arange(0, width, 2).float() * (-math.log(10000.0) / width))
        table[:, 0::2] = torch.sin(place * rate)
        table[:, 1::2] = torch.cos(place * rate)
        self.register_buffer('table', table.unsqueeze(0))

    def forward(self, x):
        return x + self.table[:, : x.size(1)]

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.positions = Positions(16)

    def forward(self, x):
        return self.positions(x)
"""
DROP_PATH = """
def drop_path(x, share=0.0, training=False, scale=True):
    if share == 0.0 or not training:
        return x
    shape = (x.shape[0],) + (1,) * (x.ndim - 1)
    keep = x.new_empty(shape).bernoulli_(1 - share)
    return x * keep

class DropPath(nn.Module):
    def __init__(self, share):
        super().__init__()
        self.share = share

    def forward(self, values):
        return drop_path(values, self.share, self.training)

class Block(nn.Module):
    def __init__(self, width, share):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.path = DropPath(share) if share > 0 else nn.Identity()
        self.gain = nn.Parameter(1e-5 * torch.ones(width))

    def forward(self, x):
        return x + self.path(self.gain * self.norm(x))

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        shares = [rate.item() for rate in torch.linspace(0, 0.2, 3)]
        self.blocks = nn.ModuleList([Block(16, share) for share in shares])
        self.apply(self._init_weights)

    def _init_weights(self, module):
        if isinstance(module, nn.LayerNorm):
            nn.init.normal_(module.weight, std=0.02)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x
"""
RECURRENT = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(16, 16, 2, batch_first=True, dropout=0.1)

    def forward(self, x, state=None):
        if state is None:
            zeros = torch.zeros(2, x.size(0), 16, device=x.device, dtype=x.dtype)
            state = (zeros, zeros)
        out, (hidden, cell) = self.lstm(x, state)
        return out
"""
ATTENTION = """
@dataclass
class Config:
    width: int = 16
    num_heads: int = 4
    dropout: float = 0.1

class Model(nn.Module):
    def __init__(self, config=Config()):
        super().__init__()
        assert config.width % config.num_heads == 0
        self.num_heads = config.num_heads
        self.dropout = config.dropout
        for name in ('query', 'key', 'value'):
            setattr(self, f'{name}_proj', nn.Linear(config.width, config.width))

    def split(self, x):
        batch, length, width = x.shape
        return x.view(batch, length, self.num_heads, -1).transpose(1, 2)

    def forward(self, x):
        q, k, v = (self.split(getattr(self, f'{n}_proj')(x)) for n in ('query', 'key', 'value'))
        length = x.size(1)
        mask = torch.triu(torch.ones(length, length, device=x.device, dtype=torch.bool), 1)
        scores = (q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))).masked_fill(mask, -torch.inf)
        weights = F.dropout(scores.softmax(-1), self.dropout, self.training)
        return (weights @ v).transpose(1, 2).flatten(2)
"""
GROWTH = """
class Layer(nn.Sequential):
    def __init__(self, width, growth):
        super().__init__()
        self.add_module('norm', nn.LayerNorm(width))
        self.add_module('act', nn.ReLU(inplace=True))
        self.add_module('linear', nn.Linear(width, growth))

    def forward(self, x):
        return torch.cat([x, super().forward(x)], dim=-1)

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        layers, width = [], 16
        for _ in range(3):
            layers.append(Layer(width, 4))
            width += 4
        self.body = nn.Sequential(*layers)
        self.head = self._head(width)

    @staticmethod
    def _head(width):
        return nn.Sequential(nn.Linear(width, 8), nn.Dropout(0.5), nn.GELU())

    def forward(self, x):
        features = []
        for layer in self.body:
            x = layer(x)
            features.append(x.mean(-1))
        return self.head(x), torch.stack(features)
"""
FUNCTION = """
class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 2 * x * grad

class Model(nn.Module):
    momentum = 0.1

    def __init__(self):
        super().__init__()
        self.act = lambda x: Square.apply(x) * self.momentum
        self.register_buffer('seen', torch.zeros(()))

    def extra_repr(self):
        return f'{self.__class__.__name__}, momentum={self.momentum}'

    def forward(self, x):
        if self.training:
            self.seen += 1
            x = x + torch.randn_like(x) * 0.01
        residual = x
        x = self.act(x)
        x += residual
        with torch.no_grad():
            scale = x.detach().abs().amax()
        return x / (scale + 1e-6)
"""
EXPERTS = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(16, 4)
        self.experts = nn.ModuleDict({str(i): nn.Linear(16, 16) for i in range(4)})
        self.order = [2, 0, 1, 3]
        self.cache = {}

    def forward(self, x):
        weights, places = torch.topk(self.gate(x).softmax(-1), k=2, dim=-1)
        out = torch.zeros_like(x)
        for i in self.order:
            chosen = (places == i).to(x.dtype) * weights
            y = self.experts[str(i)](x)
            out = out + y * chosen.sum(-1, keepdim=True)
        if self.training:
            self.cache['last'] = out
        return out
"""
TASKS = {
    "positions": POSITIONS,
    "drop path": DROP_PATH,
    "recurrent": RECURRENT,
    "attention": ATTENTION,
    "growth": GROWTH,
    "function": FUNCTION,
    "experts": EXPERTS,
}


@pytest.mark.parametrize("name", TASKS)
def test_no_rule_speaks(name):
    assert check_source(HEAD + TASKS[name] + TAIL) == ()


@pytest.mark.parametrize("name", TASKS)
def test_the_code_is_what_it_is_taken_for(name):
    space = {"__name__": "task"}
    exec(compile(HEAD + TASKS[name] + TAIL, name, "exec", dont_inherit=True), space)
    model = space["Model"](*space["get_init_inputs"]()).eval()
    inputs = space["get_inputs"]()
    with torch.no_grad():
        first, second = (model(*inputs) for _ in range(2))
    torch.testing.assert_close(first, second, rtol=0, atol=0)


# Put at the head of each forward(self, x); that of an optional part has another argument.
SURGERIES = {
    "random_forward": "x = x + torch.rand_like(x)",
    "dead_values": "spare = torch.relu(x)",
    "functional_dropout": "x = F.dropout(x, 0.5)",
    "waits": "x = x * x.sum().item()",
    "prints": "print('here')",
}


@pytest.mark.parametrize("rule", SURGERIES)
@pytest.mark.parametrize("name", TASKS)
def test_a_line_at_the_head_of_a_forward_that_surely_runs_is_seen(name, rule):
    code = HEAD + TASKS[name] + TAIL
    places = [place for place, line in enumerate(code.split("\n")) if "def forward(self, x" in line]
    for place in places:
        lines = code.split("\n")
        lines.insert(place + 1, f"        {SURGERIES[rule]}")
        assert [fault.line for fault in check_source("\n".join(lines)) if fault.rule == rule] == [
            place + 2
        ], "\n".join(lines)


@given(
    name=st.sampled_from(sorted(TASKS)),
    moves=st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99), st.booleans()), max_size=6),
)
def test_any_text_gets_an_answer(name, moves):
    lines = (HEAD + TASKS[name] + TAIL).split("\n")
    for source, target, is_copy in moves:
        line = lines[source % len(lines)] if is_copy else lines.pop(source % len(lines))
        lines.insert(target % (len(lines) + 1), line)
    for fault in check_source("\n".join(lines)):
        assert 1 <= fault.line <= len(lines)
        assert fault.witness
