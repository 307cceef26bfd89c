"""The table of criteria in the protocol's order.

A new criterion is a function in `probing`, `measuring` or both, and a row here.
What breaks a source rule is read for every row alike.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from opsgen.admit import measuring, probing
from opsgen.admit.novelty import Repeat, novel
from opsgen.admit.outcome import Absent, Outcome
from opsgen.recipe import Recipe
from opsgen.records import MeasureEvidence, ProbeEvidence, Task

__all__ = ["CRITERIA", "Absent", "Criterion", "Outcome"]


@dataclass(frozen=True, slots=True)
class Criterion:
    """Where a criterion is read.

    Attributes:
        name: The protocol's name, as it stands in verdicts.
        plan: Reads it off the task and what it repeats of the set.
        probe: Reads it off the probe's evidence.
        measure: Reads it off the timing device's evidence.
    """

    name: str
    plan: Callable[[Task, Repeat | None], Outcome] | None = None
    probe: Callable[[Task, ProbeEvidence, Recipe], Outcome] | None = None
    measure: Callable[[Task, MeasureEvidence, Recipe], Outcome] | None = None


CRITERIA: tuple[Criterion, ...] = (
    Criterion("self_contained"),  # source rules alone
    Criterion("novel", plan=novel),
    Criterion("uncontaminated", probe=probing.uncontaminated),
    Criterion("ops_true", probe=probing.ops_true),
    Criterion("executes", probe=probing.executes, measure=measuring.executes),
    Criterion("finite", probe=probing.finite, measure=measuring.finite),
    Criterion("deterministic", probe=probing.deterministic, measure=measuring.deterministic),
    Criterion("judgeable", probe=probing.judgeable, measure=measuring.judgeable),
    Criterion("nontrivial", probe=probing.nontrivial, measure=measuring.nontrivial),
    Criterion("live", probe=probing.live, measure=measuring.live),
    Criterion("stable_inputs", probe=probing.stable_inputs, measure=measuring.stable_inputs),
    Criterion("runtime_window", measure=measuring.runtime_window),
    Criterion("memory", probe=probing.memory, measure=measuring.memory),
    Criterion("headroom", measure=measuring.headroom),
)
