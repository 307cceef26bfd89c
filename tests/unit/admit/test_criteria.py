"""Each criterion on both sides of its threshold, with the witness a reader gets."""

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from steady import steady

from opsgen.admit import Case, judge, pending
from opsgen.recipe import AdmitConfig, ProbeConfig, Recipe
from opsgen.records import (
    Effect,
    Estimate,
    Failure,
    LazyAnswer,
    MeasureEvidence,
    ProbeEvidence,
    SourceFault,
    SpeedOfLight,
    Status,
    Task,
    TensorSpec,
    Timing,
    Tolerance,
    Verdict,
    Workload,
)

RECIPE = Recipe(name="tests", seed=0)
LEAF = TensorSpec(shape=(64, 32), dtype="float32")
TOLERANCE = Tolerance(value=1e-5, error=1e-6, num_terms=32, is_assumed=False)
TASK = Task(
    task_id="t0",
    data_source="torch#2",
    line=0,
    level=2,
    ops=("torch.relu", "torch.sum"),
    code="class Model: ...",
    workloads=(Workload(sizes={"n": 64}, inputs=(LEAF,), outputs=(LEAF,)),),
    graph_hash="g0",
    family="f0",
    estimate=Estimate(eager_ms=3.0, traffic_bytes=1, flops=1, peak_bytes=2**30, num_terms=32),
)
PROBE = ProbeEvidence(
    predicted=(LEAF,),
    observed=(LEAF,),
    num_draws=15,
    tolerances=(TOLERANCE,),
    is_repeatable=True,
    is_pure=True,
    has_stable_inputs=True,
    effects=(Effect(subject="input x", change="redrawn", margin=1e5),),
)


def answer(margin: float, *, passes: bool = False, name: str = "zeros") -> LazyAnswer:
    return LazyAnswer(name=name, margin=margin, passes_1e_2=passes)


def eager(median_ms: float) -> Timing:
    return steady("eager", median_ms)


MEASURE = MeasureEvidence(
    environment_id="here",
    observed=(LEAF,),
    compiled=(LEAF,),
    num_graphs=1,
    is_repeatable=True,
    is_pure=True,
    num_nonfinite=0,
    tolerances=(TOLERANCE,),
    compile_margin=0.5,
    answers=(answer(5e4),),
    timings=(eager(3.0),),
    launch_floor_ms=0.01,
    peak_bytes=2**30,
)


def probe(**changes: object) -> Verdict:
    seen = msgspec.structs.replace(PROBE, **changes)
    return judge(Case(task=TASK, probe=seen, measure=MEASURE), RECIPE)


def measure(recipe: Recipe = RECIPE, **changes: object) -> Verdict:
    seen = msgspec.structs.replace(MEASURE, **changes)
    return judge(Case(task=TASK, probe=PROBE, measure=seen), recipe)


def with_admit(**changes: object) -> Recipe:
    return msgspec.structs.replace(RECIPE, admit=AdmitConfig(**changes))


def test_sound_evidence_admits() -> None:
    assert probe().status is Status.ADMITTED
    assert probe().reason is None


OTHER = TensorSpec(shape=(64, 1), dtype="float32")
FAULT = SourceFault(rule="imports", line=3, witness="import os")
CHANGES_TO_PROBE = [
    (
        {"source_faults": (FAULT, FAULT)},
        "self_contained",
        "line 3: import os (imports) (and 1 more",
    ),
    ({"observed": (OTHER,)}, "executes", "output 0 is float32 [64, 1], predicted float32 [64, 32]"),
    ({"observed": (LEAF, LEAF)}, "executes", "2 output leaves, 1 predicted"),
    ({"num_nonfinite": 3}, "finite", "3 NaN or infinite elements over 15 draws"),
    ({"is_repeatable": False}, "deterministic", "three runs on one input of the twin differ"),
    ({"is_pure": False}, "deterministic", "changes its inputs or state"),
    ({"tolerances": ()}, "judgeable", "0 tolerances for 1 output leaves"),
    ({"has_stable_inputs": False}, "stable_inputs", "three draws differ in structure"),
]


