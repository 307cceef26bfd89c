"""Nearness to a benchmark: what is found in a table of tasks, and what lies below its limits."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path

import pytest
from disguises import add_identity, disguise, resize
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from opsgen.errors import UsageError
from opsgen.records import Task, Trace, digest
from opsgen.source.chance import draw_tasks, null_bins, null_pairs
from opsgen.source.contamination import find_overlap
from opsgen.source.fingerprints import (
    Fingerprint,
    fingerprint,
    load_table,
    make_table,
    write_table,
)
from opsgen.source.normalise import read_form

NUM_PLANTED = 40


def trace_of(task: Task) -> Trace:
    """Return a stand-in for what the probe records: it depends on the graph and on sizes."""
    sizes = task.workloads[0].sizes
    return Trace(
        hash=digest(task.graph_hash),
        sized_hash=digest(task.graph_hash, sizes),
        calls=task.ops,
        signature=(*(each.dtype for each in task.workloads[0].inputs), ">"),
        num_nodes=len(task.ops),
    )


@cache
def planted() -> list[Task]:
    """Tasks of one, two and three ops that make up the benchmark."""
    drawn = [task for task in draw_tasks(300, seed=2) if task.data_source != "transformers"]
    return drawn[:: len(drawn) // NUM_PLANTED][:NUM_PLANTED]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("tables") / "planted.parquet"
    names = {f"planted/level{task.level}/{n}": task for n, task in enumerate(planted())}
    rows = [fingerprint(task, trace_of(task), name) for name, task in names.items()]
    codes = {name: task.code for name, task in names.items()}
    write_table(path, make_table(rows, null_bins(null_pairs(rows, codes, draw_tasks(300)))))
    return str(path)


@given(st.integers(0, NUM_PLANTED - 1), st.integers(0, 2**32).map(random.Random))
def test_a_disguised_task_is_found(table: str, place: int, rng: random.Random) -> None:
    task = planted()[place]
    trace = trace_of(task)
    resized = replace(trace, sized_hash="other sizes")
    found = find_overlap(disguise(resize(task.code, rng), rng), resized, (table,))
    assert found is not None
    is_single = len(task.ops) == 1
    assert found.similarity == 1.0
    assert (found.limit < 1.0) is not is_single
    for same in (found.same_trace, found.same_calls):
        assert (same is None) is is_single
    same_sizes = find_overlap(disguise(task.code, rng), trace, (table,))
    assert same_sizes is not None
    row = next(row for row in load_table(table).rows if row.name == same_sizes.same_trace)
    assert row.trace_hash == trace.hash
    assert row.sized_hash == trace.sized_hash


def test_with_a_line_more_most_lie_above_the_limit(table: str) -> None:
    margins = []
    for task in planted():
        if len(task.ops) > 1:
            other = replace(trace_of(task), hash="other", calls=("other", *task.ops))
            found = find_overlap(add_identity(task.code), other, (table,))
            assert found is not None
            assert (found.same_trace, found.same_calls) == (None, None)
            assert found.similarity < 1
            margins.append(found.similarity - found.limit)
    assert sum(margin > 0 for margin in margins) >= 0.75 * len(margins) > 20


def test_calls_are_the_same_with_their_signature_only(table: str) -> None:
    task = next(task for task in planted() if len(task.ops) > 1)
    trace = replace(trace_of(task), hash="other")
    code = next(task for task in draw_tasks(20, seed=9)).code
    same = find_overlap(code, trace, (table,))
    other = find_overlap(code, replace(trace, signature=("float16[1]", ">")), (table,))
    assert same is not None
    assert other is not None
    assert same.same_trace is None
    assert same.same_calls is not None
    assert other.same_calls is None


def test_without_a_trace_only_similarity_speaks(table: str) -> None:
    task = next(task for task in planted() if len(task.ops) == 1)
    found = find_overlap(task.code, None, (table,))
    assert found is not None
    assert (found.similarity, found.same_trace, found.same_calls) == (1.0, None, None)
    assert found.limit < 1.0


def test_the_nearest_is_that_of_all_pairs(table: str) -> None:
    rows = load_table(table).rows
    for task in draw_tasks(150, seed=4):
        found = find_overlap(task.code, None, (table,))
        grams = set(fingerprint(task, None, "x").shingles)
        exact = {
            row.name: len(grams & set(row.shingles)) / len(grams | set(row.shingles))
            for row in rows
        }
        assert found is not None
        assert found.similarity == max(exact.values())
        assert found.nearest == min(name for name in exact if exact[name] == found.similarity)


def test_a_table_is_read_as_it_was_written(table: str, tmp_path: Path) -> None:
    first = load_table(table)
    assert len(first.rows) == NUM_PLANTED
    path = tmp_path / "again.parquet"
    write_table(path, make_table(reversed(first.rows), first.null, first.canary))
    second = load_table(str(path))
    assert (second.rows, second.null, second.digest) == (first.rows, first.null, first.digest)
    write_table(path, make_table(first.rows[1:], first.null))
    assert load_table(str(path)).rows == first.rows[1:]
    assert load_table(str(path)).digest != first.digest
    assert not any(text in Path(table).read_bytes() for text in (b"forward", b"get_inputs"))


def test_several_tables_are_one(table: str, tmp_path: Path) -> None:
    task = next(task for task in draw_tasks(20, seed=9))
    path = tmp_path / "own.parquet"
    write_table(path, make_table([fingerprint(task, None, "own/task")]))
    found = find_overlap(task.code, None, (table, str(path)))
    assert found is not None
    assert (found.nearest, found.limit) == ("own/task", 1.0)
    assert found.tables != find_overlap(task.code, None, (table,)).tables  # type: ignore[union-attr]
    assert find_overlap(task.code, None, ()) is None


def test_a_bad_table_is_one_line(tmp_path: Path) -> None:
    code = "class Model: pass"
    with pytest.raises(UsageError, match=r"benchmark kernelbanch: no such table; shipped: \w+"):
        find_overlap(code, None, ("kernelbanch",))
    missing = tmp_path / "missing.parquet"
    with pytest.raises(UsageError, match=r"missing\.parquet: no such file"):
        find_overlap(code, None, (str(missing),))
    missing.write_text("no parquet")
    with pytest.raises(UsageError, match=r"missing\.parquet: no table of fingerprints") as caught:
        find_overlap(code, None, (str(missing),))
    assert "\n" not in str(caught.value)


def test_unrelated_pairs_exclude_tasks_of_the_same_ops() -> None:
    tasks = planted()
    rows = [fingerprint(task, None, f"t/{n}") for n, task in enumerate(tasks)]
    codes = {f"t/{n}": task.code for n, task in enumerate(tasks)}
    alone = null_pairs(rows, codes, [])
    twice = null_pairs(rows, codes, [replace(task, line=7) for task in tasks])
    assert sorted(twice) == sorted(alone * 2)
    assert all(similarity < 1 for _, similarity in alone)


@given(st.lists(st.tuples(st.integers(1, 300), st.floats(0, 1)), min_size=1))
def test_quantiles_are_of_their_bin(pairs: list[tuple[int, float]]) -> None:
    bins = null_bins(pairs)
    assert sum(each.num_pairs for each in bins) == len(pairs)
    for place, each in enumerate(bins):
        top = bins[place + 1].min_tokens if place + 1 < len(bins) else 10**9
        values = [value for tokens, value in pairs if each.min_tokens <= tokens < top]
        assert len(values) == each.num_pairs
        assert max(values) == each.max
        for share, quantile in ((0.5, each.median), (0.9, each.q90), (0.999, each.q999)):
            assert sum(value <= quantile for value in values) >= share * len(values)
            assert sum(value < quantile for value in values) < share * len(values)


@pytest.mark.check
def test_two_thousand_unrelated_tasks_and_the_shipped_table(record_property) -> None:
    shipped = load_table("kernelbench")
    tasks = [task for task in draw_tasks(2600, seed=11) if task.level > 1][:2000]
    alarms = {}
    for task in tasks:
        found = find_overlap(task.code, None, ("kernelbench",))
        assert found is not None
        if found.similarity > found.limit:
            alarms[task.task_id] = (task.ops, found.nearest, found.similarity, found.limit)
    record_property("above the limit of 2,000 sampled tasks", len(alarms))
    for told in alarms.values():
        record_property("above", told)
    assert len(shipped.rows) == 270
    assert len(alarms) <= 8  # 2 are expected, and as many again by the draw
    assert read_form(tasks[0].code).words
    assert isinstance(shipped.rows[0], Fingerprint)
