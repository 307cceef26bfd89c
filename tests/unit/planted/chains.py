"""Random honest tasks as source, and operations that make them trivial.

A chain is a small frozen spec; its source is only written when a test runs it.
Stages are chosen so that none makes another one idle: what follows a stage is
never its inverse, its repetition, or a norm that would divide it out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from hypothesis import strategies as st

_SOURCE = """
import torch
import torch.nn as nn
import torch.nn.functional as F

batch_size = {batch}
channels = {channels}
length = {length}


class Model(nn.Module):
    def __init__(self, channels, length):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(channels, length))
{init}

    def forward(self, x):
        x = x * self.scale
{forward}
        return x


def get_inputs():
    return [torch.randn(batch_size, channels, length)]


def get_init_inputs():
    return [channels, length]
"""
# Name of a stage: what the constructor makes for it, and what forward does.
STEMS = {
    "linear": ("nn.Linear(length, length)", "x = self.linear(x)"),
    "conv": ("nn.Conv1d(channels, channels, 3, padding=1)", "x = self.conv(x)"),
    "depthwise": (
        "nn.Conv1d(channels, channels, 5, padding=2, groups=channels, bias=False)",
        "x = self.depthwise(x)",
    ),
    "roll": ("", "x = x + 0.5 * torch.roll(x, 1, dims=2)"),
    "scan": ("", "x = torch.cumsum(x, dim=2)"),
}
BENDS = {
    "gelu": ("", "x = F.gelu(x)"),
    "mish": ("", "x = F.mish(x)"),
    "tanh": ("", "x = torch.tanh(x)"),
    "softplus": ("", "x = F.softplus(x)"),
    "sine": ("", "x = torch.sin(x)"),
}
NORMS = {
    "layer_norm": ("nn.LayerNorm(length)", "x = self.layer_norm(x)"),
    "group_norm": ("nn.GroupNorm(1, channels)", "x = self.group_norm(x)"),
    "instance_norm": ("nn.InstanceNorm1d(channels)", "x = self.instance_norm(x)"),
}
TAILS = {
    "softmax": ("", "x = torch.softmax(x, dim=2)"),
    "log_softmax": ("", "x = F.log_softmax(x, dim=1)"),
    "max_pool": ("", "x = F.max_pool1d(x, 2)"),
    "pool": ("", "x = F.adaptive_avg_pool1d(x * x, 1)"),
    "distance": ("", "x = torch.linalg.vector_norm(x, dim=1)"),
    "none": ("", ""),
}
_STAGES = STEMS | BENDS | NORMS | TAILS


@dataclass(frozen=True, slots=True)
class Chain:
    """An honest task: stages by name in order, its sizes, and what was done to it."""

    stages: tuple[str, ...]
    batch: int
    channels: int
    length: int
    extra: tuple[tuple[int, str], ...] = ()
    extra_init: str = ""

    def source(self) -> str:
        """Write the task down; what was put in stands before the stage of its number."""
        lines, made = [], []
        for place, name in enumerate((*self.stages, "none")):
            lines += [line for at, line in self.extra if at == place]
            maker, line = _STAGES[name]
            lines.append(line)
            made += [f"self.{name} = {maker}"] if maker else []
        return _SOURCE.format(
            batch=self.batch,
            channels=self.channels,
            length=self.length,
            init=_block([*made, self.extra_init]),
            forward=_block(lines),
        )

    def with_line(self, place: int, line: str) -> Chain:
        """Put a line before the stage at `place`; after all of them where there are no more."""
        return replace(self, extra=(*self.extra, (place, line)))

    def ending_in(self, *stages: str) -> Chain:
        """Put other stages in place of the last one."""
        return replace(self, stages=(*self.stages[:-1], *stages))


def _block(lines: list[str]) -> str:
    return "\n".join(f"        {line}" for line in lines if line)


@st.composite
def chains(draw: st.DrawFn) -> Chain:
    """Stem, bend, perhaps a norm, another bend, tail.

    A bend stands on both sides of a norm: what is added per channel or position is divided out
    or subtracted by some norms and some softmaxes right behind it.
    """
    first, second = draw(st.permutations(sorted(BENDS)))[:2]
    norm = draw(st.sampled_from([(), *((name,) for name in sorted(NORMS))]))
    stem, tail = draw(st.sampled_from(sorted(STEMS))), draw(st.sampled_from(sorted(TAILS)))
    return Chain(
        stages=(stem, first, *norm, second, tail),
        batch=draw(st.integers(2, 12)),
        channels=draw(st.integers(4, 24)),
        length=draw(st.integers(16, 96)),
    )


def _anywhere(line: str) -> Operation:
    return lambda chain, place: (chain, chain.with_line(place % (len(chain.stages) + 1), line))


def _before_norm(line: str) -> Operation:
    def operate(chain: Chain, place: int) -> tuple[Chain, Chain]:
        names = ("instance_norm", "layer_norm")
        honest = replace(chain, stages=(*chain.stages[:2], names[place % 2], *chain.stages[-2:]))
        return honest, honest.with_line(2, line)

    return operate


def _at_the_end(*stages: str, honest: str, bad: str) -> Operation:
    """Return an operation on the place before the last of `stages`, or behind all of them."""

    def operate(chain: Chain, _place: int) -> tuple[Chain, Chain]:
        ended = chain.ending_in(*stages)
        place = len(ended.stages) - (stages[-1] in ("softmax", "log_softmax"))
        good = ended.with_line(place, honest) if honest else ended
        return good, ended.with_line(place, bad)

    return operate


def _in_the_constructor(line: str) -> Operation:
    return lambda chain, _place: (chain, replace(chain, extra_init=line))


# Each takes an honest chain and a number that picks a place, and returns a chain that is still
# honest, and one that is not and as like it as can be.
Operation = Callable[[Chain, int], tuple[Chain, Chain]]
OPERATIONS: dict[str, Operation] = {
    "times zero": _anywhere("x = x * 0.0"),
    "saturating clamp": _anywhere("x = torch.clamp(x, 1e4, 2e4)"),
    "mean over a normalised axis": _at_the_end(
        "instance_norm", honest="x = x.mean(dim=1)", bad="x = x.mean(dim=2)"
    ),
    "shift before softmax": _at_the_end("softmax", honest="", bad="x = x + 0.7"),
    "shift before log_softmax": _at_the_end("log_softmax", honest="", bad="x = x - 1.25"),
    "second pool": _at_the_end("pool", honest="", bad="x = F.adaptive_avg_pool1d(x, 1)"),
    "maximum of one": _at_the_end("pool", honest="", bad="x = x.amax(dim=2, keepdim=True)"),
    "unused branch": _anywhere("spare = torch.exp(x).sum()"),
    "dead parameter": _in_the_constructor("self.spare = nn.Parameter(torch.randn(5))"),
    "dead module": _in_the_constructor("self.spare = nn.Linear(length, channels)"),
    "scale before a norm": _before_norm("x = x * 2.5"),
    "shift before a norm": _before_norm("x = x + 0.3"),
}
