"""The normalised form of code: what stays when comments, layout and docstrings go."""

from __future__ import annotations

import ast

from opsgen.records import digest


def normalised_source(code: str) -> str:
    """Return a canonical dump of the syntax tree of `code`.

    Raises:
        SyntaxError: The code does not parse.
    """
    tree = ast.parse(code)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [statement for statement in node.body if not _is_text(statement)]
    return ast.dump(tree, annotate_fields=False)


def source_hash(code: str) -> str:
    """Return the identity of foreign code: a digest of its normalised form."""
    return digest(normalised_source(code))


def _is_text(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )
