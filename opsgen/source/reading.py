"""Readers of foreign tasks: code in the KernelBench form from files."""

from __future__ import annotations

import ast
from pathlib import Path

from opsgen.errors import UsageError
from opsgen.records import Task, Workload
from opsgen.source.normalise import source_hash

UNKNOWN_LEVEL = 0
"""Level of foreign code whose source names none."""


def read_task_file(path: Path) -> Task:
    """Read one Python file as a foreign task; its code is not run.

    Its only workload has no sizes, and specs stay unknown until it runs.

    Raises:
        UsageError: The file cannot be read, does not parse, or lacks one of the three
            definitions that make it a task. The message is one line naming the file.
    """
    try:
        code = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(f"{path}: cannot be read: {reason}") from error
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None) or 1
        detail = getattr(error, "msg", str(error))
        raise UsageError(f"{path}:{line}: does not parse: {detail}") from error
    defined = {n.name for n in tree.body if isinstance(n, ast.ClassDef | ast.FunctionDef)}
    for name in ("Model", "get_inputs", "get_init_inputs"):
        if name not in defined:
            raise UsageError(f"{path}: defines no {name}")
    return foreign_task(code, origin=str(path))


def foreign_task(code: str, *, origin: str, line: int = 0, level: int = UNKNOWN_LEVEL) -> Task:
    """Wrap code that parses as a task of data source `foreign`."""
    task_id = source_hash(code)
    return Task(
        task_id=task_id,
        data_source="foreign",
        line=line,
        level=level,
        ops=(),
        code=code,
        workloads=(Workload(sizes={}, inputs=(), outputs=()),),
        family=task_id,
        origin=origin,
    )
