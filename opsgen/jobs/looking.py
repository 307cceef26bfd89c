"""One workload of a task, run on a CPU and looked at from all sides."""

from __future__ import annotations

import time
import types
from collections.abc import Sequence
from typing import Any

from opsgen.ops.user import load_inherited_ops
from opsgen.records import Effect, ProbeRequest, Tolerance
from opsgen.render import render_tapped
from opsgen.verify import (
    NUM_REPEATS,
    CallWatch,
    Inputs,
    Leaves,
    Reference,
    Surgery,
    TaskCodeError,
    call_effects,
    check_mixing,
    check_mode,
    check_repeatable,
    check_stable_inputs,
    derive_seed,
    describe_sharing,
    full_dataflow,
    input_effects,
    node_effects,
    pooled_answers,
    run_trials,
    state_effects,
    task_fault,
    task_module,
    unverified_fraction,
    validate_draws,
    validate_outputs,
)

NUM_WEIGHT_SEEDS = 3
NUM_DRAWS = 5
NUM_FIXED_DRAWS = 40
"""Draws after which a leaf that never changed is believed to be fixed."""
MAX_RUN_S = 0.5
"""Longest run, in processor seconds, that is worth repeating for the answers at full size."""
_CPU = "cpu"


class Look:
    """A workload while it is looked at; findings go into `seen` as they come.

    A brief look makes fewer draws, where one run is dear.
    """

    def __init__(
        self,
        request: ProbeRequest,
        module: types.ModuleType,
        seen: dict[str, Any],
        *,
        is_brief: bool = False,
    ) -> None:
        self._request = request
        self._seen = seen
        self._is_brief = is_brief
        self._weight_seeds = self._seeds("weights", NUM_WEIGHT_SEEDS)
        self._draw_seeds = self._seeds("draw", NUM_DRAWS)
        self._reference = Reference.build(module, _CPU, self._weight_seeds[0])
        self._reference.stage = "twin"

    def look(self, *, operates: bool = True) -> None:
        """Fill in everything that numbers show.

        Args:
            operates: Also delete and freeze the calls of foreign code.

        Raises:
            TaskCodeError: The task's code raised, or what it gives cannot be judged at all.
        """
        reference, seen = self._reference, self._seen
        draws = [reference.draw(seed) for seed in self._draw_seeds[:4]]
        seen["has_stable_inputs"] = self._are_inputs_stable(draws)
        validate_draws(draws, reference.stage)
        self._look_at_repeats(draws)
        tolerances = self._look_at_trials()
        reference.state.redraw(self._weight_seeds[0])
        seen["mode_class"] = check_mode(reference, draws[0], tolerances)
        seen["batch_mixing"] = check_mixing(reference, draws[0], tolerances)
        if self._request.lazy_answers:
            self._look_at_answers(draws, tolerances)
        if self._request.liveness:
            seen["effects"] = self._look_at_effects(draws, tolerances)
            if self._request.task.graph is None and operates:
                self._operate(draws, tolerances)

    def answer(self, tolerances: tuple[Tolerance, ...]) -> None:
        """Replace the lazy answers by those at this workload, unless one run takes long."""
        draws = [self._reference.draw(seed) for seed in self._draw_seeds[:2]]
        self._reference.state.redraw(self._weight_seeds[0])
        start_s = time.process_time()
        self._reference.run(draws[0])
        if time.process_time() - start_s < MAX_RUN_S:
            self._look_at_answers(draws, tolerances)
            self._seen["is_full_size"] = True

    def _are_inputs_stable(self, draws: list[Inputs]) -> bool:
        """Look at more draws only where the first three leave something fixed."""
        if check_stable_inputs(draws[:3]):
            return True
        if self._is_brief:
            return False
        more = [self._reference.draw(seed) for seed in self._seeds("fixed", NUM_FIXED_DRAWS)]
        return check_stable_inputs([*draws[:3], *more])

    def _look_at_answers(self, draws: list[Inputs], tolerances: tuple[Tolerance, ...]) -> None:
        seeds = self._weight_seeds[: 1 if self._is_brief else None]
        seeds = seeds if len(seeds) > 1 else self._weight_seeds[:2]
        chosen = draws[:2] if self._is_brief else draws
        self._seen["answers"] = pooled_answers(self._reference, chosen, seeds, tolerances)

    def _look_at_repeats(self, draws: list[Inputs]) -> None:
        """Run one draw three times, the last after the other draw.

        That run is made on a copy whose first call was the other draw: a result that depends on
        what a model has seen before it shows.
        """
        reference, seen = self._reference, self._seen
        reference.state.redraw(self._weight_seeds[0])
        first, second, third = self._seeds("repeat", NUM_REPEATS)
        try:
            fresh = reference.copied()
        except TaskCodeError:
            fresh = reference
        watch = CallWatch(reference, draws[0])
        outputs = reference.run(draws[0], first)
        other = fresh.run(draws[1], first)
        validate_outputs(outputs, other, reference.stage)
        seen["is_repeatable"] = check_repeatable(
            reference, draws[0], outputs, [second]
        ) and check_repeatable(fresh, draws[0], outputs, [third])
        seen["is_pure"] = watch.check_pure()
        self._validate_own(outputs, draws[0])

    def _validate_own(self, outputs: Leaves, inputs: Inputs) -> None:
        reference = self._reference
        sharing = describe_sharing(reference, outputs, inputs) if self._seen["is_pure"] else None
        if sharing is not None:
            raise task_fault("executes", sharing, reference.stage)

    def _look_at_trials(self) -> tuple[Tolerance, ...]:
        trials = run_trials(
            self._reference,
            self._weight_seeds[:1] if self._is_brief else self._weight_seeds,
            self._draw_seeds[:2] if self._is_brief else self._draw_seeds,
            num_terms=1,
        )
        self._seen["num_draws"] = trials.num_draws
        self._seen["num_nonfinite"] = trials.num_nonfinite
        self._seen["tolerances"] = trials.tolerances
        return trials.tolerances

    def _look_at_effects(
        self, draws: list[Inputs], tolerances: tuple[Tolerance, ...]
    ) -> tuple[Effect, ...]:
        reference, graph = self._reference, self._request.task.graph
        pairs = [(draws[0], draws[1]), (draws[2], draws[3])]
        seeds = (self._weight_seeds[0], self._weight_seeds[1])
        effects = input_effects(reference, pairs, tolerances)
        effects += state_effects(reference, draws[0], tolerances, seeds)
        if graph is None:
            return effects
        load_inherited_ops()
        code = render_tapped(graph, self._request.task.workloads[-1].sizes)
        with task_module(code) as module:
            tapped = Reference.build(module, _CPU, self._weight_seeds[0])
            tapped.stage = "twin"
            tapped.model.load_state_dict(reference.model.state_dict(), strict=True)
            return node_effects(tapped, graph, pairs, tolerances) + effects

    def _operate(self, draws: list[Inputs], tolerances: tuple[Tolerance, ...]) -> None:
        """Delete and freeze the calls of foreign code, and see what of its work nobody reads.

        Code that does not run with somebody in between keeps what is known of it.
        """
        seeds = tuple(self._weight_seeds)
        calls = Surgery(self._reference, [*draws], tolerances, seeds)
        full = full_dataflow(self._request.task.code)
        for look in (
            lambda: {"effects": call_effects(calls) + self._seen["effects"]},
            lambda: {"unverified_fraction": unverified_fraction(calls, full)},
        ):
            try:
                self._seen.update(look())
            except TaskCodeError:
                self._reference.state.redraw(self._weight_seeds[0])

    def _seeds(self, purpose: str, count: int) -> Sequence[int]:
        task_id, seed = self._request.task.task_id, self._request.seed
        return [derive_seed(seed, task_id, purpose, number) for number in range(count)]


def time_drawing(module: types.ModuleType, seed: int) -> float:
    """Return the seconds that building a model and drawing its inputs take on this CPU.

    Time in which the process waited for its turn does not count.

    Raises:
        TaskCodeError: The task's code raised.
    """
    start_s, worked_s = time.monotonic(), time.process_time()
    Reference.build(module, _CPU, seed).draw(seed)
    return min(time.monotonic() - start_s, time.process_time() - worked_s)