@pytest.mark.parametrize(("changes", "reason", "witness"), CHANGES_TO_PROBE)
def test_probe_evidence_rejects(changes: dict[str, object], reason: str, witness: str) -> None:
    verdict = probe(**changes)
    assert (verdict.status, verdict.reason) == (Status.REJECTED, reason)
    assert witness in (verdict.witness or "")


CHANGES_TO_MEASURE = [
    ({"observed": (OTHER,), "compiled": (OTHER,)}, "executes", "predicted float32 [64, 32]"),
    ({"compiled": (OTHER,)}, "executes", "compiled: output 0 is float32 [64, 1], in eager"),
    ({"num_graphs": 2}, "executes", "captured 2 graphs"),
    ({"compile_margin": 1.01}, "executes", "differs from eager by 1.01 x the tolerance"),
    ({"compile_margin": math.nan}, "executes", "by nan x the tolerance"),
    ({"num_nonfinite": 1}, "finite", "1 NaN or infinite elements at full size"),
    ({"is_repeatable": False}, "deterministic", "three eager runs on one input differ"),
    ({"is_pure": False}, "deterministic", "a call changes its inputs or state"),
    ({"tolerances": ()}, "judgeable", "0 tolerances for 1 output leaves"),
    ({"timings": (eager(3.0),), "launch_floor_ms": 0.5}, "runtime_window", "6 x the launch floor"),
]


@pytest.mark.parametrize(("changes", "reason", "witness"), CHANGES_TO_MEASURE)
def test_measure_evidence_rejects(changes: dict[str, object], reason: str, witness: str) -> None:
    verdict = measure(**changes)
    assert (verdict.status, verdict.reason) == (Status.REJECTED, reason)
    assert witness in (verdict.witness or "")


ABSENT_FROM_PROBE = [
    {"num_draws": 0, "tolerances": ()},
    {"is_repeatable": None},
    {"is_pure": None},
    {"effects": ()},
]
ABSENT_FROM_PROBE += [{"has_stable_inputs": None}]
ABSENT_FROM_MEASURE = [{"num_graphs": None}, {"observed": (), "compiled": ()}, {"answers": ()}]
ABSENT_FROM_MEASURE += [{"compile_margin": None}, {"num_nonfinite": None}, {"timings": ()}]
ABSENT_FROM_MEASURE += [{"is_pure": None}, {"launch_floor_ms": None}]


@pytest.mark.parametrize("changes", ABSENT_FROM_PROBE)
def test_missing_probe_evidence_never_admits(changes: dict[str, object]) -> None:
    verdict = probe(**changes)
    assert (verdict.status, verdict.reason) == (Status.DEFERRED, "unmeasured")


@pytest.mark.parametrize("changes", ABSENT_FROM_MEASURE)
def test_missing_measure_evidence_never_admits(changes: dict[str, object]) -> None:
    verdict = measure(**changes)
    assert (verdict.status, verdict.reason) == (Status.DEFERRED, "unmeasured")


@given(margin=st.floats() | st.just(10.0), threshold=st.floats(0.0, 100.0) | st.just(10.0))
def test_nontrivial_wants_every_margin_to_reach_the_threshold(
    margin: float, threshold: float
) -> None:
    recipe = with_admit(trivial_margin=threshold)
    verdict = measure(recipe, answers=(answer(1e9), answer(margin, name="replay")))
    smallest = min(margin, 1e9)
    if smallest >= threshold and not math.isnan(margin):
        assert verdict.status is Status.ADMITTED
    else:
        assert verdict.reason == "nontrivial"
        assert verdict.witness == (
            f"replay passes at {margin:.3g} x the tolerance ({threshold:g} wanted)"
        )


def test_weak_answers_reject_only_where_the_recipe_says_so() -> None:
    weak = {"answers": (answer(50.0, passes=True, name="mean"),)}
    verdict = measure(with_admit(weak_at_1e_2="reject"), **weak)
    assert verdict.reason == "nontrivial"
    assert verdict.witness == "mean passes at the 1e-2 that other harnesses use"
    assert measure(with_admit(weak_at_1e_2="label"), **weak).status is Status.ADMITTED


