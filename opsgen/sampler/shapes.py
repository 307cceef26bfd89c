"""The shape of a kind's times: what they are proportional to, whatever the factors of its ops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import log
from statistics import median

from opsgen.sampler.points import Sample, group_by

MIN_POINTS = 10
"""Points without which nothing of the kind is fitted beside its speed."""

_NUM_ROUNDS = 12
_MIN_GAIN = 0.98  # of the scatter, for a constant to be worth it


@dataclass(frozen=True, slots=True)
class Shape:
    """What a kind's times are proportional to: operations that one byte is worth, and extents."""

    balance: float
    half_length: float = 0.0
    half_number: float = 0.0


_HALVES = (0.0, *(10 ** (step / 4) for step in range(1, 17)))
_BALANCES = tuple(10 ** (step / 4) for step in range(-8, 9))  # beside the balance of the base


def fit_shape(samples: Sequence[Sample], balance: float) -> Shape:
    """Search, one constant after the other, for the shape under which ops scatter least."""
    best = Shape(balance)
    least = _scatter(samples, best) if len(samples) >= MIN_POINTS else 0.0
    for _ in range(_NUM_ROUNDS if least else 0):
        before = best
        for shape in (
            *(replace(best, balance=balance * step) for step in _BALANCES),
            *(replace(best, half_length=half) for half in _HALVES),
            *(replace(best, half_number=half) for half in _HALVES),
        ):
            scatter = _scatter(samples, shape)
            # A constant that explains next to nothing is one that the next device lacks.
            if scatter < _MIN_GAIN * least:
                best, least = shape, scatter
        if best == before:
            break
    return best


def _scatter(samples: Sequence[Sample], shape: Shape) -> float:
    """Return the mean distance of log times from the median of their op."""
    total = 0.0
    for _, group in group_by(samples, lambda each: each.op):
        logs = [log(base_ratio(each, shape)) for each in group]
        middle = median(logs)
        total += sum(abs(each - middle) for each in logs)
    return total / len(samples)


def base_ratio(sample: Sample, shape: Shape) -> float:
    """Return milliseconds for one byte, or for what one byte is worth."""
    work = max(sample.moved, sample.flops / shape.balance)
    return sample.work_ms / work / sample.slowdown(shape.half_length, shape.half_number)
