"""What the timing device's evidence says, one function per criterion of the protocol.

Each returns a witness of what fails, `Absent` where the evidence that it
needs is missing, or None where the criterion holds. Comparisons are written
so that a NaN fails. Advisory timings decide like any others.
"""

from __future__ import annotations

from opsgen.admit.outcome import (
    Absent,
    Outcome,
    describe_dead,
    describe_difference,
    describe_tolerances,
    describe_weak,
    margin_of,
)
from opsgen.recipe import Recipe
from opsgen.records import MeasureEvidence, Task, Timing


def executes(task: Task, measure: MeasureEvidence, recipe: Recipe) -> Outcome:
    """Hold when eager and one compiled graph give the same leaves and values."""
    predicted = task.workloads[0].outputs if task.workloads else ()
    if measure.observed and predicted:
        difference = describe_difference(measure.observed, predicted, "predicted")
        if difference is not None:
            return difference
    if not measure.observed or measure.num_graphs is None:
        return Absent(what="a compiled run" if measure.observed else "an eager run")
    if measure.num_graphs != 1:
        return f"torch.compile captured {measure.num_graphs} graphs (1 wanted)"
    difference = describe_difference(measure.compiled, measure.observed, "in eager")
    if difference is not None:
        return f"compiled: {difference}"
    if measure.compile_margin is None:
        return Absent(what="a comparison of compiled with eager")
    if not measure.compile_margin <= 1.0:
        return f"compiled differs from eager by {measure.compile_margin:.3g} x the tolerance"
    return None


def finite(task: Task, measure: MeasureEvidence, recipe: Recipe) -> Outcome:
    """Hold when no output element at full size is NaN or infinite."""
    if measure.num_nonfinite is None:
        return Absent(what="outputs at full size")
    if measure.num_nonfinite:
        return f"{measure.num_nonfinite} NaN or infinite elements at full size"
    return None


def deterministic(task: Task, measure: MeasureEvidence, recipe: Recipe) -> Outcome:
    """Hold when three runs at full size are bitwise equal and change nothing."""
    if measure.is_repeatable is False:
        return "three eager runs on one input differ"
    if measure.is_pure is False:
        return "a call changes its inputs or state"
    if measure.is_repeatable is None or measure.is_pure is None:
        return Absent(what="repeated runs at full size")
    return None


def judgeable(task: Task, measure: MeasureEvidence, recipe: Recipe) -> Outcome:
    """Hold when every output leaf has a released tolerance that can tell answers apart."""
    if measure.failure is not None:
        return None
    return describe_tolerances(measure.tolerances, max(1, len(measure.observed)))


def nontrivial(task: Task, measure: MeasureEvidence, recipe: Recipe) -> Outcome:
    """Hold when every lazy answer is clearly wrong, and at 1e-2 too if the recipe asks."""
    if not measure.answers:
        return Absent(what="lazy answers at full size")
    wanted = recipe.admit.trivial_margin
    best = min(measure.answers, key=margin_of)
    if not best.margin >= wanted:
        return f"{best.name} passes at {best.margin:.3g} x the tolerance ({wanted:g} wanted)"
    return describe_weak(measure.answers) if recipe.admit.weak_at_1e_2 == "reject" else None


def live(task: Task, measure: MeasureEvidence, recipe: Recipe) -> Outcome:
    """Hold when every part of foreign code that was changed at full size matters."""
    dead = describe_dead(measure.effects, recipe.admit.live_margin)
    if dead is not None:
        return f"{dead} at full size"
    if task.graph_hash is None and recipe.probe.liveness and not measure.effects:
        return Absent(what="effects of redrawn inputs at full size")
    return None


def stable_inputs(task: Task, measure: MeasureEvidence, recipe: Recipe) -> Outcome:
    """Hold when draws of foreign code at full size share one structure and vary."""
    if measure.has_stable_inputs is False:
        return "three draws at full size differ in structure, or a floating input never varies"
    if task.graph_hash is None and measure.has_stable_inputs is None:
        return Absent(what="the structure of three draws at full size")
    return None


def runtime_window(task: Task, measure: MeasureEvidence, recipe: Recipe) -> Outcome:
    """Hold when eager's median is in the window and well above the launch floor."""
    eager = timing_of(measure, "eager")
    if eager is None or measure.launch_floor_ms is None:
        return Absent(what="an eager timing" if eager is None else "a launch floor")
    low, high = recipe.admit.runtime_window_ms
    if not low <= eager.median_ms <= high:
        return f"eager takes {eager.median_ms:.4g} ms ({low:g} to {high:g} wanted)"
    wanted = recipe.admit.launch_floor_ratio
    if not eager.median_ms >= wanted * measure.launch_floor_ms:
        ratio = eager.median_ms / measure.launch_floor_ms
        return (
            f"eager takes {eager.median_ms:.4g} ms, {ratio:.3g} x the launch floor "
            f"({wanted:g} wanted)"
        )
    return None


def memory(task: Task, measure: MeasureEvidence, recipe: Recipe) -> Outcome:
    """Hold when the measured peak is below the cap.

    A task that the cap allows and the device cannot hold never gets here: it
    arrives as the fault `gpu_oom`, which defers.
    """
    if measure.peak_bytes is None:
        return None
    peak_gib = measure.peak_bytes / 2**30
    if peak_gib > recipe.admit.memory_gib:
        return f"peak {peak_gib:.4g} GiB ({recipe.admit.memory_gib:g} allowed)"
    return None


def headroom(task: Task, measure: MeasureEvidence, recipe: Recipe) -> Outcome:
    """Hold when compiled code leaves a kernel something to gain on what the device can do."""
    wanted = recipe.admit.headroom
    if not wanted:
        return None
    compiled, least = timing_of(measure, "compile"), measure.speed_of_light
    if compiled is None or least is None:
        return Absent(what="a compiled timing" if compiled is None else "a least time")
    ratio = compiled.median_ms / least.time_ms
    if not ratio >= wanted:
        return (
            f"compiled code takes {compiled.median_ms:.4g} ms, {ratio:.3g} x the "
            f"{least.time_ms:.4g} ms that the device needs at best ({wanted:g} wanted)"
        )
    return None


def timing_of(measure: MeasureEvidence, mode: str) -> Timing | None:
    """Return the timing of a mode, if there is one."""
    return next((timing for timing in measure.timings if timing.mode == mode), None)
