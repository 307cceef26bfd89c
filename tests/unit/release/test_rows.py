"""Rows survive Parquet, schemas do not depend on the values, tables cover all columns."""

import json
import math
import typing
from pathlib import Path

import msgspec
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opsgen.records import Record, encode_line
from opsgen.release import (
    CONFIGS,
    MeasurementRow,
    RejectedRow,
    TaskRow,
    arrow_schema,
    describe_columns,
    logical_hash,
    read_rows,
    write_rows,
)

VALUES = {
    str: st.text(max_size=8),
    int: st.integers(-(2**63), 2**63 - 1),
    float: st.floats(),
    bool: st.booleans(),
}
KINDS = [TaskRow, MeasurementRow, RejectedRow]


def values_of(annotation: object) -> st.SearchStrategy[object]:
    if annotation in VALUES:
        return VALUES[annotation]
    members = typing.get_args(annotation)
    if typing.get_origin(annotation) is tuple:
        return st.lists(values_of(members[0]), max_size=3).map(tuple)
    return st.one_of(*(st.none() if one is type(None) else values_of(one) for one in members))


def rows_of(kind: type[Record]) -> st.SearchStrategy[list[Record]]:
    fields = {field.name: values_of(field.type) for field in msgspec.structs.fields(kind)}
    return st.lists(st.builds(kind, **fields), max_size=3)


def with_nulls(kind: type[Record]) -> Record:
    """Return a row in which every column that may be null is, and lists are empty."""
    plain = {"string": "", "int64": 0, "float64": math.nan, "bool": False}
    columns = describe_columns(kind)
    return kind(
        **{
            one.name: () if one.is_list else None if one.is_nullable else plain[one.type]
            for one in columns
        }
    )


@pytest.mark.parametrize("kind", KINDS)
def test_rows_come_back_equal(kind: type[Record], tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"

    @settings(max_examples=15)
    @given(rows=rows_of(kind))
    def check(rows: list[Record]) -> None:
        write_rows(path, rows, kind)
        assert [encode_line(row) for row in read_rows(path, kind)] == [*map(encode_line, rows)]
        again = pl.read_parquet(path).to_dicts()
        assert [encode_line(msgspec.convert(row, kind)) for row in again] == [
            *map(encode_line, rows)
        ]

    check()


@pytest.mark.parametrize("kind", KINDS)
def test_schemas_are_the_declared_ones_whatever_the_values(
    kind: type[Record], tmp_path: Path
) -> None:
    declared = arrow_schema(kind)
    for name, rows in (("empty", []), ("nulls", [with_nulls(kind)])):
        write_rows(tmp_path / name, rows, kind)
        schema = pq.read_schema(tmp_path / name)
        assert schema.equals(declared)
        assert schema.metadata == declared.metadata
        assert not any(pa.types.is_null(field.type) for field in schema)
        features = json.loads(schema.metadata[b"huggingface"])["info"]["features"]
        assert list(features) == [field.name for field in msgspec.structs.fields(kind)]


def test_bytes_are_a_function_of_the_rows(tmp_path: Path) -> None:
    rows = [with_nulls(TaskRow)] * 600
    for name in ("one", "two"):
        write_rows(tmp_path / name, rows, TaskRow)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    metadata = pq.ParquetFile(tmp_path / "one").metadata
    assert [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)] == [
        256,
        256,
        88,
    ]


@given(rows=rows_of(RejectedRow), data=st.data())
def test_logical_hash_reads_values_and_not_their_order(
    rows: list[Record], data: st.DataObject
) -> None:
    assert logical_hash(data.draw(st.permutations(rows))) == logical_hash(rows)
    if rows:
        changed = [msgspec.structs.replace(rows[0], code=rows[0].code + " "), *rows[1:]]
        assert logical_hash(changed) != logical_hash(rows)
        assert logical_hash([*rows, rows[0]]) != logical_hash(rows)


@pytest.mark.parametrize("config", CONFIGS)
def test_every_column_is_described(config: str) -> None:
    columns = describe_columns(CONFIGS[config])
    assert [one.name for one in columns] == list(CONFIGS[config].__struct_fields__)
    assert all(one.meaning and "\n" not in one.meaning for one in columns)


class Bare(Record, frozen=True, kw_only=True):
    name: str


def test_a_column_without_a_line_is_refused() -> None:
    with pytest.raises(ValueError, match="column name needs a docstring line"):
        describe_columns(Bare)
