"""Writing a release folder, all of it or nothing."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec
import pyarrow as pa

from opsgen.admit import Case, funnel, select
from opsgen.errors import PublishError
from opsgen.recipe import Recipe, write_recipe
from opsgen.records import Environment, Record, Verdict, digest
from opsgen.release.building import Rows, build_rows
from opsgen.release.card import write_card
from opsgen.release.manifest import (
    FileEntry,
    Manifest,
    hash_file,
    logical_hash,
    recipe_digest,
    write_manifest,
)
from opsgen.release.parquet import write_rows
from opsgen.release.rows import CONFIGS
from opsgen.release.splitting import assign_splits

_Parts = dict[tuple[str, str], Sequence[Record]]


def write_release(
    folder: Path,
    *,
    cases: Iterable[Case],
    verdicts: Iterable[Verdict],
    recipe: Recipe,
    environments: Mapping[str, Environment],
) -> Path:
    """Write `release-<digest>` into `folder`.

    The digest is of the content: rows, recipe (but for the fleet) and
    environments. If that release is there already it is left alone. The folder
    appears under its name only when it is complete. Splits without rows have no file.

    Args:
        folder: Where releases of this run stand; made if missing.
        cases: Every judged task with its evidence.
        verdicts: The verdicts on them.
        recipe: `[release]` says how many tasks of which class, and the splits.
        environments: Machines by the id that the evidence names.

    Returns:
        Path of the release, new or found there.

    Raises:
        PublishError: A class lacks admitted tasks, and the message says how many; or none are
            wanted.
    """
    verdicts = list(verdicts)
    cut = select(verdicts, recipe.release.want)
    if not cut.is_complete:
        lacks = ", ".join(
            f"{name} lacks {count} of {recipe.release.want[name]}"
            for name, count in cut.missing.items()
        )
        raise PublishError(f"not enough admitted tasks: {lacks}")
    if not cut.task_ids:
        raise PublishError("release.want asks for no tasks")
    rows = build_rows(cases, verdicts, cut.task_ids, recipe, environments)
    used = {row.environment_id for row in rows.measurements}
    manifest = Manifest(
        name=recipe.name,
        tasks_hash=logical_hash(rows.tasks),
        recipe_hash=recipe_digest(recipe),
        recipe=recipe,
        funnel=funnel(verdicts),
        num_released={name: len(ids) for name, ids in cut.chosen.items()},
        skipped=cut.skipped,
        environments={name: one for name, one in sorted(environments.items()) if name in used},
        files=(),
        versions={"pyarrow": pa.__version__},
    )
    target = folder / f"release-{_content_digest(rows, manifest)}"
    if not target.exists():
        _write_whole(target, rows, manifest)
    return target


def _content_digest(rows: Rows, manifest: Manifest) -> str:
    hashes = [logical_hash(part) for part in (rows.tasks, rows.measurements, rows.rejected)]
    return digest(hashes, manifest.recipe_hash, manifest.environments, size_bytes=4)


def _write_whole(target: Path, rows: Rows, manifest: Manifest) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        draft.chmod(0o755)
        files = tuple(
            _write_file(draft, config, split, part)
            for (config, split), part in _split_rows(rows, manifest.recipe).items()
            if part  # `datasets` 5.2 fails on a Parquet file without row groups
        )
        complete = msgspec.structs.replace(manifest, files=files)
        (draft / "README.md").write_text(write_card(rows, complete), encoding="utf-8")
        (draft / "recipe.toml").write_text(write_recipe(manifest.recipe), encoding="utf-8")
        write_manifest(draft, complete)
        try:
            draft.rename(target)
        except OSError:
            # Losing a race against a writer of the same content is as good as winning it.
            if not target.is_dir():
                raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _split_rows(rows: Rows, recipe: Recipe) -> _Parts:
    """Return the rows of each config and split, in the order of the recipe's splits."""
    splits = assign_splits((row.family for row in rows.tasks), recipe.release.split)
    split_of = {row.task_id: splits[row.family] for row in rows.tasks}
    parts: _Parts = {}
    for name in recipe.release.split:
        parts["tasks", name] = [row for row in rows.tasks if split_of[row.task_id] == name]
        parts["measurements", name] = [
            row for row in rows.measurements if split_of[row.task_id] == name
        ]
    # Viewers expect a split of this name; there is nothing to train on in it.
    parts["rejected", "train"] = rows.rejected
    return dict(sorted(parts.items(), key=lambda item: [*CONFIGS].index(item[0][0])))


def _write_file(draft: Path, config: str, split: str, rows: Sequence[Record]) -> FileEntry:
    path = f"{config}/{split}-00000-of-00001.parquet"
    (draft / config).mkdir(exist_ok=True)
    write_rows(draft / path, rows, CONFIGS[config])
    return FileEntry(
        path=path,
        config=config,
        split=split,
        num_rows=len(rows),
        size_bytes=(draft / path).stat().st_size,
        sha256=hash_file(draft / path),
    )
