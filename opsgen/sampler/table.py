"""The table of legal op sequences, enumerated without being written out.

Ops that are not repeatable on a GPU are left out, and those that serve
composites only. Which op may follow which is decided once from a few sampled
applications of each entry (ranks, numeric ranges, triviality). Sequences of `k` ops are paths
in that relation: counting them by dynamic programming allows to number all
of them and to name the n-th without listing the others.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from math import prod

from opsgen.ops import BLOCK_OPS, CATALOGUE, Attrs, Dim, Interval, Op, Operand
from opsgen.ops.intervals import REAL
from opsgen.ops.user import seal_catalogue
from opsgen.sampler.algebra import Applied, find_triviality
from opsgen.sampler.choices import RandomDraw
from opsgen.sampler.strata import stratum_of_sequence

_NUM_SAMPLES = 6
_TYPICAL = {1: (64,), 2: (8, 64), 3: (4, 32, 64), 4: (4, 32, 16, 16), 5: (2, 16, 8, 8, 8)}


@dataclass(frozen=True, slots=True)
class _Application:
    attrs: Attrs
    rank_in: int
    rank_out: int
    shape_out: tuple[int, ...]
    interval_out: Interval


@cache
def _applications(name: str) -> tuple[_Application, ...]:
    """Apply an op to typical shapes of each rank with a few choices of attributes."""
    op = CATALOGUE[name]
    rng = random.Random(name)  # the same samples in every process
    found = []
    for rank in op.ranks:
        shape = _TYPICAL[rank]
        for _ in range(_NUM_SAMPLES):
            draw = RandomDraw(rng)
            dims = tuple(Dim.named(f"d{index}", size) for index, size in enumerate(shape))
            attrs = op.attrs(draw, (dims,))
            operands = None if attrs is None else op.operands(draw, (dims,), attrs)
            if attrs is None or operands is None:
                continue
            out = op.out((dims, *[operand.shape for operand in operands]), attrs)
            interval = _interval_out(op, attrs, operands)
            sizes = tuple(int(size) for size in out)
            if prod(sizes) > 0:
                found.append(_Application(attrs, rank, len(out), sizes, interval))
    return tuple(found)


def _interval_out(op: Op, attrs: Attrs, operands: tuple[Operand, ...]) -> Interval:
    if isinstance(op.range, Interval):
        return op.range
    return op.range((op.domain, *[operand.domain for operand in operands]), attrs)


@cache
def _ranks_between(first: str, second: str) -> frozenset[int]:
    """Return the ranks at which `first` may hand its output to `second`."""
    producer, consumer = CATALOGUE[first], CATALOGUE[second]
    if producer.out_dtype != "float" or consumer.in_dtype != "float":
        return frozenset()
    attrs_by_rank: dict[int, list[Attrs]] = {}
    for after in _applications(second):
        attrs_by_rank.setdefault(after.rank_in, []).append(after.attrs)
    ranks: set[int] = set()
    for before in _applications(first):
        if before.rank_out in ranks or not before.interval_out.within(consumer.domain):
            continue
        made = Applied(producer, before.attrs, _TYPICAL[before.rank_in], REAL)
        for attrs in attrs_by_rank.get(before.rank_out, ()):
            applied = Applied(consumer, attrs, before.shape_out, before.interval_out, made)
            if find_triviality(applied) is None:
                ranks.add(before.rank_out)
                break
    return frozenset(ranks)


@cache
def _ranks_in(name: str) -> frozenset[int]:
    return frozenset(known.rank_in for known in _applications(name))


@cache
def _ranks_out(name: str, ranks_in: frozenset[int]) -> frozenset[int]:
    return frozenset(known.rank_out for known in _applications(name) if known.rank_in in ranks_in)


@cache
def feasible_ranks(sequence: tuple[str, ...]) -> tuple[int, ...]:
    """Return the ranks of a task input from which a whole sequence can be applied."""
    ranks = _ranks_in(sequence[-1])
    for first, second in reversed(tuple(pairwise(sequence))):
        reached = ranks & _ranks_between(first, second)
        ranks = frozenset(
            known.rank_in for known in _applications(first) if known.rank_out in reached
        )
    return tuple(sorted(ranks))


# Where a path stands: the last op, and the ranks that its first input may have had.
_State = tuple[str, frozenset[int]]


@cache
def _starts(with_operands: bool) -> tuple[_State, ...]:
    seal_catalogue()
    return tuple(
        (name, _ranks_in(name))
        for name, op in CATALOGUE.items()
        if (with_operands or not op.has_operands) and op.is_deterministic
        if name not in BLOCK_OPS and _ranks_in(name)
    )


@cache
def _followers(state: _State, with_operands: bool) -> tuple[_State, ...]:
    reached = _ranks_out(*state)
    found = []
    for name, _ in _starts(with_operands):
        ranks = reached & _ranks_between(state[0], name)
        if ranks:
            found.append((name, ranks))
    return tuple(found)


@cache
def _count(left: int, last: _State, is_done: bool, with_operands: bool) -> int:
    """Count the ways to go on for `left` more ops after `last`."""
    if left == 0:
        return int(is_done)
    return sum(
        _count(left - 1, state, is_done or CATALOGUE[state[0]].has_operands, with_operands)
        for state in _followers(last, with_operands)
    )


class Table:
    """All legal sequences of one length and stratum, numbered from 0.

    Args:
        length: Number of ops.
        with_operands: Count the sequences in which some op reads several tensors
            (True), or those in which none does (False).
        stratum: Count only the sequences whose first pair belongs to it; None for all.
    """

    def __init__(self, length: int, *, with_operands: bool, stratum: str | None = None) -> None:
        self.length = length
        self.with_operands = with_operands
        self._openings: list[tuple[_State, ...]] = []
        self._ends: list[int] = []
        self.size = 0
        for opening in self._all_openings(stratum):
            count = _count(
                length - len(opening), opening[-1], self._is_done(opening), with_operands
            )
            if count:
                self.size += count
                self._openings.append(opening)
                self._ends.append(self.size)

    def sequence(self, number: int) -> tuple[str, ...]:
        """Return sequence `number`.

        Raises:
            IndexError: The table has no such number.
        """
        if not 0 <= number < self.size:
            raise IndexError(f"sequence {number} of {self.size}")
        place = bisect_right(self._ends, number)
        number -= self._ends[place - 1] if place else 0
        path = list(self._openings[place])
        while len(path) < self.length:
            left = self.length - len(path) - 1
            for state in _followers(path[-1], self.with_operands):
                done = self._is_done((*path, state))
                count = _count(left, state, done, self.with_operands)
                if number < count:
                    path.append(state)
                    break
                number -= count
        return tuple(name for name, _ in path)

    def _all_openings(self, stratum: str | None) -> Iterator[tuple[_State, ...]]:
        for first in _starts(self.with_operands):
            if self.length == 1:
                yield (first,)
                continue
            for second in _followers(first, self.with_operands):
                if stratum in (None, stratum_of_sequence((first[0], second[0]))):
                    yield first, second

    def _is_done(self, path: Sequence[_State]) -> bool:
        """Whether what the table asks for is there already."""
        return not self.with_operands or any(CATALOGUE[name].has_operands for name, _ in path)
