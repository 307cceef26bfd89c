"""Trying a pair of ops: small graphs of the pair, run and asked what the probe asks.

Every try is a graph of its own, with attributes, operands and sizes drawn afresh, rendered
with a tap at every node at the sizes of its tiny twin, and run in this process. It meets the
probe's checks in their brief form: one draw of weights, two draws of inputs.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from opsgen.errors import SampleError
from opsgen.records import Effect, Graph, Tolerance
from opsgen.render import render_tapped
from opsgen.sampler import grow, size_names
from opsgen.sampler.resolution import Resolver
from opsgen.sampler.sizing import twin_sizes
from opsgen.verify import (
    Inputs,
    Reference,
    TaskCodeError,
    comparison_margin,
    derive_seed,
    input_effects,
    judge_answers,
    lazy_answers,
    node_effects,
    run_trials,
    state_effects,
    task_module,
    tensors_of,
)

NUM_TRIES = 3
NUM_GROWTHS = 24
"""Growths of one try: most dead ends are another choice of attributes away."""
# As a recipe's [admit] section has them by default.
LIVE_MARGIN = 1.0
TRIVIAL_MARGIN = 10.0
FINE = "fine"
UNGROWN = "ungrown"

Tolerances = tuple[Tolerance, ...]
Pairs = list[tuple[Inputs, Inputs]]


@dataclass(frozen=True, slots=True)
class PairResult:
    """What the tries at a pair came to, each `fine` or a reason of `opsgen.sampler.pairs`."""

    tries: tuple[str, ...]

    @property
    def reason(self) -> str | None:
        """The most frequent reason if at least two tries, and most of them, were bad."""
        bad = [outcome for outcome in self.tries if outcome != FINE]
        if len(bad) < 2 or 2 * len(bad) <= len(self.tries):
            return None
        return Counter(bad).most_common(1)[0][0]


def try_pair(first: str, second: str, *, start: int = 0, is_quick: bool = False) -> PairResult:
    """Try graphs of a pair until two are fine, or two are not.

    Args:
        first: The producer.
        second: The op that reads it.
        start: Number of the first try; other numbers are other graphs.
        is_quick: Take a first graph that is fine as enough. Half the cost; overlooks about one
            in six of the pairs to be listed, those that are bad two times out of three.
    """
    tries: list[str] = []
    for number in range(start, start + NUM_TRIES):
        tries.append(try_once(first, second, number))
        num_fine = tries.count(FINE)
        if 2 in (num_fine, len(tries) - num_fine) or (is_quick and tries == [FINE]):
            break
    return PairResult(tuple(tries))


def try_once(first: str, second: str, number: int) -> str:
    """Return `fine`, `ungrown`, or the reason why one graph of a pair is bad."""
    grown = _grow(first, second, number)
    if grown is None:
        return UNGROWN
    graph, sizes = grown
    try:
        with task_module(render_tapped(graph, sizes)) as module:
            module.__dict__["tap"] = _hand_on
            seed = derive_seed("pairs", first, second, number)
            return _Try(graph, Reference.build(module, "cpu", seed), seed).outcome()
    except TaskCodeError:
        return "raises"


def _grow(first: str, second: str, number: int) -> tuple[Graph, dict[str, int]] | None:
    for growth in range(NUM_GROWTHS):
        rng = random.Random(f"{first}>{second}:{number}:{growth}")
        try:
            graph, sizes = grow((first, second), "float32", rng)
            return graph, twin_sizes(
                Resolver(graph), {name: sizes[name] for name in size_names(graph)}
            )
        except SampleError:
            continue
    return None


def _hand_on(_value: int, result: object, _args: object) -> object:
    return result


class _Try:
    """One built graph while it is looked at, cheapest look first."""

    def __init__(self, graph: Graph, reference: Reference, seed: int) -> None:
        self._graph = graph
        self._reference = reference
        self._seeds = (seed, derive_seed(seed, "other"))
        self._draw_seeds = [derive_seed(seed, "draw", number) for number in range(4)]

    def outcome(self) -> str:
        trials = run_trials(self._reference, self._seeds[:1], self._draw_seeds[:2], num_terms=1)
        tolerances = trials.tolerances
        if trials.num_nonfinite:
            return "nonfinite"
        if any(not tolerance.value < 1 for tolerance in tolerances):
            return "unjudgeable"
        draws = self._draws(0)
        found = self._judge_parts([draws], tolerances)
        if found is not None:
            # A second pair of draws, as the probe has it, only where there is doubt.
            found = self._judge_parts([draws, self._draws(2)], tolerances)
        return found or self._judge_answers(draws, tolerances) or FINE

    def _draws(self, start: int) -> tuple[Inputs, Inputs]:
        first, second = (self._reference.draw(s) for s in self._draw_seeds[start : start + 2])
        return first, second

    def _judge_parts(self, pairs: Pairs, tolerances: Tolerances) -> str | None:
        reference = self._reference
        effects = node_effects(reference, self._graph, pairs, tolerances)
        reference.module.__dict__["tap"] = _hand_on
        # Effects are named "node 0 (relu)"; the second op is the last node.
        dead = {(effect.subject.split()[1], effect.change) for effect in _dead(effects)}
        if ("1", "frozen") in dead:
            return "constant"
        places = {place for place, _ in dead}
        if places == {"0", "1"}:
            is_copy = self._is_copy(pairs[0][0], tolerances)
            return "identity" if is_copy else "second_dead"
        if places:
            return "first_dead" if places == {"0"} else "second_dead"
        effects = input_effects(reference, pairs, tolerances)
        effects += state_effects(reference, pairs[0][0], tolerances, self._seeds)
        return "part_dead" if _dead(effects) else None

    def _is_copy(self, inputs: Inputs, tolerances: Tolerances) -> bool:
        outputs = self._reference.run(inputs)
        return any(
            comparison_margin((tensor,), outputs, tolerances) <= LIVE_MARGIN
            for tensor in tensors_of(inputs)
        )

    def _judge_answers(self, draws: tuple[Inputs, Inputs], tolerances: Tolerances) -> str | None:
        outputs, other = (self._reference.run(inputs) for inputs in draws)
        answers = lazy_answers(self._reference, draws[0], outputs, other, self._seeds)
        judged = judge_answers(outputs, tolerances, answers)
        passing = [a for a in judged if not a.margin >= TRIVIAL_MARGIN or a.passes_1e_2]
        return "lazy" if passing else None


def _dead(effects: Sequence[Effect]) -> list[Effect]:
    return [effect for effect in effects if not effect.margin > LIVE_MARGIN]
