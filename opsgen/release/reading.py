"""Reading a release back, for `opsgen show` and for people in notebooks.

polars comes with the first release that is read: a GPU host, which writes tables only, does
without.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from opsgen.errors import UsageError
from opsgen.release.columns import describe_columns
from opsgen.release.manifest import Manifest, read_manifest
from opsgen.release.rows import CONFIGS, MeasurementRow, RejectedRow, TaskRow

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True, slots=True)
class Release:
    """A release in memory; every frame has a `split` column in front.

    Attributes:
        manifest: What it holds and where it came from.
        tasks: Released tasks, all splits.
        measurements: Their baselines.
        rejected: Rejected and deferred lines.
    """

    manifest: Manifest
    tasks: pl.DataFrame
    measurements: pl.DataFrame
    rejected: pl.DataFrame

    def find_tasks(self, prefix: str) -> list[TaskRow]:
        """Return the released tasks whose task_id starts with `prefix`."""
        found = self.tasks.filter(self.tasks["task_id"].str.starts_with(prefix))
        return msgspec.convert(found.drop("split").to_dicts(), list[TaskRow])

    def find_measurements(self, task_id: str) -> list[MeasurementRow]:
        """Return all baselines of one task."""
        found = self.measurements.filter(task_id=task_id)
        return msgspec.convert(found.drop("split").to_dicts(), list[MeasurementRow])

    def find_rejected(self, prefix: str) -> list[RejectedRow]:
        """Return the lines that were not admitted whose task_id starts with `prefix`."""
        found = self.rejected.filter(self.rejected["task_id"].str.starts_with(prefix))
        return msgspec.convert(found.drop("split").to_dicts(), list[RejectedRow])


def load_release(folder: Path) -> Release:
    """Read a whole release folder.

    Args:
        folder: A folder that `write_release` made, or a copy of one.

    Returns:
        The release with all its rows in memory.

    Raises:
        UsageError: The folder is not a release of this version, or lacks a file that its
            manifest names.
    """
    try:
        manifest = read_manifest(folder)
        frames = {config: _read_config(folder, manifest, config) for config in CONFIGS}
    except FileNotFoundError as error:
        raise UsageError(f"{folder}: not a release folder: {error}") from error
    except ValueError as error:
        raise UsageError(f"{folder}: its manifest is not of this version: {error}") from error
    return Release(manifest=manifest, **frames)


def _read_config(folder: Path, manifest: Manifest, config: str) -> pl.DataFrame:
    import polars as pl

    frames = [
        pl.read_parquet(folder / entry.path).select(pl.lit(entry.split).alias("split"), pl.all())
        for entry in manifest.files
        if entry.config == config
    ]
    return pl.concat(frames) if frames else _empty_frame(config)


def _empty_frame(config: str) -> pl.DataFrame:
    import polars as pl

    types = {
        "string": pl.String(),
        "int64": pl.Int64(),
        "float64": pl.Float64(),
        "bool": pl.Boolean(),
    }
    schema: dict[str, pl.DataType] = {"split": pl.String()}
    for column in describe_columns(CONFIGS[config]):
        value = types[column.type]
        schema[column.name] = pl.List(value) if column.is_list else value
    return pl.DataFrame(schema=schema)
