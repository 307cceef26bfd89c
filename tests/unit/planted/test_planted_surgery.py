"""Random honest tasks, and the same after an operation that makes them trivial."""

from __future__ import annotations

import ast
from collections import Counter

import pytest
from chains import OPERATIONS, Chain, chains
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st

from opsgen.admit import Case, admit_all
from opsgen.jobs import probe
from opsgen.records import Finding, ProbeRequest, Task, Verdict
from opsgen.render import render_task
from opsgen.sampler import Plan
from opsgen.source import assign_sizes, foreign_task

pytestmark = pytest.mark.check  # a minute of probes

OPEN = (Finding(criterion="unmeasured", witness="no measure evidence yet"),)
WANTED = {"live", "nontrivial", "self_contained"}
OPERATED = st.tuples(chains(), st.sampled_from(sorted(OPERATIONS)), st.integers(0, 5))
# Each example is two probes; what fails is as small as it gets, so nothing is shrunk.
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
FEW = settings(max_examples=24, phases=PHASES, derandomize=True)
MANY = settings(max_examples=300, phases=PHASES)
# Where a norm's epsilon is of the size of the variance, a scale before it does matter.
NOT_ALWAYS_DEAD = "scale before a norm"


@FEW
@given(OPERATED)
def test_an_operated_task_is_rejected_and_its_twin_is_not(look, operated):
    hold(look, *operated)


@pytest.mark.slow
def test_many_operated_tasks(look, record_property):
    seen: Counter[str] = Counter()
    missed: Counter[str] = Counter()

    @MANY
    @given(OPERATED)
    def operate(operated):
        name = operated[1]
        seen[name] += 1
        if name != NOT_ALWAYS_DEAD:
            hold(look, *operated)
        elif not is_told(look, *operated):
            missed[name] += 1

    operate()
    record_property("operated", seen.total())
    record_property("scales before a norm missed", f"{missed.total()} of {seen[NOT_ALWAYS_DEAD]}")
    assert missed[NOT_ALWAYS_DEAD] <= 0.15 * seen[NOT_ALWAYS_DEAD] + 1


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_operation_is_told(look, name):
    hold(look, Chain(("conv", "mish", "group_norm", "tanh", "none"), 5, 12, 48), name, 3)


def hold(look, chain: Chain, name: str, place: int) -> None:
    assert is_told(look, chain, name, place), OPERATIONS[name](chain, place)[1].source()


def is_told(look, chain: Chain, name: str, place: int) -> bool:
    honest, operated = OPERATIONS[name](chain, place)
    assert look(honest.source()).failed == OPEN, honest.source()
    verdict = look(operated.source())
    return bool(WANTED & {finding.criterion for finding in verdict.failed})


@pytest.fixture(scope="module")
def look(context, recipe):
    """Return a function from source to the verdict on its probe."""

    def judge(code: str) -> Verdict:
        task = foreign_task(code, origin="planted")
        evidence = probe.run(ProbeRequest(task=task, seed=11), context)
        return admit_all([Case(task=task, probe=evidence)], recipe)[0]

    return judge


# Operations on any task whose forward ends in one returned tensor, however it came about.
RETURNED = {
    "times zero": "return ({value}) * 0.0",
    "saturating clamp": "return torch.clamp({value}, 1e6, 2e6)",
    "second maximum": "return torch.amax({value}).amax()",
    "unused branch": "value = {value}; spare = torch.exp(value); return value",
    "overwritten": "value = {value}; value = torch.ones_like(value); return value",
}


@settings(max_examples=8, phases=PHASES)
@given(line=st.integers(0, 400), name=st.sampled_from(sorted(RETURNED)))
def test_sampled_tasks_are_no_exception(look, plan, line, name):
    hold_sampled(look, sampled(plan, line), name)


@pytest.mark.slow
@settings(max_examples=300, phases=PHASES)
@given(line=st.integers(0, 4000), name=st.sampled_from(sorted(RETURNED)))
def test_many_sampled_tasks(look, plan, line, name):
    hold_sampled(look, sampled(plan, line), name)


@pytest.fixture(scope="module")
def plan(recipe) -> Plan:
    return Plan(recipe.seed, recipe.sample)


def sampled(plan: Plan, line: int) -> Task | None:
    made = plan.line("torch#2", line)
    return render_task(made) if made.sampled else None


def hold_sampled(look, task: Task | None, name: str) -> None:
    """Treat a sampled task, at its twin's sizes, as if it had come from anywhere.

    Its sampler knows less than the probe: what the probe itself objects to is not operated on.
    """
    assume(task is not None)
    outputs = task.workloads[0].outputs
    assume(len(outputs) == 1 and outputs[0].dtype == "float32")
    honest = assign_sizes(task.code, task.workloads[-1].sizes)
    assume(look(honest).failed == OPEN)
    code = returning(honest, RETURNED[name])
    assert WANTED & {finding.criterion for finding in look(code).failed}, code


@pytest.mark.check
def test_nearly_all_sampled_tasks_are_honest_as_foreign_code(look, plan, context, recipe):
    judged = []
    for task in filter(None, (sampled(plan, line) for line in range(60))):
        evidence = probe.run(ProbeRequest(task=task, seed=11), context)
        if admit_all([Case(task=task, probe=evidence)], recipe)[0].failed == OPEN:
            judged.append(look(assign_sizes(task.code, task.workloads[-1].sizes)).failed == OPEN)
    assert len(judged) > 40
    assert judged.count(False) <= 3


def returning(code: str, template: str) -> str:
    """Return `code` with another last statement of `forward`."""
    model = next(each for each in ast.parse(code).body if isinstance(each, ast.ClassDef))
    forward = next(each for each in model.body if getattr(each, "name", "") == "forward")
    last = forward.body[-1]
    assert isinstance(last, ast.Return)
    lines = code.splitlines()
    text = template.format(value=ast.unparse(last.value))
    lines[last.lineno - 1 : last.end_lineno] = [f"        {part}" for part in text.split("; ")]
    return "\n".join(lines) + "\n"
