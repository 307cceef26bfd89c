"""The stages for tasks that somebody else made: whose evidence is whose, and the user's own tables.

Shipped benchmark tables are compared with where the probe runs. A table of the
user's may lie where a sandboxed child or another host sees nothing, so it is
compared with here, from what the probes recorded.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from opsgen.admit import Case, plan_order
from opsgen.fleet import Fleet
from opsgen.recipe import Recipe
from opsgen.records import Overlap, Task
from opsgen.run.folder import RunFolder
from opsgen.run.stages import Stages
from opsgen.source.contamination import find_overlap
from opsgen.source.fingerprints import load_table


def split_tables(recipe: Recipe) -> tuple[Recipe, tuple[str, ...]]:
    """Return the recipe for the probes, and the tables that are left for `ForeignStages`.

    Raises:
        UsageError: There is no such table.
    """
    tables = recipe.probe.benchmarks
    for name in tables:
        load_table(name)
    if not any(name.endswith(".parquet") for name in tables):
        return recipe, ()
    probe = msgspec.structs.replace(recipe.probe, benchmarks=())
    return msgspec.structs.replace(recipe, probe=probe), tables


class ForeignStages(Stages):
    """Stages whose tasks come from a source, so that one task may have several texts.

    Args:
        folder: The run's files; locked by the caller.
        fleet: Where probes and measurements run; None for the stages that need none.
        tables: Benchmarks that the probes leave to these stages.
    """

    def __init__(
        self, folder: RunFolder, fleet: Fleet | None = None, *, tables: tuple[str, ...] = ()
    ) -> None:
        super().__init__(folder, fleet)
        self._tables = tables
        self._overlaps: dict[str, Overlap | None] = {}

    def cases(self) -> list[Case]:
        """Return every task with the evidence that speaks of it."""
        return self._completed(super().cases())

    def open_cases(self) -> list[Case]:
        """Return the same with faults of earlier runs forgiven where they only deferred."""
        return self._completed(super().open_cases())

    def _completed(self, cases: Iterable[Case]) -> list[Case]:
        own = own_evidence(cases, self.recipe)
        return [self._with_overlap(case) for case in own] if self._tables else own

    def _with_overlap(self, case: Case) -> Case:
        # Code that breaks a rule may not even parse, and is compared with nothing.
        if case.probe is None or case.probe.source_faults:
            return case
        task_id = case.task.task_id
        if task_id not in self._overlaps:
            overlap = find_overlap(case.task.code, case.probe.trace, self._tables)
            self._overlaps[task_id] = overlap
        probe = msgspec.structs.replace(case.probe, overlap=self._overlaps[task_id])
        return msgspec.structs.replace(case, probe=probe)


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
