"""What holds of every verdict, and of the verdicts on a whole plan."""

import random

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from opsgen.admit import Case, admit_all, final_fault, judge, pending, undecided_after_probe
from opsgen.admit.criteria import CRITERIA
from opsgen.errors import REASONS, reason_for
from opsgen.recipe import AdmitConfig, Recipe, ReleaseConfig
from opsgen.records import Fault, Status
from opsgen.testing import cases, faults, plans, sound_cases

RECIPE = Recipe(name="tests", seed=0)
NAMES = {row.name for row in CRITERIA}


def fault(reason: str) -> Fault:
    return Fault(reason=reason, stage="compile", detail="signal 11")


def loosened(admit: AdmitConfig, factor: float) -> AdmitConfig:
    low, high = admit.runtime_window_ms
    return AdmitConfig(
        runtime_window_ms=(low / factor, high * factor),
        launch_floor_ratio=admit.launch_floor_ratio / factor,
        trivial_margin=admit.trivial_margin / factor,
        twin_trivial_margin=admit.twin_trivial_margin / factor,
        weak_at_1e_2="label",
        contamination="label",
        unverified_fraction=1.0,
        max_draw_s=admit.max_draw_s * factor,
        live_margin=admit.live_margin / factor,
        memory_gib=admit.memory_gib * factor,
        headroom=admit.headroom / factor,
        max_tensor_elements=int(admit.max_tensor_elements * factor),
    )


@given(case=cases())
def test_every_verdict_that_does_not_admit_says_why(case: Case) -> None:
    verdict = judge(case, RECIPE)
    if verdict.status is Status.ADMITTED:
        assert case.probe is not None
        assert case.measure is not None
        return
    assert verdict.failed[0].criterion == verdict.reason
    for finding in verdict.failed:
        assert finding.criterion in NAMES or reason_for(finding.criterion)
        assert finding.witness.strip()
        assert "\n" not in finding.witness


@given(case=sound_cases())
def test_sound_cases_are_admitted(case: Case) -> None:
    assert judge(case, RECIPE).status is Status.ADMITTED


@given(plan=plans(), seed=st.integers(0, 99))
def test_verdicts_depend_on_the_set_and_not_on_its_order(plan: list[Case], seed: int) -> None:
    verdicts = admit_all(plan, RECIPE)
    shuffled = random.Random(seed).sample(plan, len(plan))
    assert admit_all(shuffled, RECIPE) == verdicts
    assert len(verdicts) == len(plan)


@given(plan=plans(), factor=st.floats(1.0, 100.0))
def test_looser_thresholds_keep_what_was_admitted(plan: list[Case], factor: float) -> None:
    loose = msgspec.structs.replace(RECIPE, admit=loosened(RECIPE.admit, factor))
    for before, after in zip(admit_all(plan, RECIPE), admit_all(plan, loose), strict=True):
        if before.status is Status.ADMITTED:
            assert after.status is Status.ADMITTED


@given(case=sound_cases())
def test_the_earlier_of_two_equal_lines_wins_whatever_became_of_it(case: Case) -> None:
    later = msgspec.structs.replace(case, task=msgspec.structs.replace(case.task, line=7))
    for first in (
        case,
        Case(task=case.task),
        Case(task=case.task, probe_faults=(fault("raised"),)),
    ):
        one, two = admit_all([later, first], RECIPE)
        assert one.reason != "novel"
        assert (two.status, two.reason) == (Status.REJECTED, "novel")
        assert f"line {case.task.line} ({case.task.task_id})" in (two.witness or "")


@given(case=sound_cases())
def test_sizes_make_a_difference_for_single_ops_only(case: Case) -> None:
    task = msgspec.structs.replace(case.task, task_id="resized", line=7)
    verdict = admit_all([case, msgspec.structs.replace(case, task=task)], RECIPE)[1]
    is_repeat = task.graph_hash is not None and task.level > 1
    assert verdict.reason == ("novel" if is_repeat else None)


@given(one=sound_cases(line=5), other=sound_cases(line=0))
def test_classes_come_in_the_order_in_which_they_are_wanted(one: Case, other: Case) -> None:
    names = [one.task.data_source, other.task.data_source]
    want = dict.fromkeys(names, 1)
    recipe = msgspec.structs.replace(RECIPE, release=ReleaseConfig(want=want))
    lines = [verdict.line for verdict in admit_all([other, one], recipe)]
    assert lines == ([0, 5] if len(want) == 1 else [5, 0])


@given(case=sound_cases())
def test_a_loosened_rejection_waits_for_its_measurement(case: Case) -> None:
    probed = Case(task=case.task, probe=case.probe)
    strict = msgspec.structs.replace(RECIPE, admit=AdmitConfig(live_margin=float("inf")))
    assert judge(probed, strict).reason == "live"
    assert judge(probed, RECIPE).reason == "unmeasured"
    assert undecided_after_probe([probed], strict) == ()
    assert undecided_after_probe([probed], RECIPE) == (case.task,)


@given(plan=plans())
def test_whoever_waits_for_a_stage_is_unmeasured_and_nobody_waits_twice(plan: list[Case]) -> None:
    waiting = pending(plan, RECIPE)
    verdicts = {(v.data_source, v.line): v for v in admit_all(plan, RECIPE)}
    assert not any(task in waiting.measure for task in waiting.probe)
    for task in waiting.probe:
        verdict = verdicts[task.data_source, task.line]
        # Measurements may be there from a time when the probe had let the task go on.
        assert verdict.status is not Status.ADMITTED
    for task in waiting.measure:
        assert verdicts[task.data_source, task.line].reason == "unmeasured"


@given(case=sound_cases(), reason=st.sampled_from([*REASONS]).filter("unmeasured".__ne__))
def test_a_fault_counts_once_its_retries_are_used_up(case: Case, reason: str) -> None:
    entry = reason_for(reason)
    for num_tries in range(1, entry.num_retries + 3):
        tried = Case(task=case.task, probe_faults=(fault(reason),) * num_tries)
        verdict = judge(tried, RECIPE)
        if num_tries > entry.num_retries:
            assert (verdict.status.value, verdict.reason) == (entry.verdict, reason)
            assert pending([tried], RECIPE).probe == ()
        else:
            assert verdict.reason == "unmeasured"
            assert pending([tried], RECIPE).probe == (tried.task,)


@given(seen=st.lists(faults(), max_size=4))
def test_only_the_task_s_own_faults_confirm_each_other(seen: list[Fault]) -> None:
    machine = [one for one in seen if reason_for(one.reason).verdict == "deferred"]
    assert final_fault([*machine, fault("crash")]) is None
    assert final_fault([fault("crash"), *machine, fault("timeout:eager")]) is not None
    others = [one for one in seen if one.reason != "gpu_oom"]
    assert final_fault([*others, fault("gpu_oom")]) is None


@given(case=sound_cases(), seen=st.lists(faults()).map(tuple))
def test_evidence_outweighs_the_faults_before_it(case: Case, seen: tuple[Fault, ...]) -> None:
    tried = msgspec.structs.replace(case, probe_faults=seen, measure_faults=seen)
    assert judge(tried, RECIPE) == judge(case, RECIPE)
