"""What the columns of a table of tasks mean, however their author spelled them.

Pure functions of names and values: which column holds the code, what a value
says about ops, level and data source.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

CODE_COLUMNS = (
    "code",
    "reference",
    "reference_code",
    "ref_code",
    "pytorch_code",
    "torch_code",
    "python_code",
    "source",
)
"""Names under which task code is known, the usual ones first."""
UNKNOWN_LEVEL = 0
"""Level of foreign code whose source names none."""
FOREIGN = "foreign"
"""Data source of code whose source names none."""

_MODEL = re.compile(r"^class Model\b", re.MULTILINE)
_LEVEL = re.compile(r"level[ _-]?(\d{1,4})", re.IGNORECASE)
_NUMBER = re.compile(r"(?:level[ _-]?)?(\d{1,4})(?:\.0)?", re.IGNORECASE)
_CLASS = re.compile(r".*#(\d{1,4})", re.DOTALL)


def find_code_column(names: Sequence[str], rows: Sequence[Mapping[str, object]]) -> str | None:
    """Return the column that holds the code of tasks, or None.

    Of the columns under a known name it is the first with a value that defines `Model`;
    failing that the only other column with such a value; failing that the first known name,
    whose rows are then all faulty.

    Args:
        names: Columns that may hold text.
        rows: Some rows to look at.
    """
    defining = [name for name in names if any(_defines_model(row.get(name)) for row in rows)]
    known = [name for name in CODE_COLUMNS if name in names]
    for name in known:
        if name in defining:
            return name
    if len(defining) == 1:
        return defining[0]
    return known[0] if known else None


def parse_ops(value: object) -> tuple[str, ...]:
    """Return declared ops, given as a list, as such a list in JSON, or as one bare name."""
    if isinstance(value, str):
        text = value.strip()
        if text[:1] in ("[", '"'):
            try:
                value = json.loads(text)
            except ValueError:
                value = [text]
        else:
            value = [text]
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list | tuple):
        return ()
    return tuple(str(name) for name in value if name not in (None, ""))


def parse_level(value: object) -> int | None:
    """Return the level that a `level` column or a folder's name gives, such as `level2`."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return int(value) if 0 <= value < 10_000 else None
    match = _NUMBER.fullmatch(value.strip()) if isinstance(value, str) else None
    return int(match[1]) if match else None


def folder_level(name: str) -> int | None:
    """Return k of a folder named `levelk`."""
    match = _LEVEL.fullmatch(name)
    return int(match[1]) if match else None


def class_level(data_source: str) -> int | None:
    """Return the k of a data source such as `torch#k`."""
    match = _CLASS.fullmatch(data_source)
    return int(match[1]) if match else None


def clean_text(value: str) -> str:
    """Return text that UTF-8 can hold: lone surrogates become question marks."""
    return value.encode("utf-8", "replace").decode("utf-8")


def _defines_model(value: object) -> bool:
    return isinstance(value, str) and _MODEL.search(value) is not None
