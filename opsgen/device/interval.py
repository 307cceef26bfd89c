"""The bootstrap interval of a median, in the limit of infinitely many resamples."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np

CONFIDENCE = 0.95


def median_interval(samples: Sequence[float]) -> tuple[float, float]:
    """Return the percentile-bootstrap interval of the median at 95 %.

    A resample's median is one of the samples, and the chance of each follows from a binomial
    distribution, so nothing need be drawn. Between the two middle samples of an even number
    the outer one is taken on either side.

    Raises:
        ValueError: There are no samples.
    """
    if not samples:
        raise ValueError("no samples")
    ordered = sorted(samples)
    lower = _lower_rank(len(ordered))
    return ordered[lower], ordered[len(ordered) - 1 - lower]


@functools.lru_cache(maxsize=4096)
def _lower_rank(count: int) -> int:
    """Return the index of the sample that a resample's lower median exceeds 97.5 % of the time.

    With `i + 1` samples at or below sample `i`, the lower median is at or below it when at
    least half of a resample falls among them.
    """
    half = (count + 1) // 2
    tail = (1 - CONFIDENCE) / 2
    low, high = 0, count // 2
    while low < high:
        middle = (low + high) // 2
        if _binomial_tail(count, (middle + 1) / count, half) >= tail:
            high = middle
        else:
            low = middle + 1
    return low


def _binomial_tail(count: int, share: float, least: int) -> float:
    """Return the chance of at least `least` successes in `count` trials."""
    if share >= 1:
        return 1.0
    hits = np.arange(least, count + 1)
    logs = np.array(
        [math.lgamma(count + 1) - math.lgamma(k + 1) - math.lgamma(count - k + 1) for k in hits]
    )
    return float(np.exp(logs + hits * math.log(share) + (count - hits) * math.log1p(-share)).sum())
