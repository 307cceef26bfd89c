"""The hand lists of differentiable and linear ops agree with torch's own derivatives."""

from __future__ import annotations

import random

import pytest
import torch

from opsgen.errors import SampleError
from opsgen.ops import BLOCK_OPS, CATALOGUE
from opsgen.ops.gradients import LINEAR, NOT_DIFFERENTIABLE, has_gradient, is_curved
from opsgen.render import render_source
from opsgen.sampler import grow, size_names
from opsgen.sampler.draft import Style
from opsgen.sampler.resolution import Resolver
from opsgen.sampler.sizing import twin_sizes

SINGLE = sorted(
    name
    for name, op in CATALOGUE.items()
    if not op.has_operands and op.in_dtype == op.out_dtype == "float" and name not in BLOCK_OPS
)
NUM_SEEDS = 6
USUAL = Style(topology="chain", values=0.0)  # draws as in gradient tasks


def gradients(name: str, seed: int) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Pull one gradient back through an op at two inputs; None where no graph is found."""
    try:
        graph, first = grow((name,), "float32", random.Random(seed), USUAL)
        sizes = twin_sizes(Resolver(graph), first)
    except SampleError:
        return None
    namespace: dict[str, object] = {}
    exec(render_source(graph, {each: sizes[each] for each in size_names(graph)}), namespace)
    model = namespace["Model"](*namespace["get_init_inputs"]()).eval()  # type: ignore[operator]
    pulled, found = None, []
    for _ in range(2):
        x = namespace["get_inputs"]()[0].requires_grad_()  # type: ignore[operator]
        output = model(x)
        pulled = torch.randn_like(output) if pulled is None else pulled
        found += torch.autograd.grad(output, (x,), pulled)
    return found[0], found[1]


@pytest.mark.parametrize("name", SINGLE)
def test_derivatives_are_what_the_lists_say(name: str) -> None:
    op = CATALOGUE[name]
    if name in NOT_DIFFERENTIABLE:
        assert not has_gradient(op)
        with pytest.raises(RuntimeError, match="does not require grad"):
            [gradients(name, seed) for seed in range(8 * NUM_SEEDS)]  # some spelling has none
        return
    if not has_gradient(op):
        return
    tries = [gradients(name, seed) for seed in range(NUM_SEEDS)]
    pairs = [pair for pair in tries if pair is not None]
    assert pairs
    for one, other in pairs:
        assert one.isfinite().all()
        change = (one - other).abs().max() / one.abs().max()
        assert change > 1e-5 if is_curved(op) else name not in LINEAR or change <= 1e-5


def test_the_lists_name_entries() -> None:
    assert set(SINGLE) >= NOT_DIFFERENTIABLE
    assert set(SINGLE) >= LINEAR
    assert sum(has_gradient(CATALOGUE[name]) for name in SINGLE) >= 120
