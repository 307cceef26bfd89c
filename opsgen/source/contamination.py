"""Nearness to benchmarks: what a task shares with the tables of their fingerprints."""

from __future__ import annotations

from collections.abc import Callable

from opsgen.records import Overlap, Trace, digest
from opsgen.source.fingerprints import Fingerprint, form_shingles, load_table
from opsgen.source.normalise import read_form


def find_overlap(code: str, trace: Trace | None, benchmarks: tuple[str, ...]) -> Overlap | None:
    """Return what `code` shares with the tasks in fingerprint tables; None without tables.

    A task of a single call has only its attributes and sizes to differ by: it is the same
    where these are equal too, and no similarity is above its limit, which is 1.

    Args:
        code: Source that parses.
        trace: What it runs; None where that is not known.
        benchmarks: Names of shipped tables, or paths of `.parquet` files.

    Raises:
        UsageError: There is no such table.
        SyntaxError: The code does not parse.
    """
    tables = [load_table(benchmark) for benchmark in benchmarks]
    if not any(table.rows for table in tables):
        return None
    form = read_form(code)
    grams = form_shingles(form)
    found = [(table.nearest(grams), table) for table in tables if table.rows]
    (similarity, row), table = max(found, key=lambda each: each[0][0])
    is_single = trace is not None and _is_single(trace)
    rows = [row for table in tables for row in table.rows]
    return Overlap(
        nearest=table.rows[row].name,
        similarity=similarity,
        limit=1.0 if is_single else table.limit(len(form.model_tokens)),
        same_trace=_first(rows, trace, _has_same_trace),
        same_calls=_first(rows, trace, _has_same_calls),
        tables=digest([table.digest for table in tables]),
    )


def _first(
    rows: list[Fingerprint], trace: Trace | None, is_same: Callable[[Fingerprint, Trace], bool]
) -> str | None:
    if trace is None:
        return None
    return next((row.name for row in rows if is_same(row, trace)), None)


def _has_same_trace(row: Fingerprint, trace: Trace) -> bool:
    return row.trace_hash == trace.hash and _has_fitting_size(row, trace)


def _has_same_calls(row: Fingerprint, trace: Trace) -> bool:
    return (
        row.trace_hash is not None
        and row.calls == trace.calls
        and row.signature == trace.signature
        and _has_fitting_size(row, trace)
    )


def _has_fitting_size(row: Fingerprint, trace: Trace) -> bool:
    return not _is_single(trace) or row.sized_hash == trace.sized_hash


def _is_single(trace: Trace) -> bool:
    return len(trace.calls) <= 1
