"""Sizes that remember their expressions, numeric intervals, and input draws."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from opsgen.ops import DRAWS, Dim, Interval, draws_within, evaluate, expression, same_shape
from opsgen.ops.intervals import hull, minus, of_magnitude, plus, times

_OPERATIONS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv}


@dataclass(frozen=True)
class Sum:
    """Arithmetic over two sizes: a leaf's number or name, or an operation on two parts."""

    left: Sum | int | str
    sign: str
    right: Sum | int | str

    def compute(self, sizes: dict[str, int]) -> int:
        left, right = value(self.left, sizes), value(self.right, sizes)
        if self.sign == "//" and int(right) <= 0:
            return left
        return _OPERATIONS[self.sign](left, right)


def value(part: Sum | int | str, sizes: dict[str, int]) -> int:
    if isinstance(part, Sum):
        return part.compute(sizes)
    return sizes[part] if isinstance(part, str) else part


leaves = st.sampled_from(["height", "width"]) | st.integers(min_value=0, max_value=9)
sums = st.recursive(
    leaves,
    lambda parts: st.builds(Sum, parts, st.sampled_from(sorted(_OPERATIONS)), parts),
    max_leaves=6,
)
counts = st.integers(min_value=1, max_value=50)


@given(part=sums, height=counts, width=counts)
def test_a_dim_is_the_number_its_expression_gives(
    part: Sum | int | str, height: int, width: int
) -> None:
    plain = {"height": height, "width": width}
    named = {name: Dim.named(name, size) for name, size in plain.items()}
    size = value(part, named)
    assert int(size) == value(part, plain)
    assert evaluate(expression(size), plain) == int(size)


@given(
    size=counts,
    other=st.integers(min_value=20, max_value=90),
    kernel=st.sampled_from((1, 3, 5)),
    stride=st.integers(min_value=1, max_value=3),
)
def test_an_expression_moves_to_other_sizes(
    size: int, other: int, kernel: int, stride: int
) -> None:
    def windows(length: int) -> int:
        return (length + 2 * (kernel // 2) - (kernel - 1) - 1) // stride + 1

    text = expression(windows(Dim.named("length", size)))
    assert evaluate(text, {"length": other}) == windows(other)
    if stride == 1:
        assert text == "length"


def test_equal_numbers_of_other_names_are_not_one_shape() -> None:
    assert same_shape((Dim.named("height", 8), 4), (Dim.named("height", 8), 4))
    assert not same_shape((Dim.named("height", 8), 4), (Dim.named("width", 8), 4))
    assert not same_shape((Dim.named("height", 8),), (8,))


bounds = st.floats(min_value=-100, max_value=100)
intervals = st.builds(lambda a, b: Interval(min(a, b), max(a, b)), bounds, bounds)
shares = st.floats(min_value=0, max_value=1)


def _inside(interval: Interval, share: float) -> float:
    return min(
        max(interval.low + share * (interval.high - interval.low), interval.low), interval.high
    )


def _holds(interval: Interval, number: float) -> bool:
    slack = 1e-9 * max(1.0, abs(number))
    return interval.low - slack <= number <= interval.high + slack


@given(left=intervals, right=intervals, a=shares, b=shares)
def test_interval_arithmetic_holds_every_result(
    left: Interval, right: Interval, a: float, b: float
) -> None:
    x, y = _inside(left, a), _inside(right, b)
    assert _holds(plus(left, right), x + y)
    assert _holds(times(left, right), x * y)
    assert _holds(minus(left), -x)
    assert _holds(of_magnitude((left,), {}), abs(x))
    assert left.within(hull(left, right))
    assert right.within(hull(left, right))


def test_open_bounds_are_kept_apart() -> None:
    positive = Interval(0.0, math.inf, open_low=True)
    assert positive.within(Interval(0.0, math.inf))
    assert not Interval(0.0, math.inf).within(positive)
    assert times(Interval(-math.inf, math.inf), Interval(0.0, 0.0)) == Interval(0.0, 0.0)


@pytest.mark.parametrize("name", [name for name, draw in DRAWS.items() if draw.kind == "float"])
def test_draws_keep_to_their_range(name: str) -> None:
    draw = DRAWS[name]
    with torch.random.fork_rng():
        values = eval(draw.source.format(shape="10000", dtype=""), {"torch": torch})
    assert values.shape == (10000,)
    assert values.dtype == torch.float32
    assert draw.range.low <= values.min().item()
    assert values.max().item() <= draw.range.high
    assert draw.range.low < values.min().item() or not draw.range.open_low
    assert values.max().item() < draw.range.high or not draw.range.open_high


@given(domain=intervals)
def test_draws_within_a_domain_lie_in_it(domain: Interval) -> None:
    assert all(DRAWS[name].range.within(domain) for name in draws_within(domain))
