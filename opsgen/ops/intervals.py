"""Numeric domains: the values an op accepts and the values it can return.

An edge of a graph is legal if the producer's range lies within the consumer's
domain, so that logarithms and roots never see what they cannot take.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Interval:
    """Real numbers between two bounds; an infinite bound is never attained."""

    low: float
    high: float
    open_low: bool = False
    open_high: bool = False

    def within(self, other: Interval) -> bool:
        """Tell whether every number of this interval is one of `other`."""
        if self.low < other.low or self.high > other.high:
            return False
        if self.low == other.low and other.open_low and not self.open_low:
            return False
        return not (self.high == other.high and other.open_high and not self.open_high)

    def image(self, function: Callable[[float], float]) -> Interval:
        """Return the values of an increasing function over this interval."""
        return Interval(function(self.low), function(self.high), self.open_low, self.open_high)


REAL = Interval(-math.inf, math.inf)
NONNEGATIVE = Interval(0.0, math.inf)
POSITIVE = Interval(0.0, math.inf, open_low=True)
NONPOSITIVE = Interval(-math.inf, 0.0)
AWAY_FROM_ZERO = Interval(0.1, math.inf)
AT_LEAST_ONE = Interval(1.0, math.inf)
UNIT = Interval(0.0, 1.0)
OPEN_UNIT = Interval(0.0, 1.0, open_low=True, open_high=True)
SIGNED_UNIT = Interval(-1.0, 1.0)
OPEN_SIGNED_UNIT = Interval(-1.0, 1.0, open_low=True, open_high=True)
# Float rounding can step over the bounds of what is at most one on paper.
NEAR_SIGNED_UNIT = Interval(-1.001, 1.001)
# exp(10) is still a float16 number, and two exponentials in a row are still a float32 one
# where the first saw at most 1.
EXPONENT = Interval(-math.inf, 10.0)
SIGNED_EXPONENT = Interval(-10.0, 10.0)

Range = Interval | Callable[[tuple[Interval, ...], dict[str, Any]], Interval]
"""A fixed interval, or a function of the inputs' ranges and the attributes."""


def of_first(ranges: tuple[Interval, ...], _attrs: dict[str, Any]) -> Interval:
    """Range of an op that only moves, selects or averages values of its first input."""
    return ranges[0]


def of_first_with_zero(ranges: tuple[Interval, ...], _attrs: dict[str, Any]) -> Interval:
    """Range of an op that mixes values of its first input with zeros."""
    first = ranges[0]
    low, high = min(first.low, 0.0), max(first.high, 0.0)
    return Interval(low, high, first.open_low and low < 0.0, first.open_high and high > 0.0)


def of_sum(ranges: tuple[Interval, ...], _attrs: dict[str, Any]) -> Interval:
    """Range of a sum of any number of values of the first input: it keeps the sign only."""
    first = ranges[0]
    if first.low >= 0.0:
        return Interval(first.low, math.inf, first.open_low)
    if first.high <= 0.0:
        return Interval(-math.inf, first.high, open_high=first.open_high)
    return REAL


def image_of(function: Callable[[float], float]) -> Range:
    """Range of an op that applies an increasing function element by element."""
    return lambda ranges, _attrs: ranges[0].image(function)


def hull(*intervals: Interval) -> Interval:
    """Return the smallest closed interval around all."""
    return Interval(min(part.low for part in intervals), max(part.high for part in intervals))


def of_all(ranges: tuple[Interval, ...], _attrs: dict[str, Any]) -> Interval:
    """Range of an op that selects or averages values of all its inputs."""
    return hull(*ranges)


def of_magnitude(ranges: tuple[Interval, ...], _attrs: dict[str, Any]) -> Interval:
    """Range of the absolute value of the first input."""
    first = ranges[0]
    if first.low >= 0.0:
        return first
    high = max(-first.low, first.high)
    return Interval(max(0.0, -first.high), high)


def plus(left: Interval, right: Interval) -> Interval:
    """Range of a sum of two values."""
    return Interval(
        left.low + right.low,
        left.high + right.high,
        left.open_low or right.open_low,
        left.open_high or right.open_high,
    )


def minus(interval: Interval) -> Interval:
    """Range of a negated value."""
    return Interval(-interval.high, -interval.low, interval.open_high, interval.open_low)


def times(left: Interval, right: Interval) -> Interval:
    """Range of a product of two values, closed because small products underflow to zero."""
    ends = [_product(a, b) for a in (left.low, left.high) for b in (right.low, right.high)]
    return Interval(min(ends), max(ends))


def _product(left: float, right: float) -> float:
    # An infinite bound is never attained, so zero times it stays zero.
    return 0.0 if left == 0.0 or right == 0.0 else left * right


def of_weighted_sum(ranges: tuple[Interval, ...], _attrs: dict[str, Any]) -> Interval:
    """Range of a sum of the first input's values with small positive weights."""
    first = ranges[0]
    return NONNEGATIVE if first.low >= 0.0 else NONPOSITIVE if first.high <= 0.0 else REAL
