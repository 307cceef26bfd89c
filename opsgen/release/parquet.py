"""Rows to Parquet and back.

Small row groups, because they are the unit of parallel streaming; zstd and a
page index. The bytes are a function of the rows and of pyarrow's version.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from opsgen.records import Record
from opsgen.release.schema import arrow_schema

ROWS_PER_GROUP = 256

R = TypeVar("R", bound=Record)


def write_rows(path: Path, rows: Sequence[R], kind: type[R]) -> None:
    """Write rows of one kind in the given order, under the kind's declared schema."""
    # Columns are laid out one at a time: a list of dicts would hold every row twice.
    columns = {name: [getattr(row, name) for row in rows] for name in kind.__struct_fields__}
    pq.write_table(
        pa.table(columns, schema=arrow_schema(kind)),
        path,
        compression="zstd",
        row_group_size=ROWS_PER_GROUP,
        write_page_index=True,
    )


def read_rows(path: Path, kind: type[R]) -> list[R]:
    """Read rows written by `write_rows`.

    Args:
        path: The Parquet file.
        kind: What its rows are.

    Returns:
        Rows equal to what was written, in the same order.

    Raises:
        msgspec.ValidationError: The file has other columns than `kind`.
    """
    return msgspec.convert(pq.read_table(path).to_pylist(), list[kind])  # type: ignore[valid-type]
