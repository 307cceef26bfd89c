"""What every rule gets: the outline of a task and what surely runs of it."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import TypeVar

from opsgen.source.rules.outline import Outline
from opsgen.source.rules.reach import Reach
from opsgen.source.rules.scopes import Class, Scope

Node = TypeVar("Node", bound=ast.AST)
Breach = tuple[int, str]
"""A line, from 1, and the witness."""


class Reading:
    """A task's code as the rules see it."""

    def __init__(self, out: Outline) -> None:
        self.out = out
        self.model: Class | None = out.find_class("Model")
        self.forward: Scope | None = out.method(self.model, "forward") if self.model else None
        self.init: Scope | None = out.method(self.model, "__init__") if self.model else None
        reach = Reach(out)
        self.call = reach.call
        """Scopes that surely run in a call of the model in eval mode."""
        self.setup = reach.setup
        """Scopes that surely run while the model is built."""
        self.inputs = reach.of_function("get_inputs")
        self.init_inputs = reach.of_function("get_init_inputs")

    def sure(self, scopes: Iterable[Scope]) -> Iterator[ast.AST]:
        """Yield the nodes that run whenever their scopes do."""
        for scope in scopes:
            for node in scope.nodes:
                if node not in self.out.doubtful:
                    yield node

    def find(self, kind: type[Node], scopes: Iterable[Scope] | None = None) -> Iterator[Node]:
        """Yield the nodes of one type, run or not, in some scopes or in all."""
        for scope in self.out.scopes if scopes is None else scopes:
            yield from scope.kinds.get(kind, ())  # type: ignore[misc]

    def calls(self, scopes: Iterable[Scope]) -> Iterator[ast.Call]:
        """Return the calls that run whenever their scopes do."""
        return (node for node in self.find(ast.Call, scopes) if node not in self.out.doubtful)

    @cached_property
    def is_read_dynamically(self) -> bool:
        """Whether attributes may be read by computed names, or by code outside the task."""
        for call in self.find(ast.Call):
            is_getattr = len(call.args) > 1 and self.out.path(call.func) == "builtins.getattr"
            if is_getattr and not isinstance(call.args[1], ast.Constant):
                return True
        if {node.attr for node in self.find(ast.Attribute)} & {"__dict__", "__getattribute__"}:
            return True
        return any(
            node.id == "vars"
            or (node.id == self.out.home[node].receiver and self._hands_over(node))
            for node in self.find(ast.Name)
        )

    def _hands_over(self, node: ast.Name) -> bool:
        """Whether the bare object goes to somebody else than `super` or the task's own code."""
        parent = self.out.parents.get(node)
        if isinstance(parent, ast.Attribute):
            return False
        is_known = isinstance(parent, ast.Call) and (
            self.out.path(parent.func) in {"builtins.super", "builtins.isinstance", "builtins.type"}
            or self.out.definition(parent.func) is not None
            or (isinstance(parent.func, ast.Attribute) and parent.func.attr == "__init__")
        )
        return not is_known

    def is_submodule(self, func: ast.expr) -> bool:
        """Return whether a call goes to an attribute of the object, such as a submodule."""
        return bool(self.out.self_attribute(func))


Rule = Callable[[Reading], Iterator[Breach]]


def last_part(path: str) -> str:
    """Return what stands behind the last dot."""
    return path.rpartition(".")[2]


def called_name(task: Reading, call: ast.Call) -> str:
    """Return the path of what is called, or its last name where the path is unknown."""
    path = task.out.path(call.func)
    if path:
        return path
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""
