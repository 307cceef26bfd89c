"""Readers of foreign tasks: code in the KernelBench form from files, folders and tables."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

from opsgen.records import Task, Workload, digest
from opsgen.source.columns import FOREIGN, UNKNOWN_LEVEL
from opsgen.source.normalise import source_hash
from opsgen.source.rows import Row, read_rows


def read_tasks(source: Path, *, limit: int | None = None) -> Iterator[Task]:
    """Yield the tasks of a source, one for each row, in a fixed order; no code is run.

    A row that is no task at all becomes one whose source breaks a rule, so that it is told of
    like any other. Memory holds a few rows, however long the source.

    Args:
        source: As `read_rows` takes it.
        limit: Most tasks to yield.

    Raises:
        UsageError: The source as a whole cannot be read, or holds no row; one line.
    """
    return map(task_of_row, read_rows(source, limit=limit))


def read_task_file(path: Path) -> Task:
    """Read one Python file as a foreign task; its code is not run.

    Raises:
        UsageError: The file cannot be read.
    """
    return next(read_tasks(path))


def task_of_row(row: Row) -> Task:
    """Return the task that a row holds."""
    return foreign_task(
        row.code,
        origin=row.origin,
        line=row.line,
        level=row.level,
        data_source=row.data_source,
        ops=row.ops,
    )


def foreign_task(
    code: str,
    *,
    origin: str,
    line: int = 0,
    level: int = UNKNOWN_LEVEL,
    data_source: str = FOREIGN,
    ops: tuple[str, ...] = (),
) -> Task:
    """Wrap code as a task. Its only workload has no sizes; specs stay unknown until it runs."""
    task_id = _identity(code)
    return Task(
        task_id=task_id,
        data_source=data_source,
        line=line,
        level=level,
        ops=ops,
        code=code,
        workloads=(Workload(sizes={}, inputs=(), outputs=()),),
        family=task_id,
        origin=origin,
    )


def _identity(code: str) -> str:
    """Return the hash of the normalised source, or of the text where there is no such form."""
    with warnings.catch_warnings():
        # Parsing warns of odd escapes, which are nobody's business here.
        warnings.simplefilter("ignore")
        try:
            return source_hash(code)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return digest(code)
