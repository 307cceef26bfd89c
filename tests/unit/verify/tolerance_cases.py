"""Tasks with honest ways of computing them otherwise, and with cheats.

An honest way sums in another order, fuses, splits or rounds less; a cheat
leaves something out or drops digits. Each case is judged at the tolerance that
the task itself gets, as foreign code would.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from opsgen.records import Tolerance
from opsgen.verify import (
    Reference,
    comparison_margin,
    count_terms,
    element_scale,
    run_trials,
    task_module,
)

Way = Callable[[Tensor, torch.nn.Module], Tensor]
BEYOND = 20.5
"""Multiples of the tolerance that no single element may be off by."""
_SOURCE = """
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, x):
        return {forward}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""


@dataclass(frozen=True, slots=True)
class Case:
    """A task and other answers to it.

    Attributes:
        name: What it computes, on what.
        forward: The expression that forward returns.
        inputs: The expression that draws `x`.
        honest: Answers that have to pass, from the input and the model.
        cheats: Answers that have to fail, beside those of every task.
        edges: Answers that the rule does not cover: wrong ones that differ by less than rounding
            may and pass, right ones that round more than anyone needs and fail. Shown, not judged.
        init: A statement of the constructor.
    """

    name: str
    forward: str
    inputs: str
    honest: dict[str, Way]
    cheats: dict[str, Way]
    edges: dict[str, Way] = field(default_factory=dict)
    init: str = "pass"

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Judged:
    """What comparing said of the answers to one case.

    Attributes:
        tolerance: The task's own.
        honest: Error of each honest way over what a comparison bears: at most 1 passes.
        cheats: The same of each cheat.
        edges: The same of the answers at the edge.
    """

    tolerance: Tolerance
    honest: dict[str, float]
    cheats: dict[str, float]
    edges: dict[str, float]


@contextlib.contextmanager
def _built(case: Case) -> Iterator[Reference]:
    code = _SOURCE.format(init=case.init, forward=case.forward, inputs=case.inputs)
    with task_module(code) as module:
        yield Reference.build(module, "cpu", 0)


def judge(case: Case) -> Judged:
    """Measure a case's tolerance and hold every answer against it on a draw of its own."""
    with _built(case) as reference, torch.no_grad():
        reference.state.redraw(1)
        num_terms = count_terms(reference, reference.draw(1))
        trials = run_trials(reference, [1, 2], [3, 4, 5], num_terms=num_terms)
        (tolerance,) = trials.tolerances
        inputs = reference.draw(9)
        (expected,) = reference.run(inputs)

        def margins(ways: dict[str, Way]) -> dict[str, float]:
            answers = {name: way(inputs[0], reference.model) for name, way in ways.items()}
            return {
                name: comparison_margin((answer.to(expected.dtype),), (expected,), (tolerance,))
                for name, answer in answers.items()
            }

        return Judged(
            tolerance=tolerance,
            honest=margins(case.honest | {"-0.0": lambda _x, _m: _signed(expected)}),
            cheats=margins(case.cheats | _everywhere(expected, tolerance)),
            edges=margins(case.edges),
        )


def _everywhere(expected: Tensor, tolerance: Tolerance) -> dict[str, Way]:
    """Return the cheats that any task can be answered with."""
    cheats: dict[str, Way] = {
        "zeros": lambda _x, _m: torch.zeros_like(expected),
        f"one element off by {BEYOND:g} x": lambda _x, _m: _nudged(expected, tolerance.value),
    }
    if expected.dtype == torch.float32:
        cheats["rounded to bfloat16"] = lambda _x, _m: expected.bfloat16()
    else:
        cheats["rounded to 4 bits"] = lambda _x, _m: expected.to(torch.float8_e4m3fn)
    return cheats


