"""The job that shows what a CPU can of a task: shapes on `meta`, the rest on its tiny twin."""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import Any

from opsgen.child.context import JobContext
from opsgen.ops.user import load_inherited_ops
from opsgen.records import Effect, ProbeEvidence, ProbeRequest, Tolerance
from opsgen.render import render_tapped
from opsgen.source import assign_sizes, check_source
from opsgen.source.contamination import find_overlap
from opsgen.verify import (
    NUM_REPEATS,
    CallWatch,
    Inputs,
    Leaves,
    Reference,
    Rehearsal,
    TaskCodeError,
    Twin,
    check_mode,
    check_repeatable,
    check_stable_inputs,
    derive_seed,
    describe_calls,
    describe_sharing,
    find_twins,
    full_size,
    input_effects,
    judge_answers,
    lazy_answers,
    node_effects,
    rehearse,
    run_trials,
    state_effects,
    task_fault,
    task_module,
    validate_draws,
    validate_outputs,
)

NUM_WEIGHT_SEEDS = 3
NUM_DRAWS = 5
MAX_LOOKS = 3
"""How many smaller workloads of foreign code are looked at before the last one's word counts."""
# The full size is its own twin where that is hardly dearer; it is run with fewer draws, where
# nothing smaller runs, as long as a CPU gets through. In bytes and floating-point operations.
_TINY = (2**20, 10**7)
_SMALL = (64 * 2**20, 4 * 10**9)
_LARGE = (256 * 2**20, 40 * 10**9)
_CPU = "cpu"
# A change this close to the tolerance may be a degenerate twin's doing: one element in a group.
_DOUBTFUL_MARGIN = 2.0


def run(request: ProbeRequest, context: JobContext) -> ProbeEvidence:
    """Return what can be seen of a task without its device.

    Source that breaks a rule is not run. Shapes are taken on `meta` at the default workload.
    Everything else needs numbers and comes from the twin: a sampled task's last workload, a
    foreign task's smallest cut that shows nothing doubtful. Foreign code that is large and
    cannot be cut is left to its device: its evidence ends after the shapes.
    """
    context.stage("probe")
    task = request.task
    faults = check_source(task.code)
    if faults:
        return ProbeEvidence(source_faults=faults)
    seen: dict[str, Any] = {"predicted": task.workloads[0].outputs}
    try:
        if task.graph is None:
            _look_at_foreign(request, context, seen)
        else:
            load_inherited_ops()
            with task_module(task.code) as module:
                found = rehearse(module, count_flops=False)
            _note(request, found, seen)
            _look(request, assign_sizes(task.code, task.workloads[-1].sizes), seen)
    except TaskCodeError as error:
        seen["failure"] = error.failure
    return ProbeEvidence(**seen)


def _note(request: ProbeRequest, found: Rehearsal | None, seen: dict[str, Any]) -> None:
    """Keep what `meta` showed of the default workload."""
    if found is not None and found.outline is not None:
        seen["observed"] = found.outline.outputs
        seen["peak_bytes"] = found.outline.peak_bytes
        seen["largest_elements"] = found.outline.largest_elements
        seen["kept_fraction"] = found.outline.kept_fraction
    if found is not None and found.recording is not None:
        seen["trace"] = found.trace
        seen["ops_difference"] = describe_calls(request.task, found.recording)
    trace = seen.get("trace")
    seen["overlap"] = find_overlap(request.task.code, trace, request.benchmarks)


def _look_at_foreign(request: ProbeRequest, context: JobContext, seen: dict[str, Any]) -> None:
    full = full_size(request.task.code)
    _note(request, full.rehearsal, seen)
    if full.fits(*_TINY):
        _look(request, full.code, seen)
        return
    found: dict[str, Any] | None = None
    num_looks, level = 0, 0
    for twin in find_twins(request.task.code):
        # After a doubtful one only a workload twice as large tells more.
        if num_looks == MAX_LOOKS or twin.level < 2 * level or not twin.fits(*_SMALL):
            continue
        context.stage("probe")
        again = _look_again(request, twin)
        if again is not None:
            found, num_looks, level = again, num_looks + 1, twin.level
            if not _is_doubtful(found):
                break
    if found is None or (_is_doubtful(found) and full.fits(*_SMALL)):
        if not full.fits(*_LARGE):
            return
        context.stage("probe")
        _look(request, full.code, seen, is_brief=not full.fits(*_SMALL))
    else:
        seen.update(found)


def _look_again(request: ProbeRequest, twin: Twin) -> dict[str, Any] | None:
    """Return what a cut shows; None where the code does not run on it."""
    seen: dict[str, Any] = {}
    try:
        _look(request, twin.code, seen)
    except TaskCodeError as error:
        # What the code raises may be the cut's doing, what we object to is not.
        if error.failure.kind != "TaskError":
            return None
        seen["failure"] = error.failure
    return seen


def _is_doubtful(seen: dict[str, Any]) -> bool:
    """Whether a larger workload might say otherwise."""
    failure = seen.get("failure")
    if failure is not None or not (seen["is_repeatable"] and seen["is_pure"]):
        return failure is not None and failure.criterion != "executes"
    return (
        seen["num_nonfinite"] > 0
        or any(not tolerance.value < 1 for tolerance in seen["tolerances"])
        or any(not effect.margin > _DOUBTFUL_MARGIN for effect in seen.get("effects", ()))
    )


def _look(
    request: ProbeRequest, code: str, seen: dict[str, Any], *, is_brief: bool = False
) -> None:
    with task_module(code) as module:
        _Look(request, module, seen, is_brief=is_brief).look()


class _Look:
    """The twin while it is looked at; findings go into `seen` as they come."""

    def __init__(
        self,
        request: ProbeRequest,
        module: types.ModuleType,
        seen: dict[str, Any],
        *,
        is_brief: bool,
    ) -> None:
        self._request = request
        self._seen = seen
        self._is_brief = is_brief
        self._weight_seeds = self._seeds("weights", NUM_WEIGHT_SEEDS)
        self._draw_seeds = self._seeds("draw", NUM_DRAWS)
        self._reference = Reference.build(module, _CPU, self._weight_seeds[0])
        self._reference.stage = "twin"

    def look(self) -> None:
        reference, seen = self._reference, self._seen
        draws = [reference.draw(seed) for seed in self._draw_seeds[:4]]
        seen["has_stable_inputs"] = check_stable_inputs(draws[:3])
        validate_draws(draws, reference.stage)
        outputs, other = self._look_at_repeats(draws)
        tolerances = self._look_at_trials()
        reference.state.redraw(self._weight_seeds[0])
        seen["mode_class"] = check_mode(reference, draws[0], tolerances)
        if self._request.lazy_answers:
            seeds = (self._weight_seeds[0], self._weight_seeds[1])
            answers = lazy_answers(reference, draws[0], outputs, other, seeds)
            seen["answers"] = judge_answers(outputs, tolerances, answers)
        if self._request.liveness:
            seen["effects"] = self._look_at_effects(draws, tolerances)

    def _look_at_repeats(self, draws: list[Inputs]) -> tuple[Leaves, Leaves]:
        """Return outputs for two draws. Of the three runs the last comes after the other draw.

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
        sharing = describe_sharing(reference, outputs, draws[0]) if seen["is_pure"] else None
        if sharing is not None:
            raise task_fault("executes", sharing, reference.stage)
        return outputs, other

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

    def _seeds(self, purpose: str, count: int) -> Sequence[int]:
        task_id, seed = self._request.task.task_id, self._request.seed
        return [derive_seed(seed, task_id, purpose, number) for number in range(count)]
