"""The job that shows what a CPU can of a task: shapes on `meta`, the rest on its tiny twin."""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import Any

from opsgen.child.context import JobContext
from opsgen.records import Effect, ProbeEvidence, ProbeRequest, Task, Tolerance
from opsgen.render import render_tapped
from opsgen.source import assign_sizes, check_source
from opsgen.verify import (
    NUM_REPEATS,
    Inputs,
    Reference,
    TaskCodeError,
    check_mode,
    check_pure,
    check_repeatable,
    check_stable_inputs,
    derive_seed,
    input_effects,
    judge_answers,
    lazy_answers,
    node_effects,
    outline,
    run_trials,
    state_effects,
    task_module,
)

NUM_WEIGHT_SEEDS = 3
NUM_DRAWS = 5
MAX_FOREIGN_BYTES = 64 * 2**20
MAX_FOREIGN_FLOPS = 4 * 10**9
_CPU = "cpu"


def run(request: ProbeRequest, context: JobContext) -> ProbeEvidence:
    """Return what can be seen of a task without its device.

    Source that breaks a rule is not run. Shapes are taken on `meta` at the default workload.
    Everything else needs numbers and comes from the last workload, the twin; foreign tasks
    have none and run at full size, if that is small, with fewer draws.
    """
    context.stage("probe")
    task = request.task
    faults = check_source(task.code)
    if faults:
        return ProbeEvidence(source_faults=faults)
    seen: dict[str, Any] = {"predicted": task.workloads[0].outputs}
    try:
        is_small = _look_at_meta(task, seen)
        if is_small:
            _look_at_twin(request, seen)
    except TaskCodeError as error:
        seen["failure"] = error.failure
    return ProbeEvidence(**seen)


def _look_at_meta(task: Task, seen: dict[str, Any]) -> bool:
    """Record output specs; return whether there is something small enough to run on."""
    is_foreign = task.graph is None
    with task_module(task.code) as module:
        found = outline(module, count_flops=is_foreign)
    if found is None:
        return not is_foreign
    seen["observed"] = found.outputs
    return not is_foreign or (
        found.size_bytes <= MAX_FOREIGN_BYTES and (found.flops or 0) <= MAX_FOREIGN_FLOPS
    )


def _look_at_twin(request: ProbeRequest, seen: dict[str, Any]) -> None:
    task = request.task
    code = assign_sizes(task.code, task.workloads[-1].sizes)
    with task_module(code) as module:
        _Twin(request, module, seen).look()


class _Twin:
    """The twin while it is looked at; findings go into `seen` as they come."""

    def __init__(
        self, request: ProbeRequest, module: types.ModuleType, seen: dict[str, Any]
    ) -> None:
        self._request = request
        self._seen = seen
        self._weight_seeds = self._seeds("weights", NUM_WEIGHT_SEEDS)
        self._draw_seeds = self._seeds("draw", NUM_DRAWS)
        self._reference = Reference.build(module, _CPU, self._weight_seeds[0])
        self._reference.stage = "twin"

    def look(self) -> None:
        reference, seen = self._reference, self._seen
        draws = [reference.draw(seed) for seed in self._draw_seeds[:4]]
        seen["has_stable_inputs"] = check_stable_inputs(draws[:3])
        tolerances = self._look_at_trials()
        reference.state.redraw(self._weight_seeds[0])
        repeats = self._seeds("repeat", NUM_REPEATS)
        seen["is_repeatable"] = check_repeatable(reference, draws[0], repeats)
        seen["is_pure"] = check_pure(reference, draws[0])
        seen["mode_class"] = check_mode(reference, draws[0], tolerances)
        if self._request.lazy_answers:
            outputs, other = reference.run(draws[0]), reference.run(draws[1])
            seeds = (self._weight_seeds[0], self._weight_seeds[1])
            answers = lazy_answers(reference, draws[0], outputs, other, seeds)
            seen["answers"] = judge_answers(outputs, tolerances, answers)
        if self._request.liveness:
            seen["effects"] = self._look_at_effects(draws, tolerances)

    def _look_at_trials(self) -> tuple[Tolerance, ...]:
        is_twin = self._request.task.graph is not None
        trials = run_trials(
            self._reference,
            self._weight_seeds if is_twin else self._weight_seeds[:1],
            self._draw_seeds if is_twin else self._draw_seeds[:2],
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
        code = render_tapped(graph, self._request.task.workloads[-1].sizes)
        with task_module(code) as module:
            tapped = Reference.build(module, _CPU, self._weight_seeds[0])
            tapped.stage = "twin"
            tapped.model.load_state_dict(reference.model.state_dict(), strict=True)
            return node_effects(tapped, graph, pairs, tolerances) + effects

    def _seeds(self, purpose: str, count: int) -> Sequence[int]:
        task_id, seed = self._request.task.task_id, self._request.seed
        return [derive_seed(seed, task_id, purpose, number) for number in range(count)]
