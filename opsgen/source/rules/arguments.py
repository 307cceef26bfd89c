"""Rules for the arguments of `Model`: each one is used, and not only kept."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from opsgen.source.rules.liveness import names_read
from opsgen.source.rules.scopes import parameters
from opsgen.source.rules.task import Breach, Reading

_NUMBERS = (ast.BinOp, ast.UnaryOp, ast.List, ast.Tuple)
_CONVERSIONS = frozenset(
    {"builtins.bool", "builtins.float", "builtins.int", "builtins.len", "builtins.list"}
    | {"builtins.max", "builtins.min", "builtins.round", "builtins.str", "builtins.tuple"}
)


def shadowed_arguments(task: Reading) -> Iterator[Breach]:
    """Arguments that the constructor ignores while a call reads a global of that name."""
    ignored = _ignored(task)
    for node in task.find(ast.Name, task.call if ignored else ()):
        home = task.out.bindings(node.id, task.out.home[node])[0]
        if node.id in ignored and home is task.out.module:
            yield node.lineno, node.id


def unused_arguments(task: Reading) -> Iterator[Breach]:
    """Arguments that the constructor never reads."""
    for name, argument in _ignored(task).items():
        yield argument.lineno, name


def stored_arguments(task: Reading) -> Iterator[Breach]:
    """Arguments that only become attributes that nothing reads."""
    scope = task.init
    if scope is None or not isinstance(scope.node, ast.FunctionDef) or task.is_read_dynamically:
        return
    for argument in parameters(scope.node)[1:]:
        uses = [
            node
            for node in task.find(ast.Name, [scope])
            if node.id == argument.arg and isinstance(node.ctx, ast.Load)
        ]
        late = any(argument.arg in names_read(task, child) for child in scope.children)
        kept = [_kept_as(task, node) for node in uses]
        if kept and not late and all(name and name not in task.out.loaded for name in kept):
            yield uses[0].lineno, f"{argument.arg}, kept as self.{kept[0]}"


def _ignored(task: Reading) -> dict[str, ast.arg]:
    scope = task.init
    if scope is None or not isinstance(scope.node, ast.FunctionDef) or not scope.receiver:
        return {}
    read = names_read(task, scope)
    return {
        each.arg: each
        for each in parameters(scope.node)[1:]
        if each.arg not in read and not each.arg.startswith("_")
    }


def _kept_as(task: Reading, node: ast.expr) -> str:
    """Return the attribute that nothing but a name makes up, as it is or as another number."""
    parent = task.out.parents[node]
    while isinstance(parent, _NUMBERS) or _is_conversion(task, parent):
        parent = task.out.parents[parent]
    if not isinstance(parent, ast.Assign | ast.AnnAssign):
        return ""
    targets = parent.targets if isinstance(parent, ast.Assign) else [parent.target]
    return task.out.self_attribute(targets[0]) if len(targets) == 1 else ""


def _is_conversion(task: Reading, node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    path = task.out.path(node.func)
    return path in _CONVERSIONS or path.startswith("math.")
