"""Tolerances against the formula, written out."""

import math

import numpy as np
import pytest
import torch

from opsgen.verify import run_trials, tolerance_of

EPS = {
    torch.float64: 2.0**-52,
    torch.float32: 2.0**-23,
    torch.float16: 2.0**-10,
    torch.bfloat16: 2.0**-7,
}


def test_tolerance_is_eight_times_the_quantile_over_all_draws_and_seeds(build):
    reference = build(
        "return torch.tanh(self.linear(x)).cumsum(1)",
        "torch.randn(64, 40)",
        init="self.linear = nn.Linear(40, 48)",
    )
    trials = run_trials(reference, [1, 2], [3, 4, 5], num_terms=1)
    errors = []
    for weights in (1, 2):
        reference.state.redraw(weights)
        w = reference.model.linear.weight.detach().double().numpy()
        b = reference.model.linear.bias.detach().double().numpy()
        for draw in (3, 4, 5):
            (x,) = reference.draw(draw)
            exact = np.cumsum(np.tanh(x.double().numpy() @ w.T + b), axis=1)
            actual = reference.run((x,))[0].double().numpy()
            rows = np.sqrt(np.mean(exact**2, axis=1, keepdims=True))
            scale = np.maximum(rows, 1e-3 * np.sqrt(np.mean(exact**2)))
            errors.append(np.abs(actual - exact) / scale)
    pooled = np.sort(np.concatenate([e.ravel() for e in errors]))
    quantile = pooled[math.ceil(0.9999 * len(pooled)) - 1]
    (tolerance,) = trials.tolerances
    assert (trials.num_draws, trials.num_nonfinite) == (6, 0)
    assert tolerance.error == pytest.approx(quantile, rel=1e-4)
    assert tolerance.value == pytest.approx(max(8 * quantile, 4 * EPS[torch.float32]), rel=1e-4)


@pytest.mark.parametrize("num_terms", [1, 15, 17, 10**6])
@pytest.mark.parametrize("dtype", EPS)
@pytest.mark.parametrize("error", [0.0, 1e-9, 1e-2])
def test_floors(num_terms, dtype, error):
    leaf = torch.zeros(3, dtype=dtype)
    got = tolerance_of(leaf, torch.full((5,), error), EPS[dtype], num_terms)
    kept = EPS[torch.float64 if dtype == torch.float64 else torch.float32]
    expected = max(8 * error, 4 * EPS[dtype], kept * math.sqrt(num_terms))
    assert got.value == pytest.approx(expected, rel=1e-6)


def test_a_leaf_of_a_wider_type_is_judged_in_the_working_one():
    got = tolerance_of(torch.zeros(3), torch.zeros(3), EPS[torch.bfloat16], 1)
    assert got.value == 4 * 2.0**-7


def test_exact_leaves_and_assumed_ones(build):
    reference = build(
        "h = x.to(torch.bfloat16)\nreturn F.linear(h, self.w), h.argmax(1)",
        "torch.randn(8, 16)",
        init="self.w = nn.Parameter(torch.randn(4, 16, dtype=torch.bfloat16))",
    )
    leaf, index = run_trials(reference, [0], [1], num_terms=1).tolerances
    assert leaf.is_assumed
    assert leaf.error is None
    assert leaf.value >= 4 * 2.0**-7
    assert (index.value, index.is_assumed) == (0.0, False)


def test_numbers_that_are_not_finite_are_counted(build):
    reference = build("return torch.log(x)", "torch.linspace(-1, 1, 11)")
    trials = run_trials(reference, [0, 1], [0, 1], num_terms=1)
    assert trials.num_nonfinite == 4 * 6
