"""The closed-form interval against resampling."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsgen.device import median_interval


@pytest.mark.parametrize("count", [1, 2, 3, 7, 8, 15, 40, 101])
def test_it_is_what_resampling_converges_to(count):
    rng = np.random.default_rng(count)
    samples = np.sort(rng.gamma(3.0, size=count))
    draws = rng.choice(samples, (40_000, count))
    # The middle two of an even resample count on the side that they lie on.
    lower = np.quantile(np.sort(draws, axis=1)[:, (count - 1) // 2], 0.025, method="inverted_cdf")
    upper = np.quantile(np.sort(draws, axis=1)[:, count // 2], 0.975, method="inverted_cdf")
    low, high = median_interval(samples.tolist())
    at = np.searchsorted(samples, [low, high])
    assert abs(at[0] - np.searchsorted(samples, lower)) <= 1
    assert abs(at[1] - np.searchsorted(samples, upper)) <= 1


@given(st.lists(st.floats(0.01, 1e3), min_size=1, max_size=200))
def test_it_holds_the_median_and_ignores_order(samples):
    low, high = median_interval(samples)
    assert low <= float(np.median(samples)) <= high
    assert median_interval(samples[::-1]) == (low, high)


def test_it_narrows_with_more_samples():
    rng = np.random.default_rng(0)
    widths = []
    for count in (10, 100, 1000):
        low, high = median_interval(rng.normal(10, 1, count).tolist())
        widths.append(high - low)
    assert widths == sorted(widths, reverse=True)
    with pytest.raises(ValueError, match="no samples"):
        median_interval([])