def _nudged(expected: Tensor, tolerance: float) -> Tensor:
    answer = expected.clone()
    scale = element_scale(expected).expand(expected.shape)
    index = tuple(size // 2 for size in expected.shape)
    value = expected[index].double() + BEYOND * tolerance * scale[index].double()
    answer[index] = value.to(expected.dtype)
    return answer


def _signed(expected: Tensor) -> Tensor:
    return torch.where(expected == 0, -0.0 * torch.ones_like(expected), expected)


def in_double(way: Way) -> Way:
    """Return a way that runs in float64 and rounds once, as fused multiply-adds at best do."""

    def run(x: Tensor, model: torch.nn.Module) -> Tensor:
        return way(x.double(), model).to(x.dtype)

    return run


def sequential(x: Tensor) -> Tensor:
    """Add up the last axis one after the other in float32."""
    return torch.from_numpy(np.cumsum(x.numpy(), axis=-1, dtype=np.float32)[..., -1].copy())


def pairwise(x: Tensor) -> Tensor:
    """Add up the last axis, whose length is a power of two, in a tree."""
    while x.shape[-1] > 1:
        x = x[..., ::2] + x[..., 1::2]
    return x[..., 0]


def in_chunks(x: Tensor, size: int) -> Tensor:
    """Add up parts of the last axis, each one after the other, then the parts."""
    return sequential(torch.stack([sequential(part) for part in x.split(size, -1)], -1))


def shuffled(x: Tensor) -> Tensor:
    """Add up the last axis one after the other in a random order, as atomics do."""
    order = torch.randperm(x.shape[-1], generator=torch.Generator().manual_seed(4))
    return sequential(x[..., order])


def split_k(x: Tensor, weight: Tensor, parts: int) -> Tensor:
    """Multiply `x` by the transpose of `weight` in parts of the reduced axis, in float32."""
    pairs = zip(x.float().chunk(parts, -1), weight.float().chunk(parts, -1), strict=True)
    return torch.stack([left @ right.T for left, right in pairs]).sum(0)


def tf32(x: Tensor) -> Tensor:
    """Round float32 to ten bits of mantissa."""
    return ((x.contiguous().view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


def welford(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and biased variance of the last axis, updated value by value."""
    mean, square = torch.zeros(x.shape[:-1]), torch.zeros(x.shape[:-1])
    for count in range(x.shape[-1]):
        delta = x[..., count] - mean
        mean = mean + delta / (count + 1)
        square = square + delta * (x[..., count] - mean)
    return mean, square / x.shape[-1]


def online_softmax(x: Tensor, size: int) -> Tensor:
    """Return the softmax of the last axis from one pass with a running maximum and sum."""
    largest = torch.full(x.shape[:-1], -math.inf)
    total = torch.zeros(x.shape[:-1])
    for part in x.split(size, -1):
        new = torch.maximum(largest, part.amax(-1))
        total = total * torch.exp(largest - new) + torch.exp(part - new[..., None]).sum(-1)
        largest = new
    return torch.exp(x - largest[..., None]) / total[..., None]


def normed(x: Tensor, mean: Tensor, variance: Tensor, model: torch.nn.Module) -> Tensor:
    """Apply a layer norm's last steps to given statistics."""
    scaled = (x - mean[..., None]) * torch.rsqrt(variance[..., None] + 1e-5)
    weight, bias = (each.to(x.dtype) for each in (model.norm.weight, model.norm.bias))
    return scaled * weight + bias


def summed(keeps_axis: bool = False) -> tuple[dict[str, Way], dict[str, Way]]:
    """Return honest ways of summing up squares over the last axis, and cheats."""

    def way(add: Callable[[Tensor], Tensor]) -> Way:
        return lambda x, _m: add(x * x)[..., None] if keeps_axis else add(x * x)

    honest = {
        "one after the other": way(sequential),
        "pairwise": way(pairwise),
        "chunks of 64": way(lambda x: in_chunks(x, 64)),
        "backwards": way(lambda x: sequential(x.flip(-1))),
        "random order": way(shuffled),
        "in 8 parts": way(lambda x: in_chunks(x, x.shape[-1] // 8)),
        "float64, rounded once": in_double(way(lambda x: x.sum(-1))),
    }
    cheats = {
        "last element dropped": way(lambda x: x[..., :-1].sum(-1)),
        "last block of 64 dropped": way(lambda x: x[..., :-64].sum(-1)),
        "first one added twice": way(lambda x: x.sum(-1) + x[..., 0]),
    }
    return honest, cheats


def projected() -> tuple[dict[str, Way], dict[str, Way]]:
    """Return honest ways of a linear layer without bias in float32, and cheats."""

    def way(change: Callable[[Tensor, Tensor], Tensor]) -> Way:
        return lambda x, model: change(x, model.linear.weight)

    honest = {
        "split in 2": way(lambda x, w: split_k(x, w, 2)),
        "split in 16": way(lambda x, w: split_k(x, w, 16)),
        "backwards": way(lambda x, w: x.flip(-1) @ w.flip(-1).T),
        "one term after the other": way(lambda x, w: sequential(x[:, None] * w)),
        "float64, rounded once": in_double(way(lambda x, w: x @ w.double().T)),
    }
    cheats = {
        "TF32 inputs": way(lambda x, w: tf32(x) @ tf32(w).T),
        "bfloat16 inputs": way(lambda x, w: (x.bfloat16() @ w.bfloat16().T).float()),
        "last term dropped": way(lambda x, w: x[:, :-1] @ w[:, :-1].T),
        "last block of 32 dropped": way(lambda x, w: x[:, :-32] @ w[:, :-32].T),
    }
    return honest, cheats


def relu_pool(x: Tensor, shift: int = 0, window: int = 3) -> Tensor:
    """Return the rectified largest of each window, windows starting at `shift`."""
    return functional.relu(x[..., shift:].unfold(-1, window, 3).amax(-1))
