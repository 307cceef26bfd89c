"""Column tables, read off the source of the row records."""

from __future__ import annotations

import ast
import inspect
import types
import typing

import msgspec

from opsgen.records import Record

_SCALARS: dict[type, str] = {str: "string", int: "int64", float: "float64", bool: "bool"}


class Column(Record, frozen=True, kw_only=True):
    """One column of a config."""

    name: str
    """Name."""
    type: str
    """Arrow type of the values, or of the elements of a list."""
    is_list: bool
    """Each row holds a list."""
    is_nullable: bool
    """Rows may lack the value."""
    meaning: str
    """The docstring line under the field."""


def describe_columns(kind: type[Record]) -> tuple[Column, ...]:
    """Describe the columns of a row record.

    Args:
        kind: A record whose fields each have a docstring line; its source must be at hand.

    Returns:
        The columns in the order of the fields.

    Raises:
        ValueError: A field lacks its docstring line or has a type that no column can hold.
    """
    meanings = _read_docstrings(kind)
    return tuple(
        _describe(field.name, field.type, meanings.get(field.name, ""))
        for field in msgspec.structs.fields(kind)
    )


def _describe(name: str, annotation: object, meaning: str) -> Column:
    plain, is_nullable = _without_none(annotation)
    is_list = typing.get_origin(plain) is tuple
    if is_list:
        plain, _ = _without_none(typing.get_args(plain)[0])
    if not isinstance(plain, type) or plain not in _SCALARS or not meaning:
        raise ValueError(f"column {name} needs a docstring line and a plain type, not {annotation}")
    return Column(
        name=name,
        type=_SCALARS[plain],
        is_list=is_list,
        is_nullable=is_nullable,
        meaning=meaning,
    )


def _without_none(annotation: object) -> tuple[object, bool]:
    if isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is typing.Union:
        members = [one for one in typing.get_args(annotation) if one is not types.NoneType]
        return members[0], True
    return annotation, False


def _read_docstrings(kind: type[Record]) -> dict[str, str]:
    body = ast.parse(inspect.getsource(kind)).body[0]
    assert isinstance(body, ast.ClassDef)
    found: dict[str, str] = {}
    for field, below in zip(body.body, body.body[1:], strict=False):
        if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
            continue
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            found[field.target.id] = " ".join(str(below.value.value).split())
    return found
