"""What a criterion can say, and the witnesses that both stages share."""

from __future__ import annotations

import math
from collections.abc import Sequence

from opsgen.records import Effect, LazyAnswer, Record, SourceFault, TensorSpec, Tolerance


class Absent(Record, frozen=True, kw_only=True):
    """The evidence that a criterion needs is not there: nothing is held against the task."""

    what: str
    """The missing evidence, as a noun."""


Outcome = str | Absent | None
"""A witness of failure, missing evidence, or None where the criterion holds."""

# A scaled error of 1 is as large as the element's scale: such a tolerance lets zeros pass.
_WHOLE_SCALE = 1.0


def describe_source(faults: Sequence[SourceFault], criterion: str) -> str | None:
    """Return the first broken source rule that speaks to `criterion`, or None."""
    ours = [fault for fault in faults if fault.criterion == criterion]
    if not ours:
        return None
    more = f" (and {len(ours) - 1} more)" if len(ours) > 1 else ""
    return f"line {ours[0].line}: {ours[0].witness} ({ours[0].rule}){more}"


def describe_difference(
    seen: Sequence[TensorSpec], wanted: Sequence[TensorSpec], origin: str
) -> str | None:
    """Return how the leaves `seen` differ from those `wanted` by `origin`, or None."""
    if len(seen) != len(wanted):
        return f"{len(seen)} output leaves, {len(wanted)} {origin}"
    for index, (one, other) in enumerate(zip(seen, wanted, strict=True)):
        if one != other:
            return f"output {index} is {_spell(one)}, {origin} {_spell(other)}"
    return None


def describe_tolerances(tolerances: Sequence[Tolerance], num_leaves: int) -> str | None:
    """Return why `tolerances` cannot judge `num_leaves` output leaves, or None."""
    if len(tolerances) != num_leaves:
        return f"{len(tolerances)} tolerances for {num_leaves} output leaves"
    for index, tolerance in enumerate(tolerances):
        if not 0.0 <= tolerance.value < _WHOLE_SCALE:
            return (
                f"output {index} is only known to {tolerance.value:.3g} of its scale "
                f"(less than {_WHOLE_SCALE:g} wanted)"
            )
    return None


def describe_dead(effects: Sequence[Effect], threshold: float) -> str | None:
    """Return the part whose change leaves the output nearest to the truth, if within `threshold`."""
    dead = [effect for effect in effects if not effect.margin > threshold]
    if not dead:
        return None
    worst = min(dead, key=lambda effect: -1.0 if math.isnan(effect.margin) else effect.margin)
    more = f" (and {len(dead) - 1} more)" if len(dead) > 1 else ""
    return (
        f"{worst.subject} {worst.change} changes the output by {worst.margin:.3g} x the "
        f"tolerance (more than {threshold:g} wanted){more}"
    )


def _spell(spec: TensorSpec) -> str:
    return f"{spec.dtype} {list(spec.shape)}"


def describe_trivial(answers: Sequence[LazyAnswer], wanted: float, where: str) -> str | None:
    """Return the lazy answer that does best, if it passes at `wanted` times the tolerance."""
    if not answers:
        return None
    best = min(answers, key=margin_of)
    if best.margin > wanted:
        return None
    return f"{best.name} passes {where} at {best.margin:.3g} x the tolerance ({wanted:g} wanted)"


def describe_weak(answers: Sequence[LazyAnswer]) -> str | None:
    """Return the lazy answer that passes at the 1e-2 of other harnesses, or None."""
    weak = [answer.name for answer in answers if answer.passes_1e_2]
    return f"{weak[0]} passes at the 1e-2 that other harnesses use" if weak else None


def margin_of(answer: LazyAnswer) -> float:
    """Return the answer's margin, where no number is the worst."""
    return -math.inf if math.isnan(answer.margin) else answer.margin
