"""Lazy answers over several draws and weight seeds: no accident of a small output decides."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence

from opsgen.records import LazyAnswer, Tolerance
from opsgen.verify.answers import FAILING_SHARE, LeafJudge, mean_answer, still_answers
from opsgen.verify.leaves import Inputs, Leaves, is_exact, real_view
from opsgen.verify.reference import Reference
from opsgen.verify.seeding import derive_seed

NUM_MORE_SEEDS = 6
"""Weight seeds asked besides where the first ones disagree."""
_FADED = 1e-3
_CLEAR_MARGIN = 100.0
"""Where every answer is this far out on one pair of draws, further pairs tell nothing."""
Tolerances = tuple[Tolerance, ...]


def pooled_answers(
    reference: Reference, draws: Sequence[Inputs], seeds: Sequence[int], tolerances: Tolerances
) -> tuple[LazyAnswer, ...]:
    """Return how well each lazy answer does over pairs of draws and over weight seeds.

    At one weight seed the largest margin over pairs of draws counts, since a short output can be
    near by accident; exact leaves are judged on the elements of all pairs together. Of the seeds
    the worst counts. Where an answer passes for some of them only, further ones are asked and
    the worst is left out: a few channels on a cut can all be on one side of zero by accident, a
    task that depends on it is so again and again. An answer passes at 1e-2 if it does for every
    pair of some weight seed. `faded` is the replay at no less than a thousandth of the scale:
    what inputs hardly move. The state of the first seed is restored.

    Args:
        reference: The task.
        draws: At least two; each is answered from the one before it.
        seeds: Weight seeds; the first alone counts where there is no state.
        tolerances: The task's own.
    """
    chosen = list(seeds if reference.state.names else seeds[:1])
    found = _pools_at(reference, draws, chosen, tolerances)
    num_left_out = 0
    if any(_is_divided(pools) for pools in found.values()):
        more = [derive_seed(chosen[-1], "again", number) for number in range(NUM_MORE_SEEDS)]
        for name, pools in _pools_at(reference, draws, more, tolerances).items():
            found.setdefault(name, []).extend(pools)
        num_left_out = 1
    reference.state.redraw(seeds[0])
    return tuple(
        LazyAnswer(
            name=name,
            margin=sorted(pool.margin for pool in pools)[num_left_out if len(pools) > 1 else 0],
            passes_1e_2=name != "faded" and sum(pool.passes for pool in pools) > num_left_out,
        )
        for name, pools in found.items()
    )


def _is_divided(pools: list[_Pool]) -> bool:
    margins = [pool.margin for pool in pools]
    return min(margins) <= 1 < max(margins)


def _pools_at(
    reference: Reference, draws: Sequence[Inputs], seeds: Sequence[int], tolerances: Tolerances
) -> dict[str, list[_Pool]]:
    """Return what each answer comes to at each of the weight seeds."""
    outputs = {seed: _runs(reference, draws, seed) for seed in seeds}
    found: dict[str, list[_Pool]] = {}
    for seed, following in zip(seeds, [*seeds[1:], seeds[0]], strict=True):
        reference.state.redraw(seed)
        pools: dict[str, _Pool] = {}
        for place in range(1, len(draws)):
            ours, theirs = outputs[seed][place], outputs[seed][place - 1]
            answers = itertools.chain(
                still_answers(draws[place], ours, theirs),
                mean_answer(reference, draws[place]),
                [("other_weights", outputs[following][place])] if len(seeds) > 1 else [],
            )
            _judge(pools, ours, theirs, answers, tolerances)
            if all(pool.is_clear for pool in pools.values()):
                break
        for name, pool in pools.items():
            found.setdefault(name, []).append(pool)
    return found


def _runs(reference: Reference, draws: Sequence[Inputs], seed: int) -> list[Leaves]:
    reference.state.redraw(seed)
    return [reference.run(inputs) for inputs in draws]


def _judge(
    pools: dict[str, _Pool],
    ours: Leaves,
    theirs: Leaves,
    answers: Iterator[tuple[str, Leaves]],
    tolerances: Tolerances,
) -> None:
    judges = [
        LeafJudge.of(real_view(leaf), tolerance.value)
        for leaf, tolerance in zip(ours, tolerances, strict=True)
    ]
    for name, leaves in answers:
        pools.setdefault(name, _Pool(len(ours))).add(judges, leaves)
    faded = [dataclasses.replace(j, tolerance=max(j.tolerance, _FADED)) for j in judges]
    pools.setdefault("faded", _Pool(len(ours))).add(faded, theirs)


class _Pool:
    """One answer at one weight seed, over pairs of draws."""

    def __init__(self, num_leaves: int) -> None:
        self._floating = 0.0
        self._wrong = [0] * num_leaves
        self._all = [0] * num_leaves
        self.passes = True

    def add(self, judges: list[LeafJudge], leaves: Leaves) -> None:
        pairs = [(j, real_view(leaf)) for j, leaf in zip(judges, leaves, strict=True)]
        if any(judge.leaf.shape != leaf.shape for judge, leaf in pairs):
            self._floating, self.passes = math.inf, False
            return
        for place, (judge, leaf) in enumerate(pairs):
            if is_exact(judge.leaf):
                self._wrong[place] += judge.count_wrong(leaf)
                self._all[place] += judge.values.numel()
            else:
                self._floating = max(self._floating, judge.margin(leaf))
        self.passes = self.passes and all(judge.passes(leaf) for judge, leaf in pairs)

    @property
    def is_clear(self) -> bool:
        return self._floating > _CLEAR_MARGIN and not self.passes

    @property
    def margin(self) -> float:
        shares = (wrong / max(1, all_) for wrong, all_ in zip(self._wrong, self._all, strict=True))
        return math.inf if any(share >= FAILING_SHARE for share in shares) else self._floating
