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
    Inputs,
    Leaves,
    Reference,
    TaskCodeError,
    check_pure,
    check_repeatable,
    comparison_margin,
    count_nonfinite,
    derive_seed,
    judge_answers,
    lazy_answers,
    outline,
    output_leaves,
    run_trials,
    specs_of,
    task_code,
    task_module,
    tensors_of,
)

MODES = ("eager", "compile")
NUM_TOLERANCE_SEEDS = 2
# Where float64 at full size is affordable, since foreign tasks have no smaller workload.
_MAX_DOUBLE_BYTES = {"cpu": 64 * 2**20, "cuda": 2 * 2**30}
_MAX_DOUBLE_FLOPS = {"cpu": 4 * 10**9, "cuda": 10**12}


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

    def measure(self) -> None:
        with self._context.lease.hold():
            self._context.stage("build")
            reference = Reference.build(self._module, self._device, self._weight_seeds[0])
            reference.state.redraw(self._weight_seeds[0])
            self._context.stage("eager")
            reference.stage = "eager"
            inputs = reference.draw(self._draw_seeds[0])
            tolerances = self._look_at_eager(reference, inputs)
            free_storage(tensors_of(inputs))
            reference.state.free()
            settle(self._device)
        calls: dict[str, Callable[..., Any]] = {"eager": reference.model}
        gated: GatedCompile | None = None
        if "compile" in self._request.modes:
            self._context.stage("compile")
            gated = calls["compile"] = self._compile(reference, inputs)
        with self._context.lease.hold():
            self._context.stage("time")
            reference.state.refill(self._weight_seeds[0])
            draws = [reference.draw(seed) for seed in self._draw_seeds]
            if gated is not None:
                self._compare(reference, draws[0], gated, tolerances)
            reference.stage = "time"
            self._time(calls, draws)
            reference.state.free()
            free_storage(leaf for draw in draws for leaf in tensors_of(draw))
            settle(self._device)

    def _look_at_eager(self, reference: Reference, inputs: Inputs) -> tuple[Tolerance, ...]:
        seen = self._seen
        peak = PeakMemory(self._device)
        outputs = reference.run(inputs)
        seen["peak_bytes"] = peak.read()
        seen["observed"] = specs_of(outputs)
        repeats = [self._seed("repeat", number) for number in range(NUM_REPEATS)]
        seen["is_repeatable"] = check_repeatable(reference, inputs, repeats)
        seen["is_pure"] = check_pure(reference, inputs)
        tolerances = self._measure_tolerances(reference)
        seen["tolerances"] = tolerances
        other = reference.run(reference.draw(self._draw_seeds[1]))
        seen["num_nonfinite"] = count_nonfinite(outputs) + count_nonfinite(other)
        answers = lazy_answers(reference, inputs, outputs, other, self._weight_seeds)
        seen["answers"] = judge_answers(outputs, tolerances, answers)
        return tolerances

    def _measure_tolerances(self, reference: Reference) -> tuple[Tolerance, ...]:
        """Return tolerances from a smaller workload, with the reduction term of the full size."""
        task = self._request.task
        num_terms = task.estimate.num_terms if task.estimate else 1
        if len(task.workloads) < 2:
            tolerances = self._trial_tolerances(
                reference, num_terms, is_assumed=not _affords_double(self._module, self._device)
            )
            reference.state.redraw(self._weight_seeds[0])
            return tolerances
        with task_module(assign_sizes(task.code, task.workloads[1].sizes)) as module:
            smaller = Reference.build(module, self._device, self._weight_seeds[0])
            smaller.stage = "tolerance"
            return self._trial_tolerances(smaller, num_terms, is_assumed=False)

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
        with task_code("compile"):
            actual: Leaves = output_leaves(gated(*inputs))
        # A compile in the first call would have been missed by the gate.
        self._seen["num_graphs"] = max(self._seen["num_graphs"], gated.num_compiles)
        self._seen["compiled"] = specs_of(actual)
        self._seen["compile_margin"] = comparison_margin(actual, expected, tolerances)

    def _time(self, calls: dict[str, Callable[..., Any]], draws: list[Inputs]) -> None:
        clock = Clock(self._device, self._context.lease)
        modes = {mode: calls[mode] for mode in self._request.modes}
        with task_code("time"), torch.no_grad():
            self._seen["timings"] = clock.measure_modes(modes, draws, self._request.max_s_per_mode)
        self._seen["launch_floor_ms"] = clock.measure_launch_floor()

    def _seed(self, purpose: str, number: int) -> int:
        task: Task = self._request.task
        return derive_seed(self._request.seed, task.task_id, purpose, number)


def _affords_double(module: types.ModuleType, device: str) -> bool:
    found = outline(module, count_flops=True)
    return (
        found is not None
        and found.size_bytes <= _MAX_DOUBLE_BYTES[device]
        and (found.flops or 0) <= _MAX_DOUBLE_FLOPS[device]
    )
