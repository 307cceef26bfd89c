"""One declared schema per config, so that shards agree even where a column is all null."""

from __future__ import annotations

import pyarrow as pa

from opsgen.records import Record
from opsgen.release.columns import describe_columns


def arrow_schema(kind: type[Record]) -> pa.Schema:
    """Return the Arrow schema of a row record with the metadata that `datasets` reads."""
    # Imported late: it takes seconds, and reading a release does not need it.
    from datasets import Features, List, Value

    columns = {}
    for column in describe_columns(kind):
        value = Value(column.type)
        columns[column.name] = List(value) if column.is_list else value
    return Features(columns).arrow_schema
