"""What a device shows of a task at full size beside its times: the evidence of its criteria."""

from __future__ import annotations

import contextlib
import types

import torch

from opsgen.device import TF32, PeakMemory, measure_bandwidth, measure_rate
from opsgen.jobs.measuring import Measuring
from opsgen.records import SpeedOfLight, Tolerance
from opsgen.source import assign_sizes
from opsgen.verify import (
    NUM_REPEATS,
    CallWatch,
    ForeignWork,
    Inputs,
    Leaves,
    Outline,
    Reference,
    Surgery,
    TaskCodeError,
    call_effects,
    check_repeatable,
    check_stable_inputs,
    count_nonfinite,
    count_terms,
    describe_sharing,
    input_effects,
    judge_answers,
    lazy_answers,
    outline,
    run_trials,
    specs_of,
    state_effects,
    task_fault,
    task_module,
    tensors_of,
    validate_draws,
    validate_outputs,
)

NUM_TOLERANCE_SEEDS = 2
MAX_STATE_EFFECTS = 32
"""How many parts of the state are redrawn where a foreign task has no twin that shows it."""
MAX_OPERATED_BYTES = 2 * 2**30
"""Peak memory of a foreign task without a twin up to which its calls are deleted and frozen."""


class Certifying:
    """Looks at a task at full size.

    Args:
        measuring: The measurement.
    """

    def __init__(self, measuring: Measuring) -> None:
        self._on = measuring
        task = measuring.task
        kind = torch.device(measuring.device).type
        self._outline: Outline | None = None
        self._foreign = ForeignWork.of(task.code, kind) if task.graph is None else None

    def outline(self, module: types.ModuleType) -> None:
        """Find out on `meta` how much work the task is, before a device is held for it."""
        if self._on.request.checks:
            with contextlib.suppress(TaskCodeError):  # The device has the last word.
                self._outline = outline(module, count_flops=True)

    def compare_with_peaks(self, reference: Reference, inputs: Inputs) -> None:
        """Note the least time that this device needs for the work."""
        found, device = self._outline, self._on.device
        if found is None or found.flops is None:
            return
        bandwidth_gb_s = measure_bandwidth(device)
        rate_tflop_s = None
        time_ms = found.size_bytes / bandwidth_gb_s / 1e6
        if found.flops:
            rate_tflop_s = measure_rate(device, self._arithmetic(reference, inputs))
            time_ms = max(time_ms, found.flops / rate_tflop_s / 1e9)
        self._on.seen["speed_of_light"] = SpeedOfLight(
            moved_bytes=found.size_bytes,
            flops=found.flops,
            bandwidth_gb_s=bandwidth_gb_s,
            rate_tflop_s=rate_tflop_s,
            time_ms=time_ms,
        )
        self._on.charge("peaks")

    def _arithmetic(self, reference: Reference, inputs: Inputs) -> str:
        """Return the type of the task's products: the coarsest it is given to compute with."""
        given = [*reference.model.parameters(), *tensors_of(inputs)]
        dtypes = [
            each.dtype.to_real()
            for each in given
            if each.dtype.is_floating_point or each.dtype.is_complex
        ]
        dtype = max(dtypes, key=lambda each: torch.finfo(each).eps, default=torch.float32)
        # As torch ships, on a GPU convolutions use it and matrix products do not.
        is_tf32 = self._on.is_cuda and torch.backends.cudnn.allow_tf32
        if dtype == torch.float32 and is_tf32 and "conv" in self._on.task.code.lower():
            return TF32
        return str(dtype).removeprefix("torch.")

    @property
    def smaller_code(self) -> str | None:
        """The task's code at sizes that float64 can be afforded at; None without such."""
        task = self._on.task
        if self._foreign is not None:
            return self._foreign.double_code
        return assign_sizes(task.code, task.workloads[1].sizes)

    def look(self, reference: Reference, inputs: Inputs) -> tuple[Tolerance, ...]:
        """Note the evidence of all criteria; return the tolerances found."""
        seen = self._on.seen
        outputs, other_inputs, other = self._look_at_repeats(reference, inputs)
        seen["num_nonfinite"] = count_nonfinite(outputs) + count_nonfinite(other)
        self._on.charge("finite")
        tolerances = self._measure_tolerances(reference, inputs, outputs)
        seen["tolerances"] = tolerances
        self._on.charge("tolerance")
        if self._foreign is not None:
            self._look_at_parts(self._foreign, reference, (inputs, other_inputs), tolerances)
            self._on.charge("parts")
        answers = lazy_answers(reference, inputs, outputs, other, self._on.weight_seeds)
        seen["answers"] = judge_answers(outputs, tolerances, answers)
        self._on.charge("answers")
        return tolerances

    def _look_at_repeats(
        self, reference: Reference, inputs: Inputs
    ) -> tuple[Leaves, Inputs, Leaves]:
        """Return outputs for `inputs` and another draw, which runs between the repeats."""
        seen, charge = self._on.seen, self._on.charge
        first, *repeats = [self._on.seed("repeat", number) for number in range(NUM_REPEATS)]
        watch = CallWatch(reference, inputs)
        charge("watch")
        peak = PeakMemory(self._on.device)
        outputs = reference.run(inputs, first)
        seen["peak_bytes"] = peak.read()
        seen["observed"] = specs_of(outputs)
        charge("first_call")
        other_inputs = reference.draw(self._on.draw_seeds[1])
        validate_draws((inputs, other_inputs), reference.stage)
        other = reference.run(other_inputs, first)
        validate_outputs(outputs, other, reference.stage)
        charge("other_draw")
        seen["is_repeatable"] = check_repeatable(reference, inputs, outputs, repeats)
        charge("repeats")
        seen["is_pure"] = watch.check_pure()
        sharing = describe_sharing(reference, outputs, inputs) if seen["is_pure"] else None
        if sharing is not None:
            raise task_fault("executes", sharing, reference.stage)
        charge("watch")
        return outputs, other_inputs, other

    def _look_at_parts(
        self,
        foreign: ForeignWork,
        reference: Reference,
        pair: tuple[Inputs, Inputs],
        tolerances: tuple[Tolerance, ...],
    ) -> None:
        """Record what a twin would have shown: whether inputs vary and parts matter."""
        seen = self._on.seen
        third = reference.draw(self._on.seed("draw", 2))
        validate_draws((pair[0], third), reference.stage)
        seen["has_stable_inputs"] = check_stable_inputs((*pair, third))
        effects = input_effects(reference, [pair], tolerances)
        if not foreign.has_twin and len(reference.state.names) <= MAX_STATE_EFFECTS:
            effects += state_effects(reference, pair[0], tolerances, self._on.weight_seeds)
        given = (*tensors_of(pair[0]), *reference.state.tensors)
        size_bytes = max(seen["peak_bytes"] or 0, sum(tensor.nbytes for tensor in given))
        if not foreign.has_twin and size_bytes <= MAX_OPERATED_BYTES:
            surgery = Surgery(reference, [*pair], tolerances, self._on.weight_seeds)
            effects = call_effects(surgery) + effects
        seen["effects"] = effects

    def _measure_tolerances(
        self, reference: Reference, inputs: Inputs, outputs: Leaves
    ) -> tuple[Tolerance, ...]:
        """Return tolerances from a smaller workload, with the reduction term of the full size."""
        task, code = self._on.task, self.smaller_code
        if self._foreign is not None:
            num_terms = count_terms(reference, inputs)
        else:
            num_terms = task.estimate.num_terms if task.estimate else 1
        if code is not None and code != task.code:
            try:
                with task_module(code) as module:
                    found = self._smaller_tolerances(module, num_terms)
            except TaskCodeError:
                if self._foreign is None:
                    raise
            else:
                if len(found) == len(outputs):
                    return found
        tolerances = self._trial_tolerances(reference, num_terms, is_assumed=code != task.code)
        reference.state.redraw(self._on.weight_seeds[0])
        return tolerances

    def _smaller_tolerances(
        self, module: types.ModuleType, num_terms: int
    ) -> tuple[Tolerance, ...]:
        smaller = Reference.build(module, self._on.device, self._on.weight_seeds[0])
        smaller.stage = "tolerance"
        return self._trial_tolerances(smaller, num_terms, is_assumed=False)

    def _trial_tolerances(
        self, reference: Reference, num_terms: int, *, is_assumed: bool
    ) -> tuple[Tolerance, ...]:
        seeds = self._on.weight_seeds[:NUM_TOLERANCE_SEEDS]
        trials = run_trials(
            reference,
            seeds if reference.state.names and not is_assumed else seeds[:1],
            self._on.draw_seeds if not is_assumed else self._on.draw_seeds[:1],
            num_terms=num_terms,
            is_assumed=is_assumed,
        )
        return trials.tolerances
