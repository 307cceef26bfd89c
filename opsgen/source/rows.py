"""Rows of task code out of files, folders, parquet and JSONL, one at a time.

Nothing of a source is lost: a row without usable code is a row with empty
code. Refused are only sources that cannot be read at all.
"""

from __future__ import annotations

import gzip
import itertools
import json
import logging
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from opsgen.errors import UsageError
from opsgen.records import Record
from opsgen.source.columns import (
    FOREIGN,
    UNKNOWN_LEVEL,
    class_level,
    clean_text,
    find_code_column,
    folder_level,
    parse_level,
    parse_ops,
)

_BATCH_ROWS = 256
_BUFFER_BYTES = 1 << 20
_NUM_LOOKED_AT = 256  # rows by which the code column is found
_CODE = ".py"
_TABLES = (".parquet", ".jsonl", ".jsonl.gz")
_SIDE_COLUMNS = ("ops", "data_source", "level")
_KINDS = ".py, .parquet, .jsonl or .jsonl.gz"

_log = logging.getLogger(__name__)


class Row(Record, frozen=True, kw_only=True):
    """One row of a source as it stands there; nothing of its code is parsed."""

    code: str
    """Code; empty where the row has none."""
    ops: tuple[str, ...]
    """Declared ops; empty where the row declares none."""
    data_source: str
    """As in the row; else the folder's level, the row's level, or `foreign`."""
    level: int
    """As `data_source` or the row says; `UNKNOWN_LEVEL` where nothing does."""
    origin: str
    """The file, and for tables the row behind a colon, from 0."""
    line: int
    """Position in the whole source, from 0."""
    column: str | None
    """Column that the code is from; absent for Python files."""


def read_rows(source: Path, *, limit: int | None = None) -> Iterator[Row]:
    """Yield the rows of a source in a fixed order, holding only a few at a time.

    Args:
        source: A `.py`, `.parquet`, `.jsonl` or `.jsonl.gz` file, or a folder of such, which is
            searched in depth but for what is hidden and `__pycache__`. Tables without code
            beside files with code are passed over with a warning.
        limit: Most rows to yield.

    Raises:
        UsageError: The source is missing, holds no row, or has a file that cannot be read; one
            line that names the file.
    """
    rows = _numbered(source)
    first = next(rows, None)
    if first is None:
        raise UsageError(f"{source}: holds no task")
    yield from itertools.islice(itertools.chain([first], rows), limit)


def _numbered(source: Path) -> Iterator[Row]:
    fields = ({**field, "line": line} for line, field in enumerate(_fields(source)))
    return (Row(**field) for field in fields)


def _fields(source: Path) -> Iterator[dict[str, Any]]:
    if not source.is_dir():
        yield from _read_file(source, None)
        return
    files = _list_files(source)
    if not files:
        raise UsageError(f"{source}: holds no {_KINDS} file")
    num_read, passed_over = 0, ""
    for path in files:
        try:
            yield from _read_file(path, _level_of_folders(path, source))
            num_read += 1
        except _NoCodeError as error:
            passed_over = str(error)
            _log.warning("passed over: %s", error)
    if not num_read:
        raise UsageError(passed_over)


class _NoCodeError(UsageError):
    """A table without a column of code."""


def _list_files(folder: Path) -> list[Path]:
    found = []
    try:
        for parent, folders, names in os.walk(folder, onerror=_raise):
            folders[:] = [name for name in folders if name[0] != "." and name != "__pycache__"]
            shown = (name for name in names if name[0] != ".")
            found += [Path(parent, name) for name in shown if name.endswith((_CODE, *_TABLES))]
    except OSError as error:
        raise UsageError(f"{error.filename}: cannot be read: {error.strerror}") from error
    return sorted(found, key=_natural)


