"""Small legal applications of catalogue ops, and how to run them in torch."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from opsgen.ops import CATALOGUE, Attrs, Dim, Interval, Op, Operand, Shape, Shapes, Spelling
from opsgen.render.expansion import Expansion
from opsgen.sampler.choices import RandomDraw
from opsgen.sampler.resolution import ResolvedNode

_NAMESPACE = {"torch": torch, "nn": nn, "F": F}


@dataclass(frozen=True)
class Spec:
    """What determines a case: an op, and the seed of everything drawn."""

    name: str
    seed: int


class SmallDraw(RandomDraw):
    """Any multiple is a legal size, so new ones are drawn tiny and odd."""

    def size(self, name: str, choices: Sequence[int], multiple_of: int = 1) -> Attrs | None:
        return {name: self.name_size(name, int(multiple_of) * self.rng.choice((1, 2, 3, 5)))}


@dataclass(frozen=True)
class Case:
    """One legal application, with sizes that know their names."""

    op: Op
    attrs: Attrs
    ins: Shapes
    operands: tuple[Operand, ...]
    sizes: dict[str, int]

    @property
    def out(self) -> Shape:
        return self.op.out(self.ins, self.attrs)

    def plain(self) -> tuple[Shapes, Attrs]:
        """Shapes and attributes with ints in place of `Dim`s."""
        ins = tuple(tuple(int(size) for size in shape) for shape in self.ins)
        attrs = {k: int(v) if isinstance(v, Dim) else v for k, v in self.attrs.items()}
        return ins, attrs

    def ranges(self, bound: float = 8.0) -> tuple[Interval, ...]:
        """What the inputs hold when drawn by `inputs`."""
        return tuple(clipped(domain, bound) for domain in self.domains())

    def domains(self) -> tuple[Interval, ...]:
        return (self.op.domain, *[operand.domain for operand in self.operands])


def make_case(spec: Spec, dims: Sequence[int] = (2, 3, 4, 5, 6, 7, 8, 9, 12, 16)) -> Case | None:
    """Apply an op to a random small shape; None where it has no attributes for it."""
    rng = random.Random(spec.seed)
    op = CATALOGUE[spec.name]
    draw = SmallDraw(rng)
    shape = tuple(
        draw.name_size(f"d{index}", rng.choice((2, 3) if index == 0 else dims))
        for index in range(rng.choice(op.ranks))
    )
    attrs = op.attrs(draw, (shape,))
    operands = None if attrs is None else op.operands(draw, (shape,), attrs)
    if attrs is None or operands is None:
        return None
    ins = (shape, *[operand.shape for operand in operands])
    return Case(op, attrs, ins, operands, dict(draw.sizes))


def clipped(domain: Interval, bound: float) -> Interval:
    """The part of a domain that inputs are drawn from, open ends left out."""
    low, high = max(domain.low, -bound), min(domain.high, bound)
    margin = 1e-3 * (high - low)
    return Interval(low + margin * domain.open_low, high - margin * domain.open_high)


def inputs(case: Case, generator: torch.Generator, bound: float = 8.0) -> list[torch.Tensor]:
    """Draw every input inside its domain."""
    op, (ins, attrs) = case.op, case.plain()
    first = None if op.high is None else op.high(ins, attrs)
    kinds = [(op.in_dtype, first, None)]
    kinds += [(operand.dtype, operand.high, operand.draw) for operand in case.operands]
    tensors = []
    for shape, domain, (dtype, high, draw) in zip(ins, case.domains(), kinds, strict=True):
        if dtype == "int64":
            tensors.append(torch.randint(0, int(high), shape, generator=generator))
        elif dtype == "bool":
            tensors.append(torch.rand(shape, generator=generator) > 0.5)
        elif draw == "ascending":
            tensors.append(torch.randn(shape, generator=generator).sort()[0])
        elif draw == "sign":
            tensors.append(torch.randint(0, 2, shape, generator=generator) * 2.0 - 1.0)
        else:
            part = clipped(domain, bound)
            unit = torch.rand(shape, generator=generator)
            tensors.append(unit * (part.high - part.low) + part.low)
    return tensors


class Runner:
    """One spelling of a case as a callable."""

    def __init__(self, case: Case, spelling: Spelling, device: str = "cpu") -> None:
        ins, attrs = case.plain()
        node = ResolvedNode(case.op, attrs, tuple(range(len(ins))), ins, case.op.out(ins, attrs))
        expansion = Expansion(node, lambda name, size: str(int(size)))
        self.module: nn.Module | None = None
        self.init = ""
        if spelling.init is not None:
            self.init = expansion.expand(spelling.init, (), "", "")
            with torch.device(device):
                self.module = eval(self.init, dict(_NAMESPACE)).eval()
        names = ("x", "y", "z", "w")[: len(ins)]
        self.source = expansion.expand(spelling.call, names, "module", "")
        self._code = compile(self.source, "<spelling>", "eval")
        self._names = names

    def __call__(self, *tensors: torch.Tensor) -> torch.Tensor:
        values = dict(zip(self._names, tensors, strict=True))
        return eval(self._code, {**_NAMESPACE, "module": self.module, **values})


def is_within(values: torch.Tensor, interval: Interval) -> bool:
    """Tell whether finite values lie in an interval, up to float32 rounding of its bounds."""
    if not values.numel():
        return True
    low, high = values.min().item(), values.max().item()
    bounds = [abs(bound) for bound in (interval.low, interval.high) if math.isfinite(bound)]
    slack = 1e-5 * max(1.0, *bounds, 1.0)
    return interval.low - slack <= low and high <= interval.high + slack
