"""The audit of foreign tasks: the same stages on a collection that somebody else made.

The run folder is named by the source, and by a hash of its rows and of all
that determines evidence, so the same command resumes after any end.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import msgspec

from opsgen.admit import Case, pending
from opsgen.fleet import Fleet
from opsgen.recipe import Recipe
from opsgen.records import PlanLine, Record, Task, Verdict, digest, encode_line
from opsgen.release.audits import AuditRow, audit_row, write_audit
from opsgen.release.fetching import Source
from opsgen.run.digest import run_digest
from opsgen.run.folder import RunFolder
from opsgen.run.foreign import ForeignStages
from opsgen.run.requests import table_paths
from opsgen.run.stages import check_machine
from opsgen.run.summary import AuditSummary, summarise
from opsgen.source import read_rows, task_of_row
from opsgen.source.families import Families

RECIPE_PATH = Path(__file__).with_name("audit.toml")
"""The recipe of audits, the same as `pipelines/audit.toml`."""
_SLUG = re.compile(r"[^A-Za-z0-9._-]+")


class AuditOptions(Record, frozen=True, kw_only=True):
    """What to do with a source, apart from its recipe."""

    runs: Path
    """Folder of all runs."""
    probe_only: bool = False
    """Stop before anything is measured."""
    limit: int | None = None
    """Rows that are read; absent for all."""
    scheduler: str | None = None
    """Address of a Dask scheduler; absent for a cluster of this machine's own."""


@dataclass(frozen=True, slots=True)
class Audit:
    """What an audit came to.

    Attributes:
        folder: The run folder.
        table: The parquet with a row for every row of the source.
        cases: All tasks with their evidence, in the order of the source.
        verdicts: Their verdicts, in the same order.
        summary: The table in numbers.
        columns: Columns that the code was read from; empty for Python files.
        drift: In a line how times drifted during the run; None if they repeated.
        wall_s: Seconds this call took.
    """

    folder: Path
    table: Path
    cases: list[Case]
    verdicts: list[Verdict]
    summary: AuditSummary
    columns: tuple[str, ...]
    drift: str | None
    wall_s: float


@dataclass(frozen=True, slots=True)
class _Survey:
    """A source as it is before any code is parsed.

    Attributes:
        content: Digest of all rows, wherever they lie.
        counts: Rows by data source, in the order of their first.
        columns: Columns that the code is from.
    """

    content: str
    counts: dict[str, int]
    columns: tuple[str, ...]


def audit_source(
    source: Source,
    recipe: Recipe,
    options: AuditOptions,
    announce: Callable[[str], None] = lambda line: None,
) -> Audit:
    """Probe every row of a source, measure what that leaves undecided, and judge all.

    Args:
        source: What is audited.
        recipe: How; its quota classes are replaced by the data sources found.
        options: How far, and where.
        announce: Gets a line at the beginning of each part.

    Raises:
        UsageError: The source cannot be read, or this machine will not do; nothing is lost.
    """
    start_s = time.monotonic()
    survey = _survey(source, options.limit)
    want = msgspec.structs.replace(recipe.release, want=survey.counts)
    recipe = msgspec.structs.replace(recipe, release=want)
    folder = _folder(source, recipe, survey, options)
    with ExitStack() as stack:

        def begin() -> None:
            announce(f"source     {source.label}: {sum(survey.counts.values())} rows")
            announce(f"run        {folder.path}")
            stack.enter_context(folder.locked())
            _store_tasks(folder, source, options.limit)

        is_new = not folder.path.exists()
        if not is_new:
            begin()
        if is_new or _has_work(ForeignStages(folder), options):
            # Probes need a processor only, whatever the device that would measure.
            device = "cpu" if options.probe_only else recipe.measure.device
            with Fleet(recipe.fleet, device, options.scheduler, table_paths(recipe)) as fleet:
                if not options.probe_only:
                    check_machine(fleet, device)
                if is_new:
                    # Only now: a machine that will not do leaves nothing behind.
                    begin()
                announce(f"dashboard  {fleet.dashboard or 'none'}")
                _look(ForeignStages(folder, fleet), options)
        audit = _finish(ForeignStages(folder), survey, start_s)
        if audit.drift:
            announce(audit.drift)
        return audit


def _survey(source: Source, limit: int | None) -> _Survey:
    state = hashlib.blake2b(digest_size=8)
    counts: Counter[str] = Counter()
    columns: dict[str, None] = {}
    for row in read_rows(source.path, limit=limit):
        state.update(encode_line(msgspec.structs.replace(row, origin="", column=None)) + b"\n")
        counts[row.data_source] += 1
        if row.column is not None:
            columns.setdefault(row.column)
    return _Survey(content=state.hexdigest(), counts=dict(counts), columns=tuple(columns))


def _folder(source: Source, recipe: Recipe, survey: _Survey, options: AuditOptions) -> RunFolder:
    slug = _SLUG.sub("-", source.name) or "source"
    state = digest(run_digest(recipe), survey.content)
    name = f"{recipe.name}-{slug}-{state[:6]}"
    return RunFolder(options.runs / name, recipe)


def _store_tasks(folder: RunFolder, source: Source, limit: int | None) -> None:
    """Write the tasks that the folder lacks: a run may have been killed while reading."""
    known = len(folder.lines())
    rows = islice(read_rows(source.path, limit=limit), known, None)
    folder.append_lines(_plan_line(task_of_row(row), source) for row in rows)


def _plan_line(task: Task, source: Source) -> PlanLine:
    origin = source.label + (task.origin or "").removeprefix(str(source.path))
    named = msgspec.structs.replace(task, origin=origin)
    return PlanLine(data_source=task.data_source, line=task.line, task=named, tries=())


def _has_work(stages: ForeignStages, options: AuditOptions) -> bool:
    """Tell whether a stage could decide a task, given another chance where a machine failed."""
    left = pending(stages.open_cases(), stages.recipe)
    if left.probe or options.probe_only:
        return bool(left.probe)
    return bool(left.measure) or stages.has_retimings_left(stages.cases())


def _look(stages: ForeignStages, options: AuditOptions) -> None:
    stages.probe()
    if not options.probe_only:
        stages.measure()


def _finish(stages: ForeignStages, survey: _Survey, start_s: float) -> Audit:
    """Judge, write the table and count it."""
    folder = stages.folder
    by_line = {(v.data_source, v.line): v for v in stages.admit()}
    cases = stages.cases()
    report = stages.report(list(by_line.values()))
    verdicts = [by_line[case.task.data_source, case.task.line] for case in cases]
    families = _find_families(cases)
    light: list[AuditRow] = []

    def rows() -> Iterator[AuditRow]:
        for case, verdict, family in zip(cases, verdicts, families, strict=True):
            row = audit_row(case, verdict, family)
            # The summary counts without the evidence, which is most of a row.
            light.append(msgspec.structs.replace(row, evidence=""))
            yield row

    table = folder.path / f"audit-{digest(folder.recipe.admit)[:4]}.parquet"
    write_audit(table, rows())
    return Audit(
        folder=folder.path,
        table=table,
        cases=cases,
        verdicts=verdicts,
        summary=summarise(light),
        columns=survey.columns,
        drift=report.drift,
        wall_s=time.monotonic() - start_s,
    )


def _find_families(cases: list[Case]) -> list[str]:
    """Return the family of each task by its source and, where it is known, its trace."""
    families = Families()
    shapes = []
    for case in cases:
        trace = case.probe.trace if case.probe else None
        shapes.append(families.add(case.task.code, *([trace.hash] if trace else ())))
    return [families.family(shape) for shape in shapes]
