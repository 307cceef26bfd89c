"""Files of records, one line each, that only grow.

A line without its line break was torn by a crash: readers pass it over, and
writers cut it off before they append.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from opsgen.errors import UsageError
from opsgen.records.base import decode_line

_BLOCK_BYTES = 1 << 16

T = TypeVar("T")


def read_lines(path: Path, kind: type[T]) -> Iterator[T]:
    """Read all whole lines of a file, one at a time; a file that is not there has none.

    Raises:
        UsageError: A line that is whole is no such record: the file is damaged.
    """
    if not path.exists():
        return
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.endswith(b"\n"):
                return
            try:
                yield decode_line(line, kind)
            except (msgspec.ValidationError, ValueError) as error:
                name = kind.__name__
                raise UsageError(f"{path}: line {number} is no {name}: {error}") from error


def end_of_whole_lines(path: Path) -> int:
    """Return the offset behind the last line break."""
    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        while end > 0:
            start = max(0, end - _BLOCK_BYTES)
            file.seek(start)
            found = file.read(end - start).rfind(b"\n")
            if found >= 0:
                return start + found + 1
            end = start
    return 0
