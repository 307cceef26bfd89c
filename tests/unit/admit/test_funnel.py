"""Counts that add up, comparisons, and the cut of a release."""

import random

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from opsgen.admit import compare, funnel, reason_order, select
from opsgen.records import Status, Verdict
from opsgen.testing import verdicts

CLASSES = ("torch#1", "torch#2")


@st.composite
def verdict_lists(draw: st.DrawFn) -> list[Verdict]:
    return [
        draw(verdicts(data_source=name, line=line))
        for name in CLASSES
        for line in range(draw(st.integers(0, 6)))
    ]


@given(seen=verdict_lists())
def test_every_sampled_task_is_counted_once(seen: list[Verdict]) -> None:
    counts = funnel(seen)
    assert counts.sampled == len(seen)
    assert counts.admitted + counts.num_rejected + counts.num_deferred == counts.sampled
    for row in counts.classes:
        assert row.admitted + row.rejected + row.deferred == row.sampled
    assert sum(row.sampled for row in counts.classes) == counts.sampled
    reasons = [entry.reason for entry in counts.rejected]
    assert reasons == sorted(reasons, key=reason_order)


@given(old=verdict_lists(), new=verdict_lists())
def test_compare_lists_exactly_what_differs(old: list[Verdict], new: list[Verdict]) -> None:
    assert compare(new, new) == []
    before = {verdict.task_id: (verdict.status, verdict.reason) for verdict in old}
    changes = {change.task_id: change for change in compare(old, new)}
    for verdict in new:
        change = changes.get(verdict.task_id)
        assert (change is None) == (before.get(verdict.task_id) == (verdict.status, verdict.reason))
        if change is not None:
            assert (change.new_status, change.new_reason) == (verdict.status, verdict.reason)
            assert (change.old_status is None) == (verdict.task_id not in before)


@given(seen=verdict_lists(), seed=st.integers(0, 99), wanted=st.integers(0, 4))
def test_select_takes_the_first_admitted_in_plan_order(
    seen: list[Verdict], seed: int, wanted: int
) -> None:
    want = dict.fromkeys(CLASSES, wanted)
    cut = select(random.Random(seed).sample(seen, len(seen)), want)
    for name in CLASSES:
        admitted = [
            verdict.task_id
            for verdict in seen
            if verdict.data_source == name and verdict.status is Status.ADMITTED
        ]
        assert list(cut.chosen[name]) == admitted[:wanted]
        assert cut.missing.get(name, 0) == wanted - len(cut.chosen[name])
    assert cut.is_complete == (not cut.missing)
    assert len(cut.task_ids) == sum(len(ids) for ids in cut.chosen.values())


@given(seen=verdict_lists(), wanted=st.integers(0, 4))
def test_select_reports_deferred_lines_before_the_cut_only(
    seen: list[Verdict], wanted: int
) -> None:
    cut = select(seen, dict.fromkeys(CLASSES, wanted))
    lines = {verdict.task_id: verdict.line for verdict in seen}
    for name in CLASSES:
        chosen = [lines[task_id] for task_id in cut.chosen[name]]
        is_full = len(chosen) == wanted
        expected = [
            verdict
            for verdict in seen
            if verdict.data_source == name
            and verdict.status is Status.DEFERRED
            and (not is_full or (chosen and verdict.line < chosen[-1]))
        ]
        assert [one for one in cut.skipped if one.data_source == name] == expected


@given(seen=verdict_lists())
def test_more_wanted_tasks_extend_a_release_and_change_nothing_before(seen: list[Verdict]) -> None:
    small = select(seen, dict.fromkeys(CLASSES, 1)).chosen
    large = select(seen, dict.fromkeys(CLASSES, 3)).chosen
    assert all(large[name][: len(small[name])] == small[name] for name in CLASSES)


def test_a_change_to_admitted_still_tells_what_had_failed() -> None:
    old = Verdict(
        task_id="t",
        data_source="torch#2",
        line=0,
        status=Status.REJECTED,
        reason="live",
        witness="node 1 is dead",
    )
    new = msgspec.structs.replace(old, status=Status.ADMITTED, reason=None, witness=None)
    assert compare([old], [new])[0].witness == "node 1 is dead"
