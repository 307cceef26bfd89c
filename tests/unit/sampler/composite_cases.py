"""Composites on tiny sizes, with parameters away from their defaults, ready to be compared."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from opsgen.errors import SampleError
from opsgen.records import Graph
from opsgen.render import render_source
from opsgen.sampler import COMPOSITES
from opsgen.sampler.resolution import Resolver
from opsgen.sampler.sizing import twin_sizes
from opsgen.verify import seeded


@dataclass
class Case:
    """A composite's own model with its inputs by name, and the graph it came from."""

    name: str
    graph: Graph
    m: Any
    inputs: dict[str, torch.Tensor]

    def __getitem__(self, name: str) -> torch.Tensor:
        return self.inputs[name]

    def attr(self, op: str, key: str) -> Any:
        """An attribute of the first node of an op."""
        return next(node.attrs[key] for node in self.graph.nodes if node.op == op)

    @property
    def state(self) -> dict[str, torch.Tensor]:
        found: dict[str, torch.Tensor] = self.m.state_dict()
        return found

    def output(self) -> torch.Tensor:
        with torch.no_grad():
            out: torch.Tensor = self.m(*self.inputs.values())
        return out


def grown(name: str, seed: int, dtype: str = "float32") -> tuple[Graph, dict[str, int]]:
    """The graph of the first of a seed's tries that does not end early, and its twin's sizes."""
    rng = random.Random(seed)
    for _ in range(8):
        try:
            graph, sizes = COMPOSITES[name].grow(dtype, rng)
            return graph, twin_sizes(Resolver(graph), sizes)
        except SampleError:
            continue
    raise AssertionError(f"{name} did not grow from seed {seed}")


def case_of(name: str, seed: int) -> Case:
    graph, sizes = grown(name, seed)
    space: dict[str, Any] = {}
    exec(compile(render_source(graph, sizes), name, "exec"), space)
    with seeded(seed):
        model: nn.Module = space["Model"](*space["get_init_inputs"]()).eval()
        for parameter in model.parameters():
            nn.init.uniform_(parameter, -0.5, 0.5)
        tensors = space["get_inputs"]()
    names = [known.name for known in graph.inputs]
    return Case(name, graph, model, dict(zip(names, tensors, strict=True)))
