"""Verdicts: one task's, a whole plan's, and who still needs which stage."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from opsgen.admit.case import Case, final_fault, plan_order
from opsgen.admit.criteria import CRITERIA, Absent, Outcome
from opsgen.admit.novelty import Repeat, find_repeats
from opsgen.admit.outcome import describe_source
from opsgen.errors import reason_for
from opsgen.recipe import Recipe
from opsgen.records import Failure, Fault, Finding, Record, Status, Task, Verdict

_RANK = {criterion.name: rank for rank, criterion in enumerate(CRITERIA)}
_UNMEASURED = "unmeasured"


class _Findings:
    """What one stage holds against a task, and what keeps it open."""

    def __init__(self) -> None:
        self.rejecting: list[Finding] = []
        self.deferring: list[Finding] = []

    def add(self, name: str, outcome: Outcome) -> None:
        if isinstance(outcome, Absent):
            self.deferring.append(_finding(_UNMEASURED, f"no evidence of {outcome.what}"))
        elif outcome is not None:
            self.rejecting.append(_finding(name, outcome))

    def add_failure(self, failure: Failure | None) -> None:
        """Put what stopped the stage in its criterion's place, before a witness of the same."""
        if failure is None:
            return
        text = " ".join(failure.message.split())
        witness = f"{failure.kind} in {failure.stage}: {text}"
        self.rejecting.insert(0, _finding(failure.criterion, witness))

    def add_missing(self, stage: str, faults: Sequence[Fault]) -> None:
        """Say why a stage brought no evidence."""
        fault = final_fault(faults)
        if fault is not None:
            blames = reason_for(fault.reason).verdict == "rejected"
            found = self.rejecting if blames else self.deferring
            found.append(_finding(fault.reason, f"in {fault.stage}: {fault.detail}"))
            return
        last = f"; last try: {faults[-1].reason} in {faults[-1].stage}" if faults else ""
        self.deferring.append(_finding(_UNMEASURED, f"no {stage} evidence yet{last}"))

    def in_order(self) -> tuple[list[Finding], list[Finding]]:
        """Return rejecting and deferring findings in the protocol's order."""
        rank = len(_RANK)
        self.rejecting.sort(key=lambda finding: _RANK.get(finding.criterion, rank))
        return self.rejecting, self.deferring


def judge(case: Case, recipe: Recipe, *, repeat: Repeat | None = None) -> Verdict:
    """Judge one task under the recipe's thresholds.

    Args:
        case: The task with all that was recorded of it.
        recipe: `[admit]` holds the thresholds; `[probe]` says what to expect.
        repeat: Earlier line of the plan that is the same task, if there is one.

    Returns:
        Rejected with the first failing criterion in the order probe, measure,
        if any evidence or a confirmed fault speaks against the task; otherwise
        deferred if a fault of the machine or missing evidence stands in the way.
    """
    early, early_open = _on_probe(case, recipe, repeat)
    late, late_open = _on_measure(case, recipe)
    rejecting, deferring = early + late, early_open + late_open
    if not rejecting and not deferring:
        return _verdict(case.task, Status.ADMITTED, ())
    if rejecting:
        return _verdict(case.task, Status.REJECTED, tuple(rejecting))
    return _verdict(case.task, Status.DEFERRED, tuple(deferring))


def admit_all(cases: Iterable[Case], recipe: Recipe) -> list[Verdict]:
    """Return the verdicts on a set of tasks in plan order, whatever order they come in.

    Unlike `judge` this knows the whole set and so decides `novel`.
    """
    ordered = _in_plan_order(cases, recipe)
    repeats = find_repeats(ordered)
    return [
        judge(case, recipe, repeat=repeat) for case, repeat in zip(ordered, repeats, strict=True)
    ]


class Pending(Record, frozen=True, kw_only=True):
    """Tasks that a stage could still decide, in plan order."""

    probe: tuple[Task, ...]
    """Not probed, and not rejected by anything known."""
    measure: tuple[Task, ...]
    """Probed without an objection, and not measured."""


def pending(cases: Iterable[Case], recipe: Recipe) -> Pending:
    """Return which undecided tasks need which stage next.

    Leaves out tasks that are decided and tasks whose faults used up their
    retries; pass a case without its faults to give it a fresh start. A probe
    that could not look everywhere (foreign code that is too large for a CPU)
    rejects nothing, so such a task goes on although it cannot be admitted.
    """
    ordered = _in_plan_order(cases, recipe)
    repeats = find_repeats(ordered)
    probe: list[Task] = []
    measure: list[Task] = []
    for case, repeat in zip(ordered, repeats, strict=True):
        rejecting, _ = _on_probe(case, recipe, repeat)
        if rejecting:
            continue
        if case.probe is None:
            if final_fault(case.probe_faults) is None:
                probe.append(case.task)
        elif case.measure is None and final_fault(case.measure_faults) is None:
            measure.append(case.task)
    return Pending(probe=tuple(probe), measure=tuple(measure))


def undecided_after_probe(cases: Iterable[Case], recipe: Recipe) -> tuple[Task, ...]:
    """Return the tasks that go on to be measured, in plan order."""
    return pending(cases, recipe).measure


def _in_plan_order(cases: Iterable[Case], recipe: Recipe) -> list[Case]:
    key = plan_order(recipe.release.want)
    return sorted(
        cases, key=lambda case: (*key(case.task.data_source, case.task.line), case.task.task_id)
    )


def _on_probe(
    case: Case, recipe: Recipe, repeat: Repeat | None
) -> tuple[list[Finding], list[Finding]]:
    found = _Findings()
    for row in CRITERIA:
        if row.plan is not None:
            found.add(row.name, row.plan(case.task, repeat))
        if case.probe is not None:
            found.add(row.name, describe_source(case.probe.source_faults, row.name))
        if row.probe is not None and case.probe is not None:
            found.add(row.name, row.probe(case.task, case.probe, recipe))
    if case.probe is None:
        found.add_missing("probe", case.probe_faults)
    else:
        found.add_failure(case.probe.failure)
    return found.in_order()


def _on_measure(case: Case, recipe: Recipe) -> tuple[list[Finding], list[Finding]]:
    found = _Findings()
    if case.measure is None:
        found.add_missing("measure", case.measure_faults)
        return found.in_order()
    for row in CRITERIA:
        if row.measure is not None:
            found.add(row.name, row.measure(case.task, case.measure, recipe))
    found.add_failure(case.measure.failure)
    return found.in_order()


def _finding(criterion: str, witness: str) -> Finding:
    return Finding(criterion=criterion, witness=" ".join(witness.split()))


def _verdict(task: Task, status: Status, failed: tuple[Finding, ...]) -> Verdict:
    return Verdict(
        task_id=task.task_id,
        data_source=task.data_source,
        line=task.line,
        status=status,
        reason=failed[0].criterion if failed else None,
        witness=failed[0].witness if failed else None,
        failed=failed,
    )
