"""The stages for tasks that somebody else made, of which one may have several texts."""

from __future__ import annotations

from collections.abc import Iterable

from opsgen.admit import Case, plan_order
from opsgen.recipe import Recipe
from opsgen.records import Task
from opsgen.run.stages import Stages


class ForeignStages(Stages):
    """Stages in which evidence speaks of the text that it was found on, and of no other."""

    def cases(self) -> list[Case]:
        """Return every task with the evidence that speaks of it."""
        return own_evidence(super().cases(), self.recipe)


def own_evidence(cases: Iterable[Case], recipe: Recipe) -> list[Case]:
    """Return the cases; a task that only repeats another text has no evidence of its own.

    Equal normalised source makes one task of several texts, of which the first in plan order
    is looked at. What its lines show need not stand in the others.
    """
    cases = list(cases)
    order = plan_order(recipe.release.want)
    first: dict[str, Task] = {}
    for case in sorted(cases, key=lambda case: order(case.task.data_source, case.task.line)):
        first.setdefault(case.task.task_id, case.task)
    return [
        case if case.task.code == first[case.task.task_id].code else Case(task=case.task)
        for case in cases
    ]
