"""The job that shows what a CPU can of a task: shapes on `meta`, the rest on its tiny twin."""

from __future__ import annotations

from typing import Any

from opsgen.child.context import JobContext
from opsgen.jobs.looking import Look, time_drawing
from opsgen.ops.user import load_inherited_ops
from opsgen.records import ProbeEvidence, ProbeRequest
from opsgen.source import assign_sizes, check_source
from opsgen.source.contamination import find_overlap
from opsgen.verify import (
    Rehearsal,
    TaskCodeError,
    Twin,
    check_axes,
    describe_calls,
    find_twins,
    full_size,
    proportional_twins,
    rehearse,
    task_module,
)

MAX_LOOKS = 3
"""How many smaller workloads of foreign code are looked at before the last one's word counts."""
# The full size is its own twin where that is hardly dearer; it is run with fewer draws, where
# nothing smaller runs, as long as a CPU gets through. In bytes and floating-point operations.
_TINY = (2**20, 10**7)
_SMALL = (64 * 2**20, 4 * 10**9)
_AGAIN = (16 * 2**20, 5 * 10**8)
_LARGE = (256 * 2**20, 40 * 10**9)
_DRAWABLE = (2**30, float("inf"))
# A change this close to the tolerance may be a degenerate twin's doing: one element in a group.
_DOUBTFUL_MARGIN = 2.0
_DOUBTFUL_FRACTION = 0.05


def run(request: ProbeRequest, context: JobContext) -> ProbeEvidence:
    """Return what can be seen of a task without its device.

    Source that breaks a rule is not run. Shapes, calls and memory are taken on `meta` at the
    default workload. Everything else needs numbers and comes from the twin: a sampled task's
    last workload, a foreign task's smallest cut that shows nothing doubtful. Foreign code that
    is large and cannot be cut is left to its device: its evidence ends after the shapes.
    """
    context.stage("probe")
    task = request.task
    if request.trace_only:
        return _trace(task.code)
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


def _trace(code: str) -> ProbeEvidence:
    try:
        with task_module(code) as module:
            found = rehearse(module, count_flops=False)
    except TaskCodeError as error:
        return ProbeEvidence(failure=error.failure)
    return ProbeEvidence(trace=found.trace if found else None)


def _note(request: ProbeRequest, found: Rehearsal | None, seen: dict[str, Any]) -> None:
    """Keep what `meta` showed of the default workload."""
    code = request.task.code
    if found is not None and found.outline is not None:
        seen["observed"] = found.outline.outputs
        seen["peak_bytes"] = found.outline.peak_bytes
        seen["largest_elements"] = found.outline.largest_elements
        seen["kept_fraction"] = found.outline.kept_fraction
    if found is not None and found.recording is not None:
        seen["trace"] = found.trace
        seen["ops_difference"] = describe_calls(request.task, found.recording)
        seen["axis_ambiguity"] = check_axes(code)
    seen["overlap"] = find_overlap(code, seen.get("trace"), request.benchmarks)


def _look_at_foreign(request: ProbeRequest, context: JobContext, seen: dict[str, Any]) -> None:
    full = full_size(request.task.code)
    _note(request, full.rehearsal, seen)
    context.stage("probe")
    if full.fits(*_DRAWABLE):
        with task_module(full.code) as module:
            seen["draw_s"] = time_drawing(module, request.seed)
        context.stage("probe")
    if full.fits(*_TINY):
        _look(request, full.code, seen)
        seen["is_full_size"] = True
        return
    found = _look_at_cuts(request, context)
    context.stage("probe")
    if found is not None and not (_is_doubtful(found) and full.fits(*_SMALL)):
        seen.update(found)
        seen["is_full_size"] = False
        if full.fits(*_SMALL) and "answers" in found:
            with task_module(full.code) as module:
                Look(request, module, seen, is_brief=True).answer(found["tolerances"])
    elif full.fits(*_LARGE):
        is_small = full.fits(*_SMALL)
        _look(request, full.code, seen, is_brief=True, operates=is_small)
        seen["is_full_size"] = True


def _look_at_cuts(request: ProbeRequest, context: JobContext) -> dict[str, Any] | None:
    """Return what the smallest cut without doubt shows, or the last of some; None without any.

    Cuts to one level come first. Where all that run leave doubt, those that keep the
    proportions of sizes are asked.
    """
    found: dict[str, Any] | None = None
    for twins in (find_twins(request.task.code), proportional_twins(request.task.code)):
        num_looks, level = 0, 0
        for twin in twins:
            # After a doubtful one only a workload twice as large tells more.
            bounds = _SMALL if found is None else _AGAIN
            if num_looks == MAX_LOOKS or twin.level < 2 * level or not twin.fits(*bounds):
                continue
            context.stage("probe")
            again = _look_again(request, twin, is_brief=not twin.fits(*_TINY))
            if again is None:
                continue
            if not _is_doubtful(again):
                return again
            found, num_looks, level = again, num_looks + 1, twin.level
    return found


def _look_again(request: ProbeRequest, twin: Twin, *, is_brief: bool) -> dict[str, Any] | None:
    """Return what a cut shows; None where the code does not run on it."""
    seen: dict[str, Any] = {}
    try:
        _look(request, twin.code, seen, is_brief=is_brief)
    except TaskCodeError as error:
        # What the code raises may be the cut's doing, what we object to is not.
        if error.failure.kind != "TaskError":
            return None
        seen["failure"] = error.failure
    return seen


def _is_doubtful(seen: dict[str, Any]) -> bool:
    """Whether a larger workload might say otherwise."""
    if seen.get("failure") is not None:
        return True
    if not (seen["is_repeatable"] and seen["is_pure"]):
        return False
    return (
        seen["num_nonfinite"] > 0
        or any(not tolerance.value < 1 for tolerance in seen["tolerances"])
        or any(not effect.margin > _DOUBTFUL_MARGIN for effect in seen.get("effects", ()))
        or any(not answer.margin > _DOUBTFUL_MARGIN for answer in seen.get("answers", ()))
        or (seen.get("unverified_fraction") or 0.0) > _DOUBTFUL_FRACTION
    )


def _look(
    request: ProbeRequest,
    code: str,
    seen: dict[str, Any],
    *,
    is_brief: bool = False,
    operates: bool = True,
) -> None:
    with task_module(code) as module:
        Look(request, module, seen, is_brief=is_brief).look(operates=operates)
