"""Global seeding that leaves no trace, and state as a function of seeds."""

import math

import pytest
import torch
from torch import nn

from opsgen.verify import State, derive_seed, equal_bits, redraw, seeded


def test_seeded_gives_the_same_draws_and_restores_the_generator():
    torch.rand(3)
    before = torch.random.get_rng_state()
    with seeded(7):
        first = torch.randn(5)
    assert torch.equal(torch.random.get_rng_state(), before)
    with seeded(7):
        assert torch.equal(torch.randn(5), first)
    with seeded(8):
        assert not torch.equal(torch.randn(5), first)
    with pytest.raises(KeyError), seeded(9):
        raise KeyError
    assert torch.equal(torch.random.get_rng_state(), before)


def test_seeds_depend_on_every_part():
    seeds = {derive_seed(a, b, c) for a in (0, 1) for b in ("x", "y") for c in (0, 1, 2)}
    assert len(seeds) == 12
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert derive_seed(1, "x") == derive_seed(1, "x")


def test_batch_norm_in_eval_mode_stops_being_the_identity():
    norm = nn.BatchNorm2d(8).eval()
    x = torch.randn(4, 8, 5, 5)
    assert torch.allclose(norm(x), x, atol=1e-3)
    redraw(norm, 3)
    assert not torch.allclose(norm(x), x, atol=0.1)
    assert (norm.running_var > 0).all()
    assert (norm.weight > 0).all()
    assert norm.num_batches_tracked == 0


@pytest.mark.parametrize(
    "module",
    [
        nn.Linear(300, 200),
        nn.Conv2d(8, 16, 3),
        nn.LayerNorm(64),
        nn.PReLU(),
        nn.Embedding(50, 20),
        nn.MultiheadAttention(16, 2),
        nn.LSTM(8, 8),
        nn.Linear(200, 1),
        nn.Linear(64, 64, dtype=torch.bfloat16),
    ],
)
def test_redrawing_changes_every_parameter_and_keeps_its_spread(module):
    before = {name: p.detach().clone() for name, p in module.named_parameters()}
    state = redraw(module, 5)
    assert set(state.names) == set(before)
    for name, parameter in module.named_parameters():
        now, then = parameter.detach().float(), before[name].float()
        assert now.isfinite().all()
        assert not torch.equal(now, then)
        if parameter.ndim > 1 and then.std() > 0:
            assert now.std() == pytest.approx(float(then.std()), rel=0.25)
        if name.endswith("bias") and parameter.numel() > 32:
            assert now.std() > 0.15


def test_same_seed_same_state_and_one_name_alone():
    first, second = nn.Linear(4, 4), nn.Linear(4, 4)
    second.load_state_dict(first.state_dict())
    one, two = redraw(first, 1), redraw(second, 1)
    assert equal_bits(one.tensors, two.tensors)
    two.redraw(2, only="bias")
    assert equal_bits((first.weight.detach(),), (second.weight.detach(),))
    assert not torch.equal(first.bias, second.bias)
    two.redraw(1, only="bias")
    assert equal_bits(one.tensors, two.tensors)


class _Masked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(2.0))
        self.register_buffer("mask", torch.tril(torch.ones(4, 4)))
        self.register_buffer("table", torch.arange(4))
        self.inner = nn.BatchNorm1d(3)


def test_freed_state_holds_no_memory_and_comes_back_from_its_seed():
    model = _Masked().eval()
    state = State(model)
    state.redraw(11)
    before = tuple(tensor.detach().clone() for tensor in state.tensors)
    state.free()
    assert all(tensor.untyped_storage().nbytes() == 0 for tensor in state.tensors)
    assert model.mask.shape == (4, 4)
    state.refill(11)
    assert equal_bits(state.tensors, before)
    assert torch.equal(model.mask, torch.tril(torch.ones(4, 4)))
    assert 1.0 <= model.scale.item() <= 3.0
    assert not math.isclose(model.scale.item(), 2.0)


def test_fingerprints_see_writes_that_store_equal_values():
    state = State(nn.Linear(3, 3))
    before = state.fingerprint()
    assert state.fingerprint() == before
    with torch.no_grad():
        state.tensors[0].mul_(1)
    assert state.fingerprint() != before
