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
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from math import prod

from opsgen.ops import BLOCK_OPS, CATALOGUE, Attrs, Dim, Interval, Op, Operand
from opsgen.ops.gradients import has_gradient, is_curved
from opsgen.ops.intervals import REAL
from opsgen.ops.user import seal_catalogue
from opsgen.sampler.algebra import Applied, find_triviality
from opsgen.sampler.choices import RandomDraw
from opsgen.sampler.pairs import is_degenerate, num_seen
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
    if is_degenerate(first, second):
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


@dataclass(frozen=True, slots=True)
class Contents:
    """Which sequences a table holds.

    Attributes:
        length: Number of ops.
        with_operands: Those in which some op reads several tensors (True), or none does (False).
        stratum: Those whose first pair belongs to it; None for all.
        is_gradient: Those whose gradients make a task: all ops are differentiable and
            repeatable backward, and some derivative depends on the input.
        is_half: Those whose ops all have half-precision kernels.
        is_seen: Those whose first pair stands in real code (True), does not (False), or both
            (None).
    """

    length: int
    with_operands: bool = False
    stratum: str | None = None
    is_gradient: bool = False
    is_half: bool = False
    is_seen: bool | None = None


@cache
def _starts(contents: Contents) -> tuple[_State, ...]:
    seal_catalogue()
    return tuple(
        (name, _ranks_in(name))
        for name, op in CATALOGUE.items()
        if (contents.with_operands or not op.has_operands) and op.is_deterministic
        if not (contents.is_half and op.is_full_precision)
        if not contents.is_gradient or has_gradient(op)
        if name not in BLOCK_OPS and _ranks_in(name)
    )


@cache
def _followers(state: _State, contents: Contents) -> tuple[_State, ...]:
    reached = _ranks_out(*state)
    found = []
    for name, _ in _starts(contents):
        ranks = reached & _ranks_between(state[0], name)
        if ranks:
            found.append((name, ranks))
    return tuple(found)


def _satisfies(name: str, contents: Contents) -> bool:
    """Whether an op brings what a table asks of at least one op of each sequence."""
    op = CATALOGUE[name]
    if contents.is_gradient:
        return is_curved(op)
    return op.has_operands or not contents.with_operands


@cache
def _count(left: int, last: _State, is_done: bool, contents: Contents) -> int:
    """Count the ways to go on for `left` more ops after `last`."""
    if left == 0:
        return int(is_done)
    return sum(
        _count(left - 1, state, is_done or _satisfies(state[0], contents), contents)
        for state in _followers(last, contents)
    )


class Table:
    """All legal sequences of one kind, numbered from 0.

    Where only pairs of real code are asked for, a sequence is there once for each doubling
    of the number of models that hold its opening pair.
    """

    def __init__(self, contents: Contents) -> None:
        self.contents = contents
        # What paths are counted by, whatever opens them.
        self._body = replace(contents, length=0, stratum=None, is_seen=None)
        self._openings: list[tuple[_State, ...]] = []
        self._counts: list[int] = []
        self._ends: list[int] = []
        self.size = 0
        for opening in self._all_openings():
            left = contents.length - len(opening)
            count = _count(left, opening[-1], self._is_done(opening), self._body)
            if count:
                self.size += count * self._weight(opening)
                self._openings.append(opening)
                self._counts.append(count)
                self._ends.append(self.size)

    def sequence(self, number: int) -> tuple[str, ...]:
        """Return sequence `number`.

        Raises:
            IndexError: The table has no such number.
        """
        if not 0 <= number < self.size:
            raise IndexError(f"sequence {number} of {self.size}")
        place = bisect_right(self._ends, number)
        number = (number - (self._ends[place - 1] if place else 0)) % self._counts[place]
        path = list(self._openings[place])
        while len(path) < self.contents.length:
            left = self.contents.length - len(path) - 1
            for state in _followers(path[-1], self._body):
                count = _count(left, state, self._is_done((*path, state)), self._body)
                if number < count:
                    path.append(state)
                    break
                number -= count
        return tuple(name for name, _ in path)

    def _all_openings(self) -> Iterator[tuple[_State, ...]]:
        wanted = self.contents
        for first in _starts(self._body):
            if wanted.length == 1:
                yield (first,)
                continue
            for second in _followers(first, self._body):
                pair = (first[0], second[0])
                if wanted.stratum not in (None, stratum_of_sequence(pair)):
                    continue
                if wanted.is_seen in (None, num_seen(*pair) > 0):
                    yield first, second

    def _weight(self, opening: tuple[_State, ...]) -> int:
        if not self.contents.is_seen:
            return 1
        return num_seen(opening[0][0], opening[1][0]).bit_length()

    def _is_done(self, path: Sequence[_State]) -> bool:
        """Whether what the table asks for is there already."""
        return any(_satisfies(name, self._body) for name, _ in path)
