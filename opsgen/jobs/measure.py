"""The job that measures a task at full size on its device.

Two holds of the lease with the compile between them. Outside the holds
nothing of the task stays allocated on the device: state and inputs are
functions of seeds and are drawn again.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import torch

from opsgen.child.context import JobContext
from opsgen.device import (
    Clock,
    CompileFacts,
    GatedCompile,
    PeakMemory,
    compiler_faults,
    environment_id,
    free_storage,
    read_environment,
    reset_compiler,
    settle,
)
from opsgen.errors import MeasureError
from opsgen.records import Environment, MeasureEvidence, MeasureRequest, Task, Tolerance
from opsgen.source import assign_sizes
from opsgen.verify import (
    NUM_REPEATS,
    CallWatch,
    ForeignWork,
    Inputs,
    Leaves,
    Reference,
    Surgery,
    TaskCodeError,
    call_effects,
    check_repeatable,
    check_stable_inputs,
    comparison_margin,
    count_nonfinite,
    count_terms,
    derive_seed,
    describe_sharing,
    guarded,
    input_effects,
    judge_answers,
    lazy_answers,
    output_leaves,
    run_trials,
    specs_of,
    state_effects,
    task_code,
    task_fault,
    task_module,
    tensors_of,
    validate_draws,
    validate_outputs,
)

MODES = ("eager", "compile")
NUM_TOLERANCE_SEEDS = 2
MAX_STATE_EFFECTS = 32
"""How many parts of the state are redrawn where a foreign task has no twin that shows it."""
MAX_OPERATED_BYTES = 2 * 2**30
"""Peak memory of a foreign task without a twin up to which its calls are deleted and frozen."""


def run(request: MeasureRequest, context: JobContext) -> MeasureEvidence:
    """Return a task's evidence and baselines on the request's device.

    Raises:
        MeasureError: This machine cannot measure on the device.
        ValueError: The request names a mode that does not exist.
    """
    environment = _ready_environment(request)
    context.lease.reset_counters()
    seen: dict[str, Any] = {
        "environment_id": environment_id(environment),
        "is_advisory": torch.device(request.device).type == "cpu",
    }
    reset_compiler()
    try:
        with task_module(request.task.code) as module:
            _Measurement(request, context, module, seen).measure()
    except TaskCodeError as error:
        seen["failure"] = error.failure
    finally:
        reset_compiler()
        settle(request.device)
    return MeasureEvidence(**seen, lease=context.lease.usage())


def _ready_environment(request: MeasureRequest) -> Environment:
    unknown = [mode for mode in request.modes if mode not in MODES]
    if unknown:
        raise ValueError(f"no mode {unknown[0]!r}; there are {', '.join(MODES)}")
    environment = read_environment(request.device)
    if environment.problems:
        raise MeasureError(environment.problems[0])
    return environment


class _Measurement:
    """One task while it is measured; findings go into `seen` as they come."""

    def __init__(
        self,
        request: MeasureRequest,
        context: JobContext,
        module: types.ModuleType,
        seen: dict[str, Any],
    ) -> None:
        self._request = request
        self._context = context
        self._module = module
        self._seen = seen
        self._device = request.device
        self._weight_seeds = (self._seed("weights", 0), self._seed("weights", 1))
        self._draw_seeds = (self._seed("draw", 0), self._seed("draw", 1))
        self._foreign: ForeignWork | None = None

    def measure(self) -> None:
        task = self._request.task
        if task.graph is None:
            self._context.stage("build")
            self._foreign = ForeignWork.of(task.code, torch.device(self._device).type)
        with self._context.lease.hold():
            self._context.stage("build")
            reference = Reference.build(self._module, self._device, self._weight_seeds[0])
            reference.state.redraw(self._weight_seeds[0])
            self._charge("build")
            self._context.stage("eager")
            reference.stage = "eager"
            inputs = reference.draw(self._draw_seeds[0])
            self._charge("inputs")
            tolerances = self._look_at_eager(reference, inputs)
            free_storage(tensors_of(inputs))
            reference.state.free()
            settle(self._device)
            self._charge("free")
        calls: dict[str, Callable[..., Any]] = {"eager": reference.model}
        gated: GatedCompile | None = None
        if "compile" in self._request.modes:
            self._context.stage("compile")
            gated = calls["compile"] = self._compile(reference, inputs)
        with self._context.lease.hold():
            self._context.stage("time")
            reference.state.refill(self._weight_seeds[0])
            draws = [reference.draw(seed) for seed in self._draw_seeds]
            self._charge("inputs")
            if gated is not None:
                self._compare(reference, draws[0], gated, tolerances)
            reference.stage = "time"
            self._time(calls, draws)
            reference.state.free()
            free_storage(leaf for draw in draws for leaf in tensors_of(draw))
            settle(self._device)
            self._charge("free")

    def _look_at_eager(self, reference: Reference, inputs: Inputs) -> tuple[Tolerance, ...]:
        seen = self._seen
        outputs, other_inputs, other = self._look_at_repeats(reference, inputs)
        seen["num_nonfinite"] = count_nonfinite(outputs) + count_nonfinite(other)
        self._charge("finite")
        tolerances = self._measure_tolerances(reference, inputs, outputs)
        seen["tolerances"] = tolerances
        self._charge("tolerance")
        if self._foreign is not None:
            self._look_at_parts(reference, (inputs, other_inputs), tolerances)
            self._charge("parts")
        answers = lazy_answers(reference, inputs, outputs, other, self._weight_seeds)
        seen["answers"] = judge_answers(outputs, tolerances, answers)
        self._charge("answers")
        return tolerances

    def _look_at_repeats(
        self, reference: Reference, inputs: Inputs
    ) -> tuple[Leaves, Inputs, Leaves]:
        """Return outputs for `inputs` and another draw, which runs between the repeats."""
        seen = self._seen
        first, *repeats = [self._seed("repeat", number) for number in range(NUM_REPEATS)]
        watch = CallWatch(reference, inputs)
        self._charge("watch")
        peak = PeakMemory(self._device)
        outputs = reference.run(inputs, first)
        seen["peak_bytes"] = peak.read()
        seen["observed"] = specs_of(outputs)
        self._charge("first_call")
        other_inputs = reference.draw(self._draw_seeds[1])
        validate_draws((inputs, other_inputs), reference.stage)
        other = reference.run(other_inputs, first)
        validate_outputs(outputs, other, reference.stage)
        self._charge("other_draw")
        seen["is_repeatable"] = check_repeatable(reference, inputs, outputs, repeats)
        self._charge("repeats")
        seen["is_pure"] = watch.check_pure()
        self._charge("watch")
        sharing = describe_sharing(reference, outputs, inputs) if seen["is_pure"] else None
        if sharing is not None:
            raise task_fault("executes", sharing, reference.stage)
        return outputs, other_inputs, other

    def _look_at_parts(
        self, reference: Reference, pair: tuple[Inputs, Inputs], tolerances: tuple[Tolerance, ...]
    ) -> None:
        """Record what a twin would have shown: whether inputs vary and parts matter."""
        assert self._foreign is not None
        third = reference.draw(self._seed("draw", 2))
        validate_draws((pair[0], third), reference.stage)
        self._seen["has_stable_inputs"] = check_stable_inputs((*pair, third))
        effects = input_effects(reference, [pair], tolerances)
        if not self._foreign.has_twin and len(reference.state.names) <= MAX_STATE_EFFECTS:
            effects += state_effects(reference, pair[0], tolerances, self._weight_seeds)
        given = (*tensors_of(pair[0]), *reference.state.tensors)
        size_bytes = max(self._seen["peak_bytes"] or 0, sum(tensor.nbytes for tensor in given))
        if not self._foreign.has_twin and size_bytes <= MAX_OPERATED_BYTES:
            surgery = Surgery(reference, [*pair], tolerances, self._weight_seeds)
            effects = call_effects(surgery) + effects
        self._seen["effects"] = effects

    def _measure_tolerances(
        self, reference: Reference, inputs: Inputs, outputs: Leaves
    ) -> tuple[Tolerance, ...]:
        """Return tolerances from a smaller workload, with the reduction term of the full size."""
        task = self._request.task
        if self._foreign is not None:
            num_terms = count_terms(reference, inputs)
            code = self._foreign.double_code
        else:
            num_terms = task.estimate.num_terms if task.estimate else 1
            code = assign_sizes(task.code, task.workloads[1].sizes)
        if code is not None and code != task.code:
            try:
                with task_module(code) as module:
                    smaller = Reference.build(module, self._device, self._weight_seeds[0])
                    smaller.stage = "tolerance"
                    found = self._trial_tolerances(smaller, num_terms, is_assumed=False)
            except TaskCodeError:
                if self._foreign is None:
                    raise
            else:
                if len(found) == len(outputs):
                    return found
        tolerances = self._trial_tolerances(reference, num_terms, is_assumed=code != task.code)
        reference.state.redraw(self._weight_seeds[0])
        return tolerances

    def _trial_tolerances(
        self, reference: Reference, num_terms: int, *, is_assumed: bool
    ) -> tuple[Tolerance, ...]:
        seeds = self._weight_seeds[:NUM_TOLERANCE_SEEDS]
        trials = run_trials(
            reference,
            seeds if reference.state.names and not is_assumed else seeds[:1],
            self._draw_seeds if not is_assumed else self._draw_seeds[:1],
            num_terms=num_terms,
            is_assumed=is_assumed,
        )
        return trials.tolerances

    def _compile(self, reference: Reference, inputs: Inputs) -> GatedCompile:
        gated = GatedCompile(reference.model)
        with task_code("compile"):
            facts: CompileFacts = gated.compile(inputs)
        self._seen["compile_s"] = facts.compile_s
        self._seen["num_graphs"] = facts.num_graphs
        self._seen["num_generated_kernels"] = facts.num_generated_kernels
        return gated

    def _compare(
        self,
        reference: Reference,
        inputs: Inputs,
        gated: GatedCompile,
        tolerances: tuple[Tolerance, ...],
    ) -> None:
        expected = reference.run(inputs)
        self._charge("expected")
        with task_code("compile"), compiler_faults():  # some kernels are compiled when called
            actual: Leaves = output_leaves(gated(*inputs))
        self._charge("first_compiled_call")
        # A compile in the first call would have been missed by the gate.
        self._seen["num_graphs"] = max(self._seen["num_graphs"], gated.num_compiles)
        self._seen["compiled"] = specs_of(actual)
        self._seen["compile_margin"] = comparison_margin(actual, expected, tolerances)
        self._charge("compare")

    def _time(self, calls: dict[str, Callable[..., Any]], draws: list[Inputs]) -> None:
        clock = Clock(self._device, self._context.lease)
        modes = {mode: guarded(calls[mode], "time") for mode in self._request.modes}
        with torch.no_grad():
            self._seen["timings"] = clock.measure_modes(modes, draws, self._request.max_s_per_mode)
        self._charge("time")
        self._seen["launch_floor_ms"] = clock.measure_launch_floor()
        self._charge("launch_floor")

    def _charge(self, part: str) -> None:
        """Charge the device's time since the last charge to `part`."""
        if torch.device(self._device).type == "cuda":
            torch.cuda.synchronize()
        self._context.lease.charge(part)

    def _seed(self, purpose: str, number: int) -> int:
        task: Task = self._request.task
        return derive_seed(self._request.seed, task.task_id, purpose, number)
