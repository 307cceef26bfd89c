"""What every record shares, and the one JSON form they are stored in.

JSON has no NaN or infinity and msgspec would write them as null, which would
turn a measured NaN into "absent". They are written as `{"$float": "nan"}`, so
that a line is valid JSON and reading it gives back an equal record.
"""

from __future__ import annotations

import hashlib
import json
import math
from typing import Any, TypeVar

import msgspec


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of all records: immutable, and strict about fields it does not know."""


T = TypeVar("T")


def encode_line(record: object) -> bytes:
    """Return a record, or plain containers of records, as JSON without a line break."""
    return msgspec.json.encode(_tag_non_finite(msgspec.to_builtins(record)))


def decode_line(line: bytes | str, kind: type[T]) -> T:
    """Read a line written by `encode_line`.

    Raises:
        msgspec.ValidationError: The line is JSON but not such a record.
        ValueError: The line is not JSON: torn, or written by something else.
    """
    return msgspec.convert(json.loads(line, object_hook=_untag), kind)


def digest(*parts: object, size_bytes: int = 8) -> str:
    """Return a hex digest of records and plain values that is stable across processes."""
    state = hashlib.blake2b(digest_size=size_bytes)
    for part in parts:
        plain = _tag_non_finite(msgspec.to_builtins(part))
        state.update(msgspec.json.encode(plain, order="sorted"))
        state.update(b"\x00")
    return state.hexdigest()


def _tag_non_finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else {"$float": str(value)}
    if isinstance(value, dict):
        return {key: _tag_non_finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_tag_non_finite(item) for item in value]
    return value


def _untag(pairs: dict[str, Any]) -> Any:
    return float(pairs["$float"]) if pairs.keys() == {"$float"} else pairs
