"""Scaled errors, quantiles and margins against literal formulas in numpy."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from opsgen.records import Tolerance
from opsgen.verify import comparison as comparison_module
from opsgen.verify import (
    comparison_margin,
    element_scale,
    equal_bits,
    fingerprint,
    kth_largest,
    outlier_quantile,
    scaled_error,
)

SHAPES = st.lists(st.integers(1, 50), min_size=0, max_size=3).map(tuple)


def literal_scale(values: np.ndarray) -> np.ndarray:
    rms = np.sqrt(np.mean(values**2))
    if values.ndim == 0 or values.shape[-1] < 32:
        return np.full(values.shape, rms)
    rows = np.sqrt(np.mean(values**2, axis=-1, keepdims=True))
    return np.broadcast_to(np.maximum(rows, 1e-3 * rms), values.shape)


def tolerances(*values: float) -> tuple[Tolerance, ...]:
    return tuple(Tolerance(value=v, error=None, num_terms=1, is_assumed=True) for v in values)


@given(SHAPES, st.integers(0, 2**31), st.sampled_from([1e-20, 1e-3, 1.0, 1e20]))
def test_scale_and_error_are_the_literal_formula(shape, seed, size):
    rng = np.random.default_rng(seed)
    reference = rng.standard_normal(shape) * np.exp(3 * rng.standard_normal(shape)) * size
    actual = reference * (1 + 1e-4 * rng.standard_normal(shape))
    expected = np.abs(actual - reference) / literal_scale(reference)
    got = scaled_error(torch.tensor(actual), torch.tensor(reference))
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-9)
    scale = element_scale(torch.tensor(reference, dtype=torch.float32)).expand(shape)
    np.testing.assert_allclose(scale.double().numpy(), literal_scale(reference), rtol=1e-5)


def test_values_that_are_not_finite():
    reference = torch.tensor([1.0, math.nan, math.inf, -math.inf, 2.0, math.nan])
    actual = torch.tensor([1.0, math.nan, math.inf, math.inf, math.nan, 3.0])
    errors = scaled_error(actual, reference)
    assert errors[:3].tolist() == [0.0, 0.0, 0.0]
    assert errors[3:].isinf().all()


def test_an_output_of_zeros_bears_no_error():
    zeros = torch.zeros(4, 64)
    assert comparison_margin((zeros,), (zeros,), tolerances(1e-3)) == 0
    assert comparison_margin((zeros + 1e-9,), (zeros,), tolerances(1e-3)) == math.inf


@given(st.integers(1, 400), st.data())
def test_kth_largest_is_that_of_a_sort_in_one_piece_or_many(count, data):
    k = data.draw(st.integers(1, count))
    values = torch.randn(count, generator=torch.Generator().manual_seed(count))
    expected = float(np.sort(values.numpy())[::-1][k - 1])
    for sample in (8, 1 << 16):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(comparison_module, "_CHUNK", 16)
            patch.setattr(comparison_module, "_SAMPLE", sample)
            assert kth_largest(values, k) == expected
    assert kth_largest(values, k) == expected


@pytest.mark.parametrize("shape", ["spread", "equal", "few", "sorted"])
def test_the_kth_largest_of_many_is_exact_whatever_a_sample_says(shape):
    count = (1 << 22) + 12_345
    values = {
        "spread": torch.randn(count, generator=torch.Generator().manual_seed(1)).square(),
        "equal": torch.zeros(count),
        "few": torch.cat([torch.zeros(count - 3), torch.full((3,), math.inf)]),
        "sorted": torch.arange(count, dtype=torch.float32),
    }[shape]
    k = count // 10_000 + 1
    assert kth_largest(values, k) == float(np.sort(values.numpy())[::-1][k - 1])


@pytest.mark.parametrize("count", [1, 9_999, 10_000, 10_001, 123_457])
def test_outlier_quantile_leaves_one_in_ten_thousand_above(count):
    values = torch.randperm(count).float()
    quantile = outlier_quantile(values)
    assert int((values > quantile).sum()) == math.floor(count / 10_000)


@pytest.mark.parametrize("count", [100, 9_999, 10_000, 100_000])
@pytest.mark.parametrize("size", [1.5, 19.0, 21.0])
@pytest.mark.parametrize("share", [0.5, 0.99, 1.01, 3.0])
def test_a_margin_is_at_most_one_exactly_when_the_rule_passes(count, size, share):
    """The rule: 99.99 % within, none beyond 20 times; all within below 10,000 elements."""
    tolerance = 1e-3
    reference = torch.ones(count, 1)
    errors = torch.zeros(count, dtype=torch.float64)
    errors[: max(1, math.floor(share * 1e-4 * count))] = size * tolerance
    actual = (reference[:, 0] + errors).float()[:, None]
    passes = bool(
        (errors <= 20 * tolerance).all() and (errors > tolerance).double().mean() <= 1e-4
        if count >= 10_000
        else (errors <= tolerance).all()
    )
    margin = comparison_margin((actual,), (reference,), tolerances(tolerance))
    assert (margin <= 1) == passes


def test_margin_of_structure_types_and_exact_leaves():
    ones, flags = torch.ones(3), torch.tensor([True, False])
    accepted = tolerances(1e-3, 0.0)
    assert comparison_margin((ones, flags), (ones, flags), accepted) == 0
    assert comparison_margin((ones, ~flags), (ones, flags), accepted) == math.inf
    assert comparison_margin((ones,), (ones, flags), accepted) == math.inf
    assert comparison_margin((ones.double(), flags), (ones, flags), accepted) == math.inf
    assert comparison_margin((ones[:2], flags), (ones, flags), accepted) == math.inf
    half = comparison_margin((ones * 1.0005, flags), (ones, flags), accepted)
    assert half == pytest.approx(0.5, rel=1e-3)


def test_complex_leaves_are_compared_by_their_parts():
    reference = torch.ones(4, 8, dtype=torch.complex64)
    changed = reference.clone()
    changed[0, 0] += 1e-2j
    rms = math.sqrt(0.5)
    margin = comparison_margin((changed,), (reference,), tolerances(1e-2))
    assert margin == pytest.approx(1 / rms, rel=1e-3)


def test_complex_leaves_without_axes_and_surplus_tolerances():
    value = torch.tensor(1 + 2j)
    assert comparison_margin((value,), (value,), tolerances(1e-3)) == 0
    assert comparison_margin((value + 1,), (value,), tolerances(1e-3)) > 100
    assert comparison_margin((value,), (value,), tolerances(1e-3, 1e-3)) == math.inf


def test_fingerprints_see_values_that_change_places():
    for values in (torch.randn(100), torch.randn(7, 3000)):
        before = fingerprint((values,))
        assert fingerprint((values,)) == before
        values.data.copy_(values.flatten().roll(1).view(values.shape))
        assert fingerprint((values,)) != before


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.complex64])
def test_bit_patterns_tell_what_equality_does_not(dtype):
    nan = torch.tensor([1.0, math.nan]).to(dtype)
    assert equal_bits((nan,), (nan.clone(),))
    assert not equal_bits((torch.zeros(1, dtype=dtype),), (-torch.zeros(1, dtype=dtype),))
    assert not equal_bits((nan,), (nan, nan))
