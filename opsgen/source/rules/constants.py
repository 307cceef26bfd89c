"""Values that stand in a task's code: literals, sizes and what reaches the constructor."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

from opsgen.source.rules.outline import Outline
from opsgen.source.rules.scopes import Class

UNKNOWN = object()
"""What `constant` returns where the code does not say."""

_MAX_DEPTH = 8
_MAX_LENGTH = 1000
_BINARY: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


def constant(out: Outline, node: ast.AST | None, depth: int = 0) -> Any:
    """Return the number, string, boolean or None that an expression has, or `UNKNOWN`.

    Names are followed to what they are bound to once, attributes of the object to their one
    assignment in the constructor, and arguments of `Model` to `get_init_inputs`.
    """
    if depth > _MAX_DEPTH:
        return UNKNOWN
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = constant(out, node.operand, depth + 1)
        return -value if isinstance(value, int | float) else UNKNOWN
    if isinstance(node, ast.BinOp):
        return _combined(out, node, depth)
    if isinstance(node, ast.JoinedStr):
        parts = [constant(out, _formatted(part), depth + 1) for part in node.values]
        return UNKNOWN if UNKNOWN in parts else "".join(str(part) for part in parts)
    if isinstance(node, ast.Name):
        return _named(out, node, depth)
    if isinstance(node, ast.Attribute):
        return _attribute(out, node, depth)
    return UNKNOWN


def returned_items(out: Outline, name: str) -> list[ast.expr] | None:
    """Return the elements that a top-level function returns in its only list or tuple.

    None where it has several returns or returns what is not written as a list.
    """
    scope = out.find_function(name)
    if scope is None:
        return None
    returns = [node for node in scope.nodes if isinstance(node, ast.Return)]
    if len(returns) != 1:
        return None
    value = followed(out, returns[0].value)
    if not isinstance(value, ast.List | ast.Tuple):
        return None
    return None if any(isinstance(each, ast.Starred) for each in value.elts) else value.elts


def followed(out: Outline, node: ast.expr | None) -> ast.expr | None:
    """Return what a local name is bound to, if it is bound once and only there; else `node`."""
    if isinstance(node, ast.Name):
        scope, found = out.bindings(node.id, out.home[node])
        if scope is not None and len(found) == 1 and isinstance(found[0], ast.expr):
            return found[0]
    return node


def _formatted(part: ast.expr) -> ast.expr | None:
    """Return what a piece of an f-string holds; None where it is also formatted."""
    if isinstance(part, ast.FormattedValue):
        return None if part.format_spec is not None or part.conversion != -1 else part.value
    return part


def _combined(out: Outline, node: ast.BinOp, depth: int) -> Any:
    left, right = (constant(out, each, depth + 1) for each in (node.left, node.right))
    if isinstance(left, str) and isinstance(right, str) and isinstance(node.op, ast.Add):
        return left + right if len(left) + len(right) < _MAX_LENGTH else UNKNOWN
    if not isinstance(left, int | float) or not isinstance(right, int | float):
        return UNKNOWN
    try:
        return _BINARY[type(node.op)](left, right)
    except (KeyError, ArithmeticError):
        return UNKNOWN


def _named(out: Outline, node: ast.Name, depth: int) -> Any:
    scope, found = out.bindings(node.id, out.home[node])
    if scope is None or len(found) != 1:
        return UNKNOWN
    if isinstance(found[0], ast.expr):
        return constant(out, found[0], depth + 1)
    model = out.find_class("Model")
    is_argument = isinstance(found[0], ast.arg)
    if is_argument and model is not None and scope is out.method(model, "__init__"):
        return _argument(out, model, node.id, depth)
    return UNKNOWN


def _argument(out: Outline, model: Class, name: str, depth: int) -> Any:
    """Return what `get_init_inputs` gives for an argument of the constructor, or its default."""
    scope = out.method(model, "__init__")
    assert scope is not None
    assert isinstance(scope.node, ast.FunctionDef)
    arguments = scope.node.args
    names = [each.arg for each in [*arguments.posonlyargs, *arguments.args]][1:]
    given = returned_items(out, "get_init_inputs")
    if given is None or name not in names:
        return UNKNOWN
    place = names.index(name)
    if place < len(given):
        return constant(out, given[place], depth + 1)
    place -= len(names) - len(arguments.defaults)
    return constant(out, arguments.defaults[place], depth + 1) if place >= 0 else UNKNOWN


def _attribute(out: Outline, node: ast.Attribute, depth: int) -> Any:
    scope = out.home[node]
    if not out.self_attribute(node) or scope.owner is None:
        return UNKNOWN
    stores = out.stores(scope.owner, node.attr)
    if len(stores) != 1 or stores[0].value is None:
        return UNKNOWN
    return constant(out, stores[0].value, depth + 1)


def argument_of(call: ast.Call, position: int, name: str) -> ast.expr | None:
    """Return the argument that a call gives by position or keyword; None where it gives none."""
    for word in call.keywords:
        if word.arg == name:
            return word.value
    if position < len(call.args) and not any(isinstance(a, ast.Starred) for a in call.args):
        return call.args[position]
    return None