@given(margin=st.floats() | st.just(1.0), threshold=st.floats(0.0, 5.0) | st.just(1.0))
def test_live_wants_every_effect_to_leave_the_tolerance(margin: float, threshold: float) -> None:
    dead = Effect(subject="node 1 (relu)", change="deleted", margin=margin)
    seen = msgspec.structs.replace(PROBE, effects=(*PROBE.effects, dead))
    case = Case(task=TASK, probe=seen, measure=MEASURE)
    verdict = judge(case, with_admit(live_margin=threshold))
    if margin > threshold:
        assert verdict.status is Status.ADMITTED
    else:
        assert verdict.reason == "live"
        assert (verdict.witness or "").startswith("node 1 (relu) deleted changes the output by ")


def test_live_needs_effects_only_where_the_recipe_asks_for_them() -> None:
    case = Case(task=TASK, probe=msgspec.structs.replace(PROBE, effects=()), measure=MEASURE)
    without = msgspec.structs.replace(RECIPE, probe=ProbeConfig(liveness=False))
    assert judge(case, without).status is Status.ADMITTED
    assert judge(case, RECIPE).status is Status.DEFERRED


@given(value=st.floats())
def test_judgeable_wants_tolerances_below_the_whole_scale(value: float) -> None:
    leaf = msgspec.structs.replace(TOLERANCE, value=value)
    expected = None if 0.0 <= value < 1.0 else "judgeable"
    assert probe(tolerances=(leaf,)).reason == expected
    assert measure(tolerances=(leaf,)).reason == expected


@given(median=st.floats(0.0, 20.0) | st.sampled_from((1.0, 10.0)))
def test_runtime_window_holds_its_ends(median: float) -> None:
    recipe = with_admit(runtime_window_ms=(1.0, 10.0), launch_floor_ratio=10.0)
    verdict = measure(recipe, timings=(eager(median),), launch_floor_ms=0.1)
    if 1.0 <= median <= 10.0:
        assert verdict.status is Status.ADMITTED
    else:
        assert verdict.reason == "runtime_window"
        assert "(1 to 10 wanted)" in (verdict.witness or "")


def test_advisory_timings_decide_too() -> None:
    for is_advisory in (True, False):
        verdict = measure(timings=(eager(200.0),), is_advisory=is_advisory)
        assert verdict.witness == "eager takes 200 ms (1.05 to 95 wanted)"


LEAST = SpeedOfLight(
    moved_bytes=2 * 10**9, flops=0, bandwidth_gb_s=2000.0, rate_tflop_s=None, time_ms=1.0
)


@given(median=st.floats(0.5, 3.0) | st.sampled_from((1.1, 1.5)))
def test_headroom_is_what_compiled_code_leaves_above_the_least_time(median: float) -> None:
    compiled = msgspec.structs.replace(eager(median), mode="compile")
    seen = {"timings": (eager(3.0), compiled), "speed_of_light": LEAST}
    assert measure(**seen).reason is None
    verdict = measure(with_admit(headroom=1.5), **seen)
    assert verdict.reason == (None if median >= 1.5 else "headroom")
    assert verdict.reason is None or "1.5 wanted" in (verdict.witness or "")


def test_headroom_waits_for_what_it_needs() -> None:
    recipe = with_admit(headroom=1.5)
    compiled = msgspec.structs.replace(eager(2.0), mode="compile")
    for absent in (
        {"timings": (eager(3.0), compiled), "speed_of_light": None},
        {"timings": (eager(3.0),), "speed_of_light": LEAST},
    ):
        assert measure(recipe, **absent).status is Status.DEFERRED


@given(peak=st.integers(0, 2**36))
def test_memory_reads_the_prediction_and_the_measured_peak(peak: int) -> None:
    recipe = with_admit(memory_gib=4.0)
    expected = None if peak <= 4 * 2**30 else "memory"
    assert measure(recipe, peak_bytes=peak).reason == expected
    estimate = msgspec.structs.replace(TASK.estimate, peak_bytes=peak)
    task = msgspec.structs.replace(TASK, estimate=estimate)
    assert judge(Case(task=task, probe=PROBE, measure=MEASURE), recipe).reason == expected


