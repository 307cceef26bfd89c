"""How many tasks of the broad recipe pass the probe, straight from its plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from opsgen.admit import Case, judge
from opsgen.jobs import probe
from opsgen.records import Graph, LazyAnswer, ProbeEvidence, ProbeRequest, Status, Task

SHARE = 0.9
DIVISIONS: dict[str, Callable[[Task], str]] = {
    "class": lambda task: task.data_source,
    "stratum": lambda task: task.stratum or "none",
    "dtype": lambda task: task.graph.dtype,
    "topology": lambda task: topology_of(task.graph),
    "draw": lambda task: task.graph.inputs[0].draw,
    "layout": lambda task: max((known.layout for known in task.graph.inputs), key=len),
}


def topology_of(graph: Graph) -> str:
    if graph.grad_output is not None:
        return "gradient"
    if len(graph.outputs) > 1:
        return "outputs"
    reads = [arg for node in graph.nodes for arg in node.args]
    if len(set(reads)) < len(reads):
        return "shared"
    return "inputs" if len(graph.inputs) > 1 else "chain"


def objection(task: Task, evidence: ProbeEvidence, recipe) -> tuple[str, str] | None:
    """Why the probe holds something against a task: the reason, and its witness.

    A lazy answer counts where a comparison would take it for right. The recipe's own margin is
    asked for at full size.
    """
    verdict = judge(Case(task=task, probe=evidence), recipe)
    if verdict.status is Status.REJECTED:
        return str(verdict.reason), str(verdict.witness)
    best = best_answer(evidence)
    return None if best.margin > 1 else ("lazy_answers", f"{best.name} would do")


def best_answer(evidence: ProbeEvidence) -> LazyAnswer:
    return min(evidence.answers, key=lambda answer: answer.margin)


def report(tasks: list[Task], objections: dict[str, tuple[str, str]]) -> str:
    """Shares of what passed by reason and by every division, and an example of each reason."""
    lines = []
    reasons = Counter(reason for reason, _ in objections.values())
    for reason, count in reasons.most_common():
        task = next(t for t in tasks if objections.get(t.task_id, ("",))[0] == reason)
        example = f"{task.data_source} line {task.line}: {objections[task.task_id][1]}"
        lines.append(f"{reason}: {count / len(tasks):.1%}, such as {example}")
    for name, division in DIVISIONS.items():
        seen = Counter(map(division, tasks))
        passed = Counter(division(task) for task in tasks if task.task_id not in objections)
        shares = [f"{key} {passed[key] / seen[key]:.1%} of {seen[key]}" for key in sorted(seen)]
        lines.append(f"{name}: {', '.join(shares)}")
    return "\n".join(lines)


def hold_share(tasks: list[Task], recipe, context, record_property) -> None:
    objections = {}
    near: Counter[str] = Counter()
    for task in tasks:
        evidence = probe.run(ProbeRequest(task=task, seed=recipe.seed), context)
        found = objection(task, evidence, recipe)
        if found is not None:
            objections[task.task_id] = found
        elif not best_answer(evidence).margin > recipe.admit.trivial_margin:
            near[task.graph.dtype] += 1
    passed = 1 - len(objections) / len(tasks)
    told = f"{passed:.1%} of {len(tasks)} tasks\n{report(tasks, objections)}"
    told += f"\nof those, a lazy answer within the recipe's margin on the twin: {dict(near)}"
    record_property("passed", told)
    assert passed >= SHARE, told


@pytest.mark.check
def test_most_broad_tasks_pass_the_probe(planned, shipped, context, record_property) -> None:
    recipe = shipped("broad", "torch#1", "torch#2", "torch#3", "transformers")
    hold_share([t for t in planned(recipe, 40) if t], recipe, context, record_property)


@pytest.mark.slow
def test_two_thousand_broad_tasks(planned, shipped, context, record_property) -> None:
    recipe = shipped("broad")
    hold_share([t for t in planned(recipe, 2000) if t], recipe, context, record_property)
