"""What the probe's evidence says, one function per criterion of the protocol.

Each returns a witness of what fails, `Absent` where the evidence that it
needs is missing, or None where the criterion holds. Lazy answers of the tiny
twin decide where one of them passes: degeneracy grows with size, so the rest
of `nontrivial` is decided at full size.
"""

from __future__ import annotations

import math

from opsgen.admit.outcome import (
    Absent,
    Outcome,
    describe_dead,
    describe_difference,
    describe_tolerances,
    describe_trivial,
    describe_weak,
)
from opsgen.recipe import Recipe
from opsgen.records import ProbeEvidence, Task


def is_left_to_device(task: Task, probe: ProbeEvidence) -> bool:
    """Whether nothing of the task was small enough for a CPU, so that full size decides alone.

    Only foreign code can be like that: sampled tasks bring their twin.
    """
    nothing_ran = not probe.num_draws and probe.has_stable_inputs is None
    return task.graph_hash is None and nothing_ran and probe.failure is None


def uncontaminated(task: Task, probe: ProbeEvidence, recipe: Recipe) -> Outcome:
    """Hold when no benchmark task has the same trace or calls, nor a source nearer than chance.

    Without tables to compare with, or under `contamination = "label"`, there is nothing to hold.
    """
    overlap = probe.overlap
    if overlap is None or recipe.admit.contamination == "label":
        return None
    if overlap.same_trace is not None:
        return f"same trace as {overlap.same_trace}"
    if overlap.same_calls is not None:
        return f"same calls on inputs of the same kind as {overlap.same_calls}"
    if overlap.similarity > overlap.limit:
        return (
            f"source is {overlap.similarity:.3f} like {overlap.nearest} "
            f"({overlap.limit:.3f} by chance)"
        )
    return None


def ops_true(task: Task, probe: ProbeEvidence, recipe: Recipe) -> Outcome:
    """Hold when the calls that run on `meta` are the declared ops, in order."""
    return probe.ops_difference


def executes(task: Task, probe: ProbeEvidence, recipe: Recipe) -> Outcome:
    """Hold when `meta` gives the leaves that the graph predicts, where both are known."""
    if not (probe.predicted and probe.observed):
        return None
    return describe_difference(probe.observed, probe.predicted, "predicted")


def finite(task: Task, probe: ProbeEvidence, recipe: Recipe) -> Outcome:
    """Hold when no output element of any draw is NaN or infinite."""
    if probe.num_nonfinite:
        return f"{probe.num_nonfinite} NaN or infinite elements over {probe.num_draws} draws"
    if probe.num_draws or is_left_to_device(task, probe):
        return None
    return Absent(what="draws on the twin")


def deterministic(task: Task, probe: ProbeEvidence, recipe: Recipe) -> Outcome:
    """Hold when three runs on the twin are bitwise equal and change nothing."""
    if probe.is_repeatable is False:
        return "three runs on one input of the twin differ"
    if probe.is_pure is False:
        return "a call on the twin changes its inputs or state"
    if is_left_to_device(task, probe):
        return None
    if probe.is_repeatable is None or probe.is_pure is None:
        return Absent(what="repeated runs on the twin")
    return None


def judgeable(task: Task, probe: ProbeEvidence, recipe: Recipe) -> Outcome:
    """Hold when every output leaf of the twin has a tolerance that can tell answers apart."""
    if is_left_to_device(task, probe):
        return None
    if not probe.num_draws:
        return Absent(what="tolerances on the twin")
    num_leaves = len(probe.observed or probe.predicted) or max(1, len(probe.tolerances))
    return describe_tolerances(probe.tolerances, num_leaves)


def nontrivial(task: Task, probe: ProbeEvidence, recipe: Recipe) -> Outcome:
    """Hold when no lazy answer passes, nor at 1e-2 at full size if the recipe asks."""
    where = "at full size" if probe.is_full_size else "on the twin"
    best = describe_trivial(probe.answers, recipe.admit.twin_trivial_margin, where)
    if best is not None or not probe.is_full_size or recipe.admit.weak_at_1e_2 != "reject":
        return best
    return describe_weak(probe.answers)


def live(task: Task, probe: ProbeEvidence, recipe: Recipe) -> Outcome:
    """Hold when every change to a part takes the output out of the tolerance.

    Without `[probe] liveness` there is nothing to hold.
    """
    dead = describe_dead(probe.effects, recipe.admit.live_margin)
    if dead is not None or is_left_to_device(task, probe):
        return dead
    share, most = probe.unverified_fraction, recipe.admit.unverified_fraction
    if share is not None and share > most:
        return f"{share:.1%} of the work does not matter to the output ({most:.1%} allowed)"
    if recipe.probe.liveness and not probe.effects:
        return Absent(what="effects of deletions and freezes")
    return None


def stable_inputs(task: Task, probe: ProbeEvidence, recipe: Recipe) -> Outcome:
    """Hold when draws share one structure and floating inputs vary."""
    longest = recipe.admit.max_draw_s
    if probe.draw_s is not None and probe.draw_s > longest:
        return f"building and drawing inputs takes {probe.draw_s:.3g} s ({longest:g} allowed)"
    if is_left_to_device(task, probe):
        return None
    if probe.has_stable_inputs is None:
        return Absent(what="the structure of three draws")
    if probe.has_stable_inputs:
        return None
    return "three draws differ in structure, or a floating input never varies"


def memory(task: Task, probe: ProbeEvidence, recipe: Recipe) -> Outcome:
    """Hold when the predicted peak and every known tensor are below the caps."""
    limit = recipe.admit.max_tensor_elements
    known = [*probe.observed]
    if task.workloads:
        known += [*task.workloads[0].inputs, *task.workloads[0].outputs]
    sizes = [math.prod(spec.shape) for spec in known] + [probe.largest_elements or 0]
    if max(sizes) > limit:
        return f"a tensor has {max(sizes)} elements ({limit} allowed)"
    peak_bytes = task.estimate.peak_bytes if task.estimate else probe.peak_bytes
    if peak_bytes is not None and peak_bytes / 2**30 > recipe.admit.memory_gib:
        return f"predicted peak {peak_bytes / 2**30:.4g} GiB ({recipe.admit.memory_gib:g} allowed)"
    return None
