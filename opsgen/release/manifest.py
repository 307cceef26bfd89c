"""The manifest: what a release holds, where it came from, and its logical hash."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

import msgspec

from opsgen.admit import Funnel
from opsgen.recipe import FleetConfig, Recipe
from opsgen.records import Environment, Record, Verdict, decode_line, digest, encode_line

FILE_NAME = "manifest.json"


class FileEntry(Record, frozen=True, kw_only=True):
    """One data file of a release."""

    path: str
    """Path inside the folder, with forward slashes."""
    config: str
    """Config that it belongs to."""
    split: str
    """Split that it belongs to."""
    num_rows: int
    """Rows."""
    size_bytes: int
    """Size."""
    sha256: str
    """Hash of the bytes; these depend on pyarrow's version, unlike the logical hash."""


class Manifest(Record, frozen=True, kw_only=True):
    """What a release holds and where it came from."""

    name: str
    """Name of the recipe."""
    tasks_hash: str
    """Logical hash of the `tasks` rows: equal for equal tasks, however they are filed."""
    recipe_hash: str
    """Hash of the recipe, fleet settings left out."""
    recipe: Recipe
    """The recipe as resolved."""
    funnel: Funnel
    """What became of all sampled lines."""
    num_released: dict[str, int]
    """Released tasks by quota class."""
    skipped: tuple[Verdict, ...]
    """Deferred lines before the cut of their class, passed over."""
    environments: dict[str, Environment]
    """Machines and software by environment id."""
    files: tuple[FileEntry, ...]
    """Data files."""
    versions: dict[str, str]
    """Versions of what wrote the files."""


def recipe_digest(recipe: Recipe) -> str:
    """Hash what determines a release: everything in the recipe but the fleet."""
    return digest(msgspec.structs.replace(recipe, fleet=FleetConfig()))


def logical_hash(rows: Iterable[Record]) -> str:
    """Hash rows as values, whatever their order and their files."""
    return digest(sorted(digest(row, size_bytes=16) for row in rows), size_bytes=16)


def hash_file(path: Path) -> str:
    """Return the sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest as indented JSON."""
    text = json.dumps(json.loads(encode_line(manifest)), indent=1)
    (folder / FILE_NAME).write_text(text + "\n", encoding="utf-8")


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of a release.

    Args:
        folder: The release folder.

    Returns:
        The manifest as it was written.

    Raises:
        OSError: There is none.
        ValueError: It is not a manifest of this version.
    """
    return decode_line((folder / FILE_NAME).read_bytes(), Manifest)
