"""Audits without a fleet: the recipe, what names a run, the table, and the summary of it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsgen.admit import Case, admit_all, funnel
from opsgen.fleet import Journal
from opsgen.recipe import ProbeConfig, Recipe, read_recipe, write_recipe
from opsgen.records import Attempt, Fault, PlanLine, decode_line, encode_line, read_lines
from opsgen.release.audits import AuditRow, audit_row, audit_schema, write_audit
from opsgen.release.fetching import Source
from opsgen.run import auditing
from opsgen.run.auditing import AuditOptions, audit_source
from opsgen.run.summary import summarise
from opsgen.source import foreign_task
from opsgen.testing import plans

ROOT = Path(__file__).parents[3]


def table_of(cases: list[Case], recipe: Recipe) -> list[AuditRow]:
    verdicts = {(v.data_source, v.line): v for v in admit_all(cases, recipe)}
    return [
        audit_row(case, verdicts[case.task.data_source, case.task.line], f"family{number // 2}")
        for number, case in enumerate(cases)
    ]


def test_the_recipe_that_ships_is_what_audits_use() -> None:
    shipped = ROOT / "pipelines" / "audit.toml"
    assert auditing.RECIPE_PATH.read_bytes() == shipped.read_bytes()
    recipe = read_recipe(shipped)
    assert recipe.fleet.sandbox
    assert recipe.probe.benchmarks
    assert msgspec.convert(msgspec.to_builtins(recipe), Recipe) == recipe
    assert read_recipe(shipped, ("fleet.sandbox=false",)).fleet.sandbox is False
    assert "sandbox = true" in write_recipe(recipe)


@given(plans())
def test_the_table_holds_every_row_and_what_is_known_of_it(plan: list[Case]) -> None:
    rows = table_of(plan, Recipe(name="audit", seed=1))
    with TemporaryDirectory() as folder:
        path = Path(folder) / "audit.parquet"
        write_audit(path, iter(rows))
        read = pq.read_table(path)
        assert [each.name for each in Path(folder).iterdir()] == [path.name]
    assert read.schema.equals(audit_schema())
    meanings = [field.metadata[b"meaning"] for field in audit_schema()]
    assert [field.metadata[b"meaning"] for field in read.schema] == meanings
    back = msgspec.convert(read.to_pylist(), list[AuditRow])
    assert list(map(encode_line, back)) == list(map(encode_line, rows))
    for row, case in zip(back, plan, strict=True):
        evidence = json.loads(row.evidence)
        for name in ("probe", "measure"):
            kept = evidence[name] and decode_line(
                json.dumps(evidence[name]), type(getattr(case, name))
            )
            assert repr(kept) == repr(getattr(case, name))


def test_every_column_says_what_it_means() -> None:
    for field in audit_schema():
        assert field.metadata[b"meaning"], field.name
        assert field.type not in (pa.null(), pa.large_string())


@given(plans())
def test_the_summary_adds_up_and_agrees_with_the_funnel(plan: list[Case]) -> None:
    recipe = Recipe(name="audit", seed=1)
    rows = table_of(plan, recipe)
    summary = summarise(rows)
    counted = funnel(admit_all(plan, recipe))
    total = summary.total
    assert total.rows == counted.sampled == len(plan)
    assert total.admitted == counted.admitted
    assert total.rejected == counted.num_rejected
    assert total.deferred + total.probed == counted.num_deferred
    parts = [msgspec.structs.astuple(each)[1:] for each in summary.sources]
    if parts:
        assert [sum(column) for column in zip(*parts, strict=True)] == list(
            msgspec.structs.astuple(total)[1:]
        )
    rejected = [(each.reason, each.count) for each in counted.rejected]
    shown = [(each.reason, each.count) for each in summary.reasons if each.status == "rejected"]
    assert shown == rejected
    for each in summary.reasons:
        assert 1 <= len(each.shown) <= min(each.count, 3)
        of_it = [row for row in rows if (row.status, row.reason) == (each.status, each.reason)]
        assert len({s.witness for s in each.shown}) == min(3, len({r.witness for r in of_it}))
    assert summary.num_families == len({row.family for row in rows})
    modes = Counter(row.mode_class for row in rows)
    assert {name: summary.labels[f"mode_class: {name}"] for name in ("same", "mutates")} == {
        name: modes[name] for name in ("same", "mutates")
    }


def test_only_a_missing_measurement_is_called_probed() -> None:
    recipe = Recipe(name="audit", seed=1)
    task = foreign_task("x = 1", origin="a.py")
    fault = Fault(reason="infrastructure", stage="probe", detail="no disk")
    for case in (Case(task=task), Case(task=task, probe_faults=(fault,) * 6)):
        (row,) = table_of([case], recipe)
        assert row.status == "deferred"
        assert summarise([row]).num_faulted == len(case.probe_faults) // 6
        assert summarise([row]).num_passing == 0


class Machines:
    """A fleet in place of the real one: what it is asked is answered by a fault of the task."""

    asked: list[str]
    dashboard = None
    num_devices = 1

    def __init__(self, *args: object) -> None:
        Machines.asked = []

    def __enter__(self) -> Machines:
        return self

    def __exit__(self, *args: object) -> None:
        """Leave nothing."""

    def run(self, requests: list[tuple[str, object]], journal: Journal, history: object) -> object:
        for key, _ in requests:
            Machines.asked.append(key)
            fault = Fault(reason="raised", stage="probe", detail="it does")
            attempt = Attempt(
                job="probe", key=key, number=0, fault=fault, host="h", pid=1, started_s=0, wall_s=0
            )
            journal.append(attempt)
            yield attempt


@pytest.fixture
def collection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(auditing, "Fleet", Machines)
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps({"code": f"x = {n}"}) + "\n" for n in (1, 2, 1, 3)))
    return path


def audit(path: Path, limit: int | None = None, **thresholds: object) -> auditing.Audit:
    recipe = Recipe(name="audit", seed=1, probe=ProbeConfig(benchmarks=()))
    recipe = msgspec.structs.replace(
        recipe, admit=msgspec.structs.replace(recipe.admit, **thresholds)
    )
    options = AuditOptions(runs=path.parent / "runs", probe_only=True, limit=limit)
    return audit_source(Source(path=path, label=str(path), name=path.stem), recipe, options)


def test_each_text_is_asked_once_and_never_again(collection: Path) -> None:
    first = audit(collection)
    assert len(Machines.asked) == 3
    assert [v.reason for v in first.verdicts] == ["raised", "raised", "novel", "raised"]
    Machines.asked = []
    assert audit(collection).verdicts == first.verdicts
    assert Machines.asked == []


def test_origins_begin_with_the_name_that_was_given(collection: Path) -> None:
    recipe = Recipe(name="audit", seed=1, probe=ProbeConfig(benchmarks=()))
    options = AuditOptions(runs=collection.parent / "runs", probe_only=True)
    source = Source(path=collection.parent, label="own/tasks@0123", name="tasks")
    done = audit_source(source, recipe, options)
    origins = [case.task.origin for case in done.cases]
    assert origins == [f"own/tasks@0123/rows.jsonl:{number}" for number in range(4)]
    assert done.verdicts[2].witness.endswith(origins[0])


@pytest.mark.parametrize("kept", [0, 1, 3])
def test_tasks_that_a_killed_reader_left_out_are_added(kept: int, collection: Path) -> None:
    first = audit(collection)
    path = first.folder / "tasks.jsonl"
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:kept]) + lines[kept][:10])
    assert audit(collection).verdicts == first.verdicts
    assert path.read_bytes() == whole
    assert [line.line for line in read_lines(path, PlanLine)] == [0, 1, 2, 3]


def test_a_run_is_named_by_its_rows_and_not_by_where_they_lie(collection: Path) -> None:
    first = audit(collection)
    assert first.folder.name.startswith("audit-rows-")
    parquet = collection.with_suffix(".parquet")
    pq.write_table(pa.table({"code": [f"x = {n}" for n in (1, 2, 1, 3)]}), parquet)
    assert audit(parquet).folder == first.folder
    assert audit(collection, trivial_margin=2.0).folder == first.folder
    assert audit(collection, trivial_margin=2.0).table != first.table
    assert audit(collection, limit=4).folder == first.folder
    assert audit(collection, limit=3).folder != first.folder
    collection.write_text(collection.read_text().replace("3", "4"))
    assert audit(collection).folder != first.folder


@given(st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=6))
def test_the_witnesses_shown_are_rows_of_the_reason(texts: list[str]) -> None:
    recipe = Recipe(name="audit", seed=1)
    cases = [
        Case(
            task=foreign_task(f"x = {n}", origin=f"{n}.py", line=n),
            probe_faults=(Fault(reason="raised", stage="probe", detail=text),),
        )
        for n, text in enumerate(texts)
    ]
    (reason,) = summarise(table_of(cases, recipe)).reasons
    assert reason.count == len(texts)
    for shown in reason.shown:
        number = int(shown.origin.removesuffix(".py"))
        assert shown.witness.endswith(texts[number])
