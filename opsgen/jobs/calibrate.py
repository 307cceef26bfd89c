"""The job that times eager code and asks nothing else of it: calibration lives on many points.

One hold of the lease, from building to the last timed call; nothing stays on
the device behind it.
"""

from __future__ import annotations

import types

import torch

from opsgen.child.context import JobContext
from opsgen.device import Clock, PeakMemory, free_storage, guard_device, settle
from opsgen.records import CalibrateEvidence, CalibrateRequest
from opsgen.verify import (
    Reference,
    TaskCodeError,
    derive_seed,
    guarded,
    task_module,
    tensors_of,
)


def run(request: CalibrateRequest, context: JobContext) -> CalibrateEvidence:
    """Return the eager time and the peak memory of the request's code."""
    context.stage("build")
    guard_device(request.device, context.lease)
    try:
        with task_module(request.code) as module:
            return _time(request, context, module)
    except TaskCodeError as error:
        return CalibrateEvidence(failure=error.failure)
    finally:
        settle(request.device)


def _time(
    request: CalibrateRequest, context: JobContext, module: types.ModuleType
) -> CalibrateEvidence:
    with context.lease.hold():
        reference = Reference.build(module, request.device, derive_seed(request.seed, "weights"))
        context.stage("eager")
        reference.stage = "eager"
        inputs = reference.draw(derive_seed(request.seed, "draw"))
        peak = PeakMemory(request.device)
        reference.run(inputs)
        peak_bytes = peak.read()
        context.stage("time")
        clock = Clock(request.device, context.lease)
        modes = {"eager": guarded(reference.model, "time")}
        with torch.no_grad():
            timing = clock.measure_modes(modes, [inputs], request.max_s)[0]
        evidence = CalibrateEvidence(
            eager_ms=timing.median_ms,
            num_samples=len(timing.samples_ms),
            input_bytes=sum(tensor.nbytes for tensor in tensors_of(inputs)),
            peak_bytes=peak_bytes,
        )
        reference.state.free()
        free_storage(tensors_of(inputs))
        del reference, clock, modes
        settle(request.device)
    return evidence
