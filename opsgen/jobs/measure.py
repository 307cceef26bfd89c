"""The job that measures a task at full size on its device.

Two holds of the lease with the compile between them. Outside the holds
nothing of the task stays allocated on the device: state and inputs are
functions of seeds and are drawn again. `certifying` is what the first hold is
for, `baselines` the second; without checks the first only learns shapes.
"""

from __future__ import annotations

import contextlib
import types
from typing import Any

import torch

from opsgen.child.context import JobContext
from opsgen.device import (
    environment_id,
    free_storage,
    guard_device,
    mode_named,
    preload,
    read_environment,
    reset_compiler,
    settle,
)
from opsgen.errors import MeasureError
from opsgen.jobs.baselines import Baselines
from opsgen.jobs.certifying import Certifying
from opsgen.jobs.measuring import Measuring
from opsgen.records import Environment, MeasureEvidence, MeasureRequest
from opsgen.verify import (
    Inputs,
    Reference,
    TaskCodeError,
    in_other_order,
    task_module,
    tensors_of,
    unfilled,
    widen,
)


def run(request: MeasureRequest, context: JobContext) -> MeasureEvidence:
    """Return a task's evidence and baselines on the request's device.

    Raises:
        MeasureError: This machine cannot measure on the device.
        ValueError: The request names a mode that does not exist.
    """
    environment = _ready_environment(request)
    guard_device(request.device, context.lease)
    context.lease.reset_counters()
    seen: dict[str, Any] = {
        "environment_id": environment_id(environment),
        "is_advisory": torch.device(request.device).type == "cpu",
    }
    reset_compiler()
    try:
        with task_module(request.task.code) as module:
            _measure(Measuring(request, context, seen), module)
    except TaskCodeError as error:
        seen["failure"] = error.failure
    finally:
        reset_compiler()
        settle(request.device)
    return MeasureEvidence(**seen, lease=context.lease.usage())


def _ready_environment(request: MeasureRequest) -> Environment:
    for name in request.modes:
        mode_named(name)
    environment = read_environment(request.device)
    if environment.problems:
        raise MeasureError(environment.problems[0])
    return environment


def _measure(measuring: Measuring, module: types.ModuleType) -> None:
    lease, stage = measuring.context.lease, measuring.context.stage
    stage("build")
    certifying = Certifying(measuring)
    certifying.outline(module)
    _preload(measuring, certifying.smaller_code)
    with lease.hold():
        reference = Reference.build(module, measuring.device, measuring.weight_seeds[0])
        reference.state.redraw(measuring.weight_seeds[0])
        measuring.charge("build")
        stage("eager")
        reference.stage = "eager"
        inputs = reference.draw(measuring.draw_seeds[0])
        measuring.charge("inputs")
        tolerances = None
        if measuring.request.checks:
            tolerances = certifying.look(reference, inputs)
            certifying.compare_with_peaks(reference, inputs)
        reference.state.free()
        _give_back(measuring, [inputs])
    stage("compile")
    baselines = Baselines(measuring, reference)
    baselines.compile(inputs)
    with lease.hold():
        stage("time")
        reference.state.refill(measuring.weight_seeds[0])
        draws = [reference.draw(seed) for seed in measuring.draw_seeds]
        measuring.charge("inputs")
        baselines.compare(draws[0], tolerances)
        reference.stage = "time"
        baselines.time(draws)
        reference.state.free()
        _give_back(measuring, draws)


def _give_back(measuring: Measuring, draws: list[Inputs]) -> None:
    free_storage(leaf for draw in draws for leaf in tensors_of(draw))
    settle(measuring.device)
    measuring.charge("free")


def _preload(measuring: Measuring, smaller_code: str | None) -> None:
    """Load and compile the kernels of eager calls, at small sizes, launching none."""
    if not (measuring.is_cuda and measuring.request.preload and smaller_code):
        return
    with contextlib.suppress(TaskCodeError), task_module(smaller_code) as module:
        reference, inputs = unfilled(module, measuring.device)
        preload(lambda: reference.run(inputs))
        if measuring.request.checks:
            preload(lambda: reference.in_double().run(widen(inputs)))
        # Compiled code likes channels last, for which there are other kernels.
        preload(lambda: _run_in_other_order(reference, inputs))


def _run_in_other_order(reference: Reference, inputs: Inputs) -> None:
    reference, inputs = in_other_order(reference, inputs)
    reference.run(inputs)