@given(elements=st.integers(2**31 - 3, 2**31 + 3))
def test_memory_limits_the_largest_tensor(elements: int) -> None:
    wide = TensorSpec(shape=(elements,), dtype="bool")
    workload = msgspec.structs.replace(TASK.workloads[0], inputs=(wide,))
    task = msgspec.structs.replace(TASK, workloads=(workload,))
    verdict = judge(Case(task=task, probe=PROBE, measure=MEASURE), RECIPE)
    assert verdict.reason == (None if elements < 2**31 else "memory")


def test_ops_that_did_not_run_reject() -> None:
    seen = msgspec.structs.replace(PROBE, ops_difference="torch.sum is not called", num_nonfinite=1)
    verdict = judge(Case(task=TASK, probe=seen, measure=MEASURE), RECIPE)
    assert (verdict.reason, verdict.witness) == ("ops_true", "torch.sum is not called")


def test_a_failure_speaks_for_its_criterion_and_silences_what_never_ran() -> None:
    failure = Failure(
        criterion="executes",
        stage="compile",
        kind="Unsupported",
        message="graph\n  break",
        trace="",
    )
    stopped = MeasureEvidence(environment_id="here", failure=failure, observed=(LEAF,))
    verdict = judge(Case(task=TASK, probe=PROBE, measure=stopped), RECIPE)
    assert verdict.witness == "Unsupported in compile: graph break"
    assert [finding.criterion for finding in verdict.failed] == ["executes"]


def test_code_that_only_meta_could_look_at_is_measured_but_not_admitted() -> None:
    seen = ProbeEvidence(observed=(LEAF,))
    assert pending([Case(task=TASK, probe=seen)], RECIPE).measure == (TASK,)
    verdict = judge(Case(task=TASK, probe=seen, measure=MEASURE), RECIPE)
    assert (verdict.status, verdict.reason) == (Status.DEFERRED, "unmeasured")
    out = msgspec.structs.replace(MEASURE, timings=(eager(200.0),))
    assert judge(Case(task=TASK, probe=seen, measure=out), RECIPE).reason == "runtime_window"


FOREIGN = msgspec.structs.replace(TASK, graph_hash=None, estimate=None)
INPUT = Effect(subject="input x", change="redrawn", margin=50.0)
WHOLE = msgspec.structs.replace(MEASURE, has_stable_inputs=True, effects=(INPUT,))


def test_foreign_code_without_anything_small_is_decided_at_full_size() -> None:
    seen = ProbeEvidence(observed=(LEAF,))

    def verdict(**changes: object) -> Verdict:
        late = msgspec.structs.replace(WHOLE, **changes)
        return judge(Case(task=FOREIGN, probe=seen, measure=late), RECIPE)

    assert verdict().status is Status.ADMITTED
    dead = msgspec.structs.replace(INPUT, margin=0.5)
    assert verdict(effects=(INPUT, dead)).reason == "live"
    assert verdict(has_stable_inputs=False).reason == "stable_inputs"
    assert verdict(num_nonfinite=1).reason == "finite"
    assert verdict(is_pure=False).reason == "deterministic"
    assert verdict(tolerances=()).reason == "judgeable"
    for missing in ({"effects": ()}, {"has_stable_inputs": None}):
        assert verdict(**missing).reason == "unmeasured"


def test_probe_reasons_come_before_measure_reasons() -> None:
    seen = msgspec.structs.replace(PROBE, has_stable_inputs=False, num_nonfinite=1)
    late = msgspec.structs.replace(MEASURE, num_graphs=2, peak_bytes=2**40)
    verdict = judge(Case(task=TASK, probe=seen, measure=late), RECIPE)
    names = [finding.criterion for finding in verdict.failed]
    assert names == ["finite", "stable_inputs", "executes", "memory"]