def _natural(path: Path) -> list[list[tuple[bool, int, str]]]:
    """Return a sort key under which 2_x comes before 10_x."""
    return [
        [(not part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in parts]
        for parts in (re.split(r"([0-9]+)", name) for name in path.parts)
    ]


def _raise(error: OSError) -> None:
    raise error


def _level_of_folders(path: Path, source: Path) -> int | None:
    folders = [source.resolve().name, *path.relative_to(source).parts[:-1]]
    levels = [level for level in map(folder_level, folders) if level is not None]
    return levels[-1] if levels else None


def _read_file(path: Path, level: int | None) -> Iterator[dict[str, Any]]:
    """Yield the fields of a file's rows, but for their position in the source."""
    try:
        if path.name.endswith(_TABLES):
            yield from _read_table(path, level)
        elif path.suffix == _CODE:
            text = path.read_text(encoding="utf-8-sig", errors="replace")
            yield _row_fields({"code": text}, "code", level) | {
                "origin": str(path),
                "column": None,
            }
        else:
            path.stat()
            raise UsageError(f"{path}: is no {_KINDS} file and no folder")
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise UsageError(f"{path}: cannot be read: {reason}") from error


def _read_table(path: Path, level: int | None) -> Iterator[dict[str, Any]]:
    table = _ParquetTable(path) if path.suffix == ".parquet" else _JsonTable(path)
    looked_at = list(itertools.islice(table.rows(table.names), _NUM_LOOKED_AT))
    if not looked_at:
        return
    column = find_code_column(table.names, looked_at)
    if column is None:
        raise _NoCodeError(
            f"{path}: no column holds task code; columns with text: {', '.join(table.names)}"
        )
    for number, row in enumerate(table.rows([column, *_SIDE_COLUMNS])):
        yield _row_fields(row, column, level) | {"origin": f"{path}:{number}", "column": column}


def _row_fields(row: Mapping[str, object], column: str, level: int | None) -> dict[str, Any]:
    code, named = row.get(column), row.get("data_source")
    own_level = parse_level(row.get("level"))
    known = level if own_level is None else own_level
    default = FOREIGN if known is None else f"level{known}"
    data_source = clean_text(named) if isinstance(named, str) and named else default
    told = class_level(data_source)
    levels = (told, known, UNKNOWN_LEVEL)
    return {
        "code": clean_text(code) if isinstance(code, str) else "",
        "ops": tuple(clean_text(name) for name in parse_ops(row.get("ops"))),
        "data_source": data_source,
        "level": next(each for each in levels if each is not None),
    }


class _ParquetTable:
    """A parquet file, of which one batch is in memory.

    Attributes:
        names: Columns that may hold text.
    """

    def __init__(self, path: Path) -> None:
        # Here, since children that only check code never read a table.
        import pyarrow as pa
        import pyarrow.parquet as pq

        self._path, self._error = path, pa.ArrowException
        try:
            self._file = pq.ParquetFile(path, buffer_size=_BUFFER_BYTES)
        except pa.ArrowException as error:
            raise UsageError(f"{path}: is not parquet: {_one_line(error)}") from error
        schema = self._file.schema_arrow
        self.names: list[str] = [field.name for field in schema if _is_text(field.type)]
        self._all_names = set(schema.names)

    def rows(self, columns: Iterable[str]) -> Iterator[dict[str, Any]]:
        """Yield the values of some columns, row by row."""
        wanted = [name for name in columns if name in self._all_names]
        try:
            for batch in self._file.iter_batches(_BATCH_ROWS, columns=wanted):
                yield from _plain_rows(batch)
        except self._error as error:
            raise UsageError(f"{self._path}: is damaged: {_one_line(error)}") from error


def _is_text(kind: Any) -> bool:
    import pyarrow as pa

    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return any(test(plain) for test in (*tests, pa.types.is_null))


def _plain_rows(batch: Any) -> list[dict[str, Any]]:
    """Return a batch as dicts; bytes of text that are not UTF-8 are replaced."""
    try:
        rows: list[dict[str, Any]] = batch.to_pylist()
    except UnicodeDecodeError:
        columns = {field.name: _plain_column(batch.column(field.name)) for field in batch.schema}
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return rows


def _plain_column(column: Any) -> list[Any]:
    if hasattr(column, "dictionary_decode"):
        column = column.dictionary_decode()
    if not hasattr(column[0], "as_buffer"):
        plain: list[Any] = column.to_pylist()
        return plain
    buffers = (value.as_buffer() for value in column)
    return [None if one is None else one.to_pybytes().decode("utf-8", "replace") for one in buffers]


class _JsonTable:
    """A file of JSON objects, one a line, perhaps compressed.

    Attributes:
        names: Keys of the first rows.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        looked_at = list(itertools.islice(self._objects(), _NUM_LOOKED_AT))
        if looked_at and not any(looked_at):
            raise UsageError(f"{path}: is not JSONL: no line is a JSON object")
        self.names = list(dict.fromkeys(name for row in looked_at for name in row))

    def rows(self, columns: Iterable[str]) -> Iterator[dict[str, Any]]:
        """Yield all objects; a line that is none is a row without values."""
        return self._objects()

    def _objects(self) -> Iterator[dict[str, Any]]:
        opened = gzip.open if self._path.suffix == ".gz" else open
        with opened(self._path, "rt", encoding="utf-8-sig", errors="replace") as lines:
            for line in lines:
                if line.strip():
                    yield _parse_object(line)


def _parse_object(line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return row if isinstance(row, dict) else {}


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
