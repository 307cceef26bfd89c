"""What an audit leaves: one table with a row for every row of its source.

A row joins with its source by `origin` or `line`; the code itself stays
there. Columns are declared in `AuditRow`, and each carries its meaning in the
metadata of its field.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from opsgen.admit import Case
from opsgen.records import Effect, LazyAnswer, ProbeEvidence, Record, Status, Verdict, encode_line
from opsgen.release.columns import describe_columns

ROWS_PER_GROUP = 1024
PROBED = "probed"
"""Status of a task that its probe does not reject and that was not measured."""

_TYPES = {"string": pa.string(), "int64": pa.int64(), "float64": pa.float64(), "bool": pa.bool_()}

M = TypeVar("M", LazyAnswer, Effect)


class AuditRow(Record, frozen=True, kw_only=True):
    """What is known of one row of an audited source."""

    origin: str
    """The file, and for tables the row behind a colon, from 0."""
    line: int
    """Position in the whole source, from 0."""
    data_source: str
    """As the source says, else its level as `levelk`, else `foreign`."""
    level: int
    """The source's own level; 0 where it names none."""
    task_id: str
    """Hash of the normalised source, or of the text where it does not parse."""
    code_sha256: str
    """SHA-256 of the code as it stands in the source, in UTF-8."""
    family: str
    """Group of near-duplicates."""
    declared_ops: tuple[str, ...]
    """Ops that the source declares."""
    calls: tuple[str, ...]
    """Calls that the code makes, in order; empty where no trace was recorded."""
    status: str
    """`admitted`, `rejected`, `deferred`, or `probed`: not rejected by what needs no device, and
    not measured."""
    reason: str | None
    """First failing criterion in protocol order, or the reason of a fault; absent when admitted."""
    witness: str | None
    """What shows it; absent when admitted."""
    failed: tuple[str, ...]
    """All that failed among the measured, as `criterion: witness`; empty when admitted."""
    mode_class: str | None
    """`same`, `differs` or `mutates`: what train mode does against eval mode; absent where the
    code did not run."""
    axis_ambiguity: tuple[str, ...]
    """Sizes that are equal to another one without need: a wrong axis may hide behind them."""
    batch_mixing: bool | None
    """Elements of the batch depend on each other; absent where there is no common first axis."""
    weak_at_1e_2: bool | None
    """A lazy answer is within 1e-2; absent where none was tried."""
    kept_fraction: float | None
    """Elements of the outputs over elements of the largest computed value."""
    unverified_fraction: float | None
    """Share of the work whose results do not matter."""
    nearest: str | None
    """Most similar benchmark task; absent where none was compared with."""
    similarity: float | None
    """Jaccard index with it, 0 to 1."""
    similarity_limit: float | None
    """What unrelated pairs of this length stay below, 99.9 times in 100."""
    same_trace: str | None
    """Benchmark task with an equal trace."""
    same_calls: str | None
    """Benchmark task with equal calls on inputs of the same kind."""
    trace_hash: str | None
    """Identity of the trace without sizes; absent where none was recorded."""
    num_nodes: int | None
    """Computing ops of the trace."""
    num_draws: int | None
    """Input draws that ran on the CPU; absent before the probe."""
    tolerances: tuple[float, ...]
    """One per output leaf, at full size where it was measured, else on the twin."""
    answer: str | None
    """Lazy answer that comes nearest, at full size where it was measured, else on the twin."""
    answer_margin: float | None
    """Multiple of the tolerance at which it fails."""
    effect: str | None
    """Part whose change matters least."""
    effect_margin: float | None
    """What that change does to the output, in units of the tolerance."""
    draw_s: float | None
    """Seconds of building the model and drawing its inputs, on a CPU."""
    peak_bytes: int | None
    """Peak memory of a call, measured where it was, else predicted."""
    eager_ms: float | None
    """Median of eager calls; absent where not measured."""
    compile_ms: float | None
    """Median of compiled calls; absent where not measured."""
    environment_id: str | None
    """Machine and software of the measurement."""
    evidence: str
    """JSON of `probe` (a ProbeEvidence), `measure` (a MeasureEvidence), and the faults of both."""


