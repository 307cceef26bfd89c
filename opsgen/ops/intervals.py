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
