"""Tolerances from the error of the reference itself against float64."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from opsgen.records import Tolerance
from opsgen.verify.checks import validate_outputs
from opsgen.verify.comparison import outlier_quantile, scaled_error
from opsgen.verify.leaves import Inputs, Leaves, count_nonfinite, is_exact, real_view
from opsgen.verify.reference import Reference, widen, working_eps
from opsgen.verify.running import TaskCodeError

ERROR_FACTOR = 8.0
NUM_ULP = 4.0
# What is taken where no float64 reference can be had: about what a long reduction loses.
_ASSUMED = {
    torch.float64: 1e-10,
    torch.float32: 1e-4,
    torch.float16: 1e-2,
    torch.bfloat16: 5e-2,
}


@dataclass(frozen=True, slots=True)
class Trials:
    """What runs over several weight seeds and input draws showed.

    Attributes:
        num_draws: Runs made.
        num_nonfinite: NaN or infinite output elements over all of them.
        tolerances: One per output leaf.
    """

    num_draws: int
    num_nonfinite: int
    tolerances: tuple[Tolerance, ...]


def run_trials(
    reference: Reference,
    weight_seeds: Sequence[int],
    draw_seeds: Sequence[int],
    *,
    num_terms: int,
    is_assumed: bool = False,
) -> Trials:
    """Run every weight seed with every draw, in the working dtype and in float64.

    Leaves the state of the last weight seed behind.

    Args:
        reference: What to run.
        weight_seeds: Seeds of parameters and buffers, at least one.
        draw_seeds: Seeds of inputs, at least one.
        num_terms: Reduction length behind the rounding floor.
        is_assumed: Do without float64 and take the assumed tolerances.

    Raises:
        TaskCodeError: A run in the working dtype raised, or its structure depends on the draw.
            One in float64 makes the tolerances assumed instead.
    """
    errors: list[list[Tensor]] = []
    outputs: Leaves = ()
    inputs: Inputs = ()
    num_nonfinite = 0
    first: Leaves | None = None
    for weight_seed in weight_seeds:
        reference.state.redraw(weight_seed)
        wide = None if is_assumed else _double_or_none(reference)
        for draw_seed in draw_seeds:
            inputs = reference.draw(draw_seed)
            outputs = reference.run(inputs)
            first = outputs if first is None else first
            validate_outputs(first, outputs, reference.stage)
            num_nonfinite += count_nonfinite(outputs)
            exact = None if wide is None else _run_or_none(wide, inputs)
            if exact is None or [e.shape for e in exact] != [o.shape for o in outputs]:
                wide, is_assumed = None, True
            else:
                errors.append(_errors(outputs, exact))
    eps = working_eps(reference, inputs)
    pooled = [None] * len(outputs) if is_assumed else zip(*errors, strict=True)
    tolerances = tuple(
        tolerance_of(leaf, None if pool is None else torch.cat(pool), eps, num_terms)
        for leaf, pool in zip(outputs, pooled, strict=True)
    )
    return Trials(len(weight_seeds) * len(draw_seeds), num_nonfinite, tolerances)


def assumed_tolerances(
    reference: Reference, inputs: Inputs, outputs: Leaves, num_terms: int = 1
) -> tuple[Tolerance, ...]:
    """Return what tolerances are taken for `outputs` where none was measured."""
    eps = working_eps(reference, inputs)
    return tuple(tolerance_of(leaf, None, eps, num_terms) for leaf in outputs)


def tolerance_of(leaf: Tensor, errors: Tensor | None, eps: float, num_terms: int) -> Tolerance:
    """Return the tolerance of a leaf from its pooled scaled errors; None: assume one.

    The largest of eight times the errors' 99.99 % quantile, 4 ulp of the working type, and the
    square root of `num_terms` in ulp of the type that sums are kept in: float32 for types of two
    bytes. The plain rule takes the working type's there too, which for 4,096 terms of bfloat16
    is half the scale, fifty times the error measured, and leaves next to nothing to judge.

    So a long sum kept in a type of two bytes term by term fails: that is no honest rounding. Parts
    summed in float32 and rounded between pass where they are few, a hundred or so of 4,096 terms.
    What else rounds more often at full size than where the errors were measured, such as a loop
    over steps, is covered by the factor of eight alone.

    Args:
        leaf: An output; its values do not count.
        errors: Scaled errors against float64, over all draws and weight seeds.
        eps: Spacing of the task's working type; a leaf of a coarser type has its own.
        num_terms: Longest reduction at full size.
    """
    if is_exact(leaf):
        return Tolerance(value=0.0, error=None, num_terms=num_terms, is_assumed=False)
    ulp = max(eps, torch.finfo(leaf.dtype).eps)
    sum_ulp = min(ulp, torch.finfo(torch.float32).eps)
    floor = max(NUM_ULP * ulp, math.sqrt(num_terms) * sum_ulp)
    if errors is None:
        value = max(_ASSUMED[real_view(leaf).dtype], floor)
        return Tolerance(value=value, error=None, num_terms=num_terms, is_assumed=True)
    error = outlier_quantile(errors) if errors.numel() else 0.0
    value = max(ERROR_FACTOR * error, floor)
    return Tolerance(value=value, error=error, num_terms=num_terms, is_assumed=False)


def _errors(outputs: Leaves, exact: Leaves) -> list[Tensor]:
    return [
        torch.zeros(0)
        if is_exact(leaf)
        else scaled_error(real_view(leaf), real_view(wide)).float().flatten()
        for leaf, wide in zip(outputs, exact, strict=True)
    ]


def _double_or_none(reference: Reference) -> Reference | None:
    try:
        return reference.in_double()
    except TaskCodeError:
        return None


def _run_or_none(wide: Reference, inputs: Inputs) -> Leaves | None:
    try:
        return wide.run(widen(inputs))
    except TaskCodeError:
        return None