def audit_row(case: Case, verdict: Verdict, family: str) -> AuditRow:
    """Return the row of one task."""
    task, probe, measure = case.task, case.probe or ProbeEvidence(), case.measure
    trace, overlap = probe.trace, probe.overlap
    answers = (measure.answers if measure else ()) or probe.answers
    answer = _least(answers)
    effect = _least([*probe.effects, *(measure.effects if measure else ())])
    measured = (measure.tolerances if measure else ()) or probe.tolerances
    median_ms = {timing.mode: timing.median_ms for timing in (measure.timings if measure else ())}
    return AuditRow(
        origin=task.origin or "",
        line=task.line,
        data_source=task.data_source,
        level=task.level,
        task_id=task.task_id,
        code_sha256=hashlib.sha256(task.code.encode()).hexdigest(),
        family=family,
        declared_ops=task.ops,
        calls=trace.calls if trace else (),
        status=status_of(case, verdict),
        reason=verdict.reason,
        witness=verdict.witness,
        failed=tuple(f"{finding.criterion}: {finding.witness}" for finding in verdict.failed),
        mode_class=probe.mode_class,
        axis_ambiguity=probe.axis_ambiguity,
        batch_mixing=probe.batch_mixing,
        weak_at_1e_2=any(answer.passes_1e_2 for answer in answers) if answers else None,
        kept_fraction=probe.kept_fraction,
        unverified_fraction=probe.unverified_fraction,
        nearest=overlap.nearest if overlap else None,
        similarity=overlap.similarity if overlap else None,
        similarity_limit=overlap.limit if overlap else None,
        same_trace=overlap.same_trace if overlap else None,
        same_calls=overlap.same_calls if overlap else None,
        trace_hash=trace.hash if trace else None,
        num_nodes=trace.num_nodes if trace else None,
        num_draws=case.probe.num_draws if case.probe else None,
        tolerances=tuple(tolerance.value for tolerance in measured),
        answer=answer.name if answer else None,
        answer_margin=answer.margin if answer else None,
        effect=f"{effect.subject} {effect.change}" if effect else None,
        effect_margin=effect.margin if effect else None,
        draw_s=probe.draw_s,
        peak_bytes=(measure.peak_bytes if measure else None) or probe.peak_bytes,
        eager_ms=median_ms.get("eager"),
        compile_ms=median_ms.get("compile"),
        environment_id=measure.environment_id if measure else None,
        evidence=_evidence(case),
    )


def status_of(case: Case, verdict: Verdict) -> str:
    """Return the verdict's status, or `probed` where only the measurement is missing."""
    is_open = verdict.status is Status.DEFERRED and verdict.reason == "unmeasured"
    if is_open and case.probe is not None and case.measure is None and not case.measure_faults:
        return PROBED
    return verdict.status.value


def _least(found: Iterable[M]) -> M | None:
    """Return what has the smallest margin; NaN, which nothing beats, counts as none at all."""
    return min(
        found, key=lambda each: -math.inf if math.isnan(each.margin) else each.margin, default=None
    )


def _evidence(case: Case) -> str:
    names = ("probe", "measure", "probe_faults", "measure_faults")
    return encode_line({name: getattr(case, name) for name in names}).decode()


def audit_schema() -> pa.Schema:
    """Return the declared schema of an audit's table."""
    return pa.schema(
        pa.field(
            column.name,
            pa.list_(_TYPES[column.type]) if column.is_list else _TYPES[column.type],
            metadata={"meaning": column.meaning},
        )
        for column in describe_columns(AuditRow)
    )


def write_audit(path: Path, rows: Iterable[AuditRow]) -> None:
    """Write the table whole or not at all, in the order of the rows, a row group at a time."""
    draft = path.with_name(f".{path.name}.new")
    schema = audit_schema()
    with pq.ParquetWriter(draft, schema, compression="zstd", write_page_index=True) as writer:
        for group in _groups(iter(rows)):
            columns = {name: [getattr(row, name) for row in group] for name in schema.names}
            writer.write_table(pa.table(columns, schema=schema))
    draft.replace(path)


def _groups(rows: Iterator[AuditRow]) -> Iterator[list[AuditRow]]:
    while group := list(islice(rows, ROWS_PER_GROUP)):
        yield group
