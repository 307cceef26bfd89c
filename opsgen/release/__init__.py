"""The dataset folder: schemas, splits, card, manifest, and reading it back.

`write_release` turns judged cases into `release-<digest>/` with the configs
`tasks` (what to train on, unchanged by new measurements), `measurements` (one
row per task, environment and mode) and `rejected` (every line that did not
make it, with its witness). One schema per config comes from the row records
in `rows`, and so do the card's column tables. A folder is named by its
content: writing the same again changes nothing, and nothing is overwritten.
Refuses to write a release that lacks wanted tasks. Needs no torch.
"""

from opsgen.release.building import Rows, build_rows
from opsgen.release.columns import Column, describe_columns
from opsgen.release.manifest import FileEntry, Manifest, logical_hash, recipe_digest
from opsgen.release.parquet import read_rows, write_rows
from opsgen.release.reading import Release, load_release
from opsgen.release.rows import CONFIGS, MeasurementRow, RejectedRow, TaskRow
from opsgen.release.schema import arrow_schema
from opsgen.release.splitting import assign_splits
from opsgen.release.writing import write_release

__all__ = [
    "CONFIGS",
    "Column",
    "FileEntry",
    "Manifest",
    "MeasurementRow",
    "RejectedRow",
    "Release",
    "Rows",
    "TaskRow",
    "arrow_schema",
    "assign_splits",
    "build_rows",
    "describe_columns",
    "load_release",
    "logical_hash",
    "read_rows",
    "recipe_digest",
    "write_release",
    "write_rows",
]
