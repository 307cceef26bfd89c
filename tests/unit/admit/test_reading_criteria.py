"""What is read off source, traces and benchmarks: novelty, contamination, triviality of twins."""

from __future__ import annotations

import msgspec
import pytest

from opsgen.admit import Case, admit_all, judge, pending
from opsgen.recipe import AdmitConfig, Recipe
from opsgen.records import (
    Effect,
    LazyAnswer,
    Overlap,
    ProbeEvidence,
    SourceFault,
    Status,
    Task,
    TensorSpec,
    Tolerance,
    Trace,
)

RECIPE = Recipe(name="tests", seed=0)
LABELLED = Recipe(name="tests", seed=0, admit=AdmitConfig(contamination="label"))
LEAF = TensorSpec(shape=(64, 32), dtype="float32")
TRACE = Trace(
    hash="t0",
    sized_hash="s0",
    calls=("torch.relu", "torch.sum"),
    signature=("float32[2]", ">", "float32[1]"),
    num_nodes=2,
)
OVERLAP = Overlap(nearest="bench/one", similarity=0.7, limit=0.8, tables="d0")
PROBE = ProbeEvidence(
    observed=(LEAF,),
    num_draws=15,
    tolerances=(Tolerance(value=1e-5, error=1e-6, num_terms=32, is_assumed=False),),
    is_repeatable=True,
    is_pure=True,
    has_stable_inputs=True,
    answers=(LazyAnswer(name="zeros", margin=1e5, passes_1e_2=False),),
    effects=(Effect(subject="input x", change="redrawn", margin=1e5),),
    trace=TRACE,
    overlap=OVERLAP,
)


def foreign(task_id: str = "f0", line: int = 0) -> Task:
    return Task(
        task_id=task_id,
        data_source="level2",
        line=line,
        level=2,
        ops=(),
        code="class Model: ...",
        workloads=(),
        family=task_id,
        origin=f"rows.parquet:{line}",
    )


def sampled(task_id: str, line: int) -> Task:
    return msgspec.structs.replace(
        foreign(task_id, line), graph_hash=f"g-{task_id}", data_source="torch#2", origin=None
    )


def probe(recipe: Recipe = RECIPE, **changes: object) -> tuple[str | None, str]:
    seen = msgspec.structs.replace(PROBE, **changes)
    verdict = judge(Case(task=foreign(), probe=seen), recipe)
    return verdict.reason, verdict.witness or ""


def test_what_nothing_speaks_against_goes_on() -> None:
    assert probe()[0] == "unmeasured"


FAILING = [
    (
        {"source_faults": (SourceFault(criterion="live", rule="unused", line=9, witness="y"),)},
        "live",
        "line 9: y (unused)",
    ),
    ({"overlap": msgspec.structs.replace(OVERLAP, same_trace="b/2")}, "uncontaminated", "b/2"),
    ({"overlap": msgspec.structs.replace(OVERLAP, same_calls="b/3")}, "uncontaminated", "b/3"),
    (
        {"overlap": msgspec.structs.replace(OVERLAP, similarity=0.81)},
        "uncontaminated",
        "0.810 like bench/one (0.800 by chance)",
    ),
    (
        {"answers": (LazyAnswer(name="replay", margin=1.0, passes_1e_2=False),)},
        "nontrivial",
        "replay passes on the twin at 1 x",
    ),
    (
        {"answers": (LazyAnswer(name="zeros", margin=float("nan"), passes_1e_2=False),)},
        "nontrivial",
        "zeros",
    ),
    (
        {
            "answers": (LazyAnswer(name="replay", margin=50.0, passes_1e_2=True),),
            "is_full_size": True,
        },
        "nontrivial",
        "replay passes at the 1e-2",
    ),
    ({"unverified_fraction": 0.06}, "live", "6.0% of the work"),
    ({"draw_s": 10.5}, "stable_inputs", "10.5 s (10 allowed)"),
    ({"peak_bytes": 17 * 2**30}, "memory", "predicted peak 17 GiB"),
    ({"largest_elements": 2**31}, "memory", "2147483648 elements"),
]


@pytest.mark.parametrize(("changes", "reason", "witness"), FAILING, ids=range(len(FAILING)))
def test_each_is_told_with_its_witness(
    changes: dict[str, object], reason: str, witness: str
) -> None:
    told = probe(**changes)
    assert told[0] == reason
    assert witness in told[1]


@pytest.mark.parametrize(
    "changes",
    [
        {"answers": (LazyAnswer(name="replay", margin=1.01, passes_1e_2=True),)},
        {"unverified_fraction": 0.05},
        {"draw_s": 10.0},
        {"overlap": msgspec.structs.replace(OVERLAP, similarity=0.8)},
        {"overlap": None, "trace": None},
        {"peak_bytes": 16 * 2**30, "largest_elements": 2**31 - 1},
    ],
)
def test_what_stands_on_a_threshold_passes(changes: dict[str, object]) -> None:
    assert probe(**changes)[0] == "unmeasured"


def test_a_benchmark_may_be_audited_itself() -> None:
    same = msgspec.structs.replace(OVERLAP, same_trace="b/2", same_calls="b/2", similarity=1.0)
    assert probe(LABELLED, overlap=same)[0] == "unmeasured"


def verdicts(*cases: Case) -> list[tuple[str | None, str]]:
    return [(v.reason, v.witness or "") for v in admit_all(cases, RECIPE)]


def test_foreign_tasks_repeat_each_other_by_their_trace() -> None:
    one, two = (Case(task=foreign(f"f{line}", line), probe=PROBE) for line in range(2))
    first, second = verdicts(two, one)
    assert first[0] == "unmeasured"
    assert second[0] == "novel"
    assert "same trace as level2 line 0 (f0), rows.parquet:0" in second[1]
    assert [task.line for task in pending([one, two], RECIPE).measure] == [0]


@pytest.mark.parametrize("is_equal", [True, False])
def test_a_single_call_repeats_only_with_its_sizes(*, is_equal: bool) -> None:
    single = msgspec.structs.replace(TRACE, calls=("torch.relu",))
    other = single if is_equal else msgspec.structs.replace(single, sized_hash="s1")
    found = verdicts(
        Case(task=foreign(), probe=msgspec.structs.replace(PROBE, trace=single)),
        Case(task=foreign("f1", 1), probe=msgspec.structs.replace(PROBE, trace=other)),
    )
    assert found[1][0] == ("novel" if is_equal else "unmeasured")


def test_sampled_tasks_repeat_foreign_ones_but_not_each_other_by_their_trace() -> None:
    early, late = sampled("a", 0), sampled("b", 1)
    both = verdicts(Case(task=early, probe=PROBE), Case(task=late, probe=PROBE))
    assert [reason for reason, _ in both] == ["unmeasured", "unmeasured"]
    mixed = verdicts(Case(task=foreign(), probe=PROBE), Case(task=late, probe=PROBE))
    assert [reason for reason, _ in mixed] == ["unmeasured", "novel"]


def test_a_repeat_counts_whatever_became_of_the_first() -> None:
    broken = msgspec.structs.replace(PROBE, num_nonfinite=1)
    found = admit_all(
        [Case(task=foreign(), probe=broken), Case(task=foreign("f1", 1), probe=PROBE)], RECIPE
    )
    assert [each.reason for each in found] == ["finite", "novel"]
    assert all(each.status is Status.REJECTED for each in found)
