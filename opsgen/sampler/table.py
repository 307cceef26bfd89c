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
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import pairwise
from math import prod
from typing import NamedTuple

from opsgen.ops import (
    BLOCK_OPS,
    CATALOGUE,
    Attrs,
    Dim,
    Interval,
    Op,
    Operand,
    Shape,
    same_shape,
)
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
    may_join: bool  # an operand has the first input's shape, so that an earlier value may serve


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
                may_join = any(_may_join(operand, dims) for operand in operands)
                found.append(_Application(attrs, rank, len(out), sizes, interval, may_join))
    return tuple(found)


def _may_join(operand: Operand, dims: Shape) -> bool:
    is_value = operand.can_join and operand.draw is None and operand.dtype == "float"
    return is_value and same_shape(operand.shape, dims)


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
    attrs_by_rank = _attrs_by_rank(second)
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
def _attrs_by_rank(name: str) -> dict[int, list[Attrs]]:
    found: dict[int, list[Attrs]] = {}
    for application in _applications(name):
        found.setdefault(application.rank_in, []).append(application.attrs)
    return found


@cache
def _ranks_in(name: str) -> frozenset[int]:
    return frozenset(known.rank_in for known in _applications(name))


@cache
def _ranks_out(name: str, ranks_in: frozenset[int]) -> frozenset[int]:
    return frozenset(known.rank_out for known in _applications(name) if known.rank_in in ranks_in)


@lru_cache(maxsize=2**16)
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


class Paths(NamedTuple):
    """Which ops may follow each other.

    Attributes:
        with_operands: Sequences in which some op reads several tensors (True), or none (False).
        is_gradient: Those whose gradients make a task: all ops are differentiable and
            repeatable backward, and some derivative depends on the input.
        is_half: Those whose ops all have half-precision kernels.
        may_share: Those in which an earlier value can serve as an operand of an op other than
            the first.
    """

    with_operands: bool = False
    is_gradient: bool = False
    is_half: bool = False
    may_share: bool = False


class Contents(NamedTuple):
    """Which sequences a table holds.

    Attributes:
        length: Number of ops.
        stratum: Those whose first pair belongs to it; None for all.
        is_seen: Those whose first pair stands in real code (True), does not (False), or both
            (None).
        paths: What else is asked of them.
    """

    length: int
    stratum: str | None = None
    is_seen: bool | None = None
    paths: Paths = Paths()


class _Walks:
    """All ways through the ops, counted for every number of steps to go."""

    def __init__(self, paths: Paths) -> None:
        seal_catalogue()
        self.starts: tuple[_State, ...] = tuple(
            (name, _ranks_in(name))
            for name, op in CATALOGUE.items()
            if (paths.with_operands or not op.has_operands) and op.is_deterministic
            if not (paths.is_half and op.is_full_precision)
            if not paths.is_gradient or has_gradient(op)
            if name not in BLOCK_OPS and _ranks_in(name)
        )
        self._num_idle = int(paths.may_share)  # first ops that bring nothing that is asked for
        self._satisfying = {name for name, _ in self.starts if _satisfies(name, paths)}
        self._followers: dict[_State, tuple[_State, ...]] = {}
        self._counts: dict[tuple[_State, int, bool], int] = {}
        self._pairs: dict[tuple[str | None, bool], list[tuple[_State, ...]]] | None = None

    def followers(self, state: _State) -> tuple[_State, ...]:
        found = self._followers.get(state)
        if found is None:
            reached = _ranks_out(*state)
            made = ((name, reached & _ranks_between(state[0], name)) for name, _ in self.starts)
            found = self._followers[state] = tuple(each for each in made if each[1])
        return found

    def is_done(self, path: Sequence[_State]) -> bool:
        """Whether what is asked of at least one op of each sequence is there already."""
        return any(name in self._satisfying for name, _ in path[self._num_idle :])

    def count(self, state: _State, left: int, is_done: bool) -> int:
        """Count the ways to go on for `left` more ops."""
        if left == 0:
            return int(is_done)
        place = (state, left, is_done)
        found = self._counts.get(place)
        if found is None:
            satisfying = self._satisfying
            found = 0
            for each in self.followers(state):
                found += self.count(each, left - 1, is_done or each[0] in satisfying)
            self._counts[place] = found
        return found

    def openings(self, contents: Contents) -> list[tuple[_State, ...]]:
        """Return the first two ops of all sequences, or the only one."""
        if contents.length == 1:
            return [(first,) for first in self.starts]
        if self._pairs is None:
            self._pairs = {}
            for first in self.starts:
                for second in self.followers(first):
                    pair = (first[0], second[0])
                    place = (stratum_of_sequence(pair), num_seen(*pair) > 0)
                    self._pairs.setdefault(place, []).append((first, second))
        return [
            pair
            for (stratum, is_seen), pairs in self._pairs.items()
            if contents.stratum in (None, stratum) and contents.is_seen in (None, is_seen)
            for pair in pairs
        ]


@cache
def _walks(paths: Paths) -> _Walks:
    return _Walks(paths)


def _satisfies(name: str, paths: Paths) -> bool:
    op = CATALOGUE[name]
    if paths.is_gradient:
        return is_curved(op)
    if paths.may_share:
        return any(known.may_join for known in _applications(name))
    return op.has_operands or not paths.with_operands


def start_names() -> tuple[str, ...]:
    """Return the names of all ops that sequences may hold."""
    return tuple(name for name, _ in _walks(Paths(with_operands=True)).starts)


class Table:
    """All legal sequences of one kind, numbered from 0.

    Where only pairs of real code are asked for, a sequence is there once for each doubling
    of the number of models that hold its opening pair.
    """

    def __init__(self, contents: Contents) -> None:
        self._length = contents.length
        self._walks = walks = _walks(contents.paths)
        self._openings: list[tuple[_State, ...]] = []
        self._counts: list[int] = []
        self._ends: list[int] = []
        self.size = 0
        for opening in walks.openings(contents):
            left = contents.length - len(opening)
            count = walks.count(opening[-1], left, walks.is_done(opening))
            if count:
                self.size += count * (_weight(opening) if contents.is_seen else 1)
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
        while len(path) < self._length:
            left = self._length - len(path) - 1
            for state in self._walks.followers(path[-1]):
                count = self._walks.count(state, left, self._walks.is_done((*path, state)))
                if number < count:
                    path.append(state)
                    break
                number -= count
        return tuple(name for name, _ in path)


def _weight(opening: tuple[_State, ...]) -> int:
    return num_seen(opening[0][0], opening[1][0]).bit_length()
