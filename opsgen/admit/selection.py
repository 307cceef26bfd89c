"""The cut of a release: the first admitted tasks of each class."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from opsgen.records import Record, Status, Verdict


class Selection(Record, frozen=True, kw_only=True):
    """What a release takes, lacks and passes over."""

    chosen: dict[str, tuple[str, ...]]
    """Chosen task_ids by class, in plan order; at most as many as wanted."""
    missing: dict[str, int]
    """How many admitted tasks each class lacks; only classes that lack any."""
    skipped: tuple[Verdict, ...]
    """Deferred lines before the cut of their class: retry them, or list them."""

    @property
    def is_complete(self) -> bool:
        """Every class has its number."""
        return not self.missing

    @property
    def task_ids(self) -> frozenset[str]:
        """All chosen tasks."""
        return frozenset(task_id for ids in self.chosen.values() for task_id in ids)


def select(verdicts: Iterable[Verdict], want: Mapping[str, int]) -> Selection:
    """Take the first admitted tasks of each wanted class in plan order.

    The order in which workers finished, and admitted lines behind the cut,
    make no difference.

    Args:
        verdicts: Verdicts on the plan's lines, in any order.
        want: Admitted tasks wanted by quota class.

    Returns:
        The cut; a class that lacks tasks is taken as far as it goes.
    """
    by_class: dict[str, list[Verdict]] = {name: [] for name in want}
    for verdict in verdicts:
        if verdict.data_source in by_class:
            by_class[verdict.data_source].append(verdict)
    chosen: dict[str, tuple[str, ...]] = {}
    skipped: list[Verdict] = []
    for name, lines in by_class.items():
        taken: list[str] = []
        for verdict in sorted(lines, key=lambda verdict: (verdict.line, verdict.task_id)):
            if len(taken) == want[name]:
                break
            if verdict.status is Status.ADMITTED:
                taken.append(verdict.task_id)
            elif verdict.status is Status.DEFERRED:
                skipped.append(verdict)
        chosen[name] = tuple(taken)
    missing = {name: n - len(chosen[name]) for name, n in want.items() if n > len(chosen[name])}
    return Selection(chosen=chosen, missing=missing, skipped=tuple(skipped))
