"""What an outline is made of: scopes with their bindings, classes with their attributes."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Definition = FunctionNode | ast.ClassDef
Binding = str | ast.expr | ast.stmt | ast.arg | None
"""An imported path, the bound expression, a definition or `+=`, a parameter, or None: what
nobody can follow, such as the target of a loop."""


@dataclass(slots=True, eq=False)
class Scope:
    """A module, class, function or lambda, with the nodes that stand directly in it."""

    node: ast.AST
    parent: Scope | None
    owner: Class | None
    receiver: str = ""
    """What a method calls its object; empty outside of methods."""
    bindings: dict[str, list[Binding]] = field(default_factory=dict)
    outer: set[str] = field(default_factory=set)
    """Names declared `global`."""
    nodes: list[ast.AST] = field(default_factory=list)
    kinds: dict[type, list[ast.AST]] = field(default_factory=dict)
    """The same nodes by their type."""
    children: list[Scope] = field(default_factory=list)

    def add(self, node: ast.AST) -> None:
        """Take a node in."""
        self.nodes.append(node)
        self.kinds.setdefault(type(node), []).append(node)

    @property
    def name(self) -> str:
        """Name of the definition; empty for modules and lambdas."""
        return getattr(self.node, "name", "")

    @property
    def body(self) -> list[ast.stmt]:
        """Statements; none for a lambda."""
        body = getattr(self.node, "body", [])
        return body if isinstance(body, list) else []


@dataclass(slots=True, eq=False)
class Store:
    """One assignment to an attribute of the object."""

    value: ast.expr | None
    node: ast.Attribute
    statement: ast.AST
    scope: Scope


@dataclass(slots=True, eq=False)
class Class:
    """A class of the task."""

    node: ast.ClassDef
    scope: Scope
    methods: dict[str, Scope] = field(default_factory=dict)
    stores: dict[str, list[Store]] = field(default_factory=dict)


def parameters(node: FunctionNode) -> list[ast.arg]:
    """Return the named parameters of a function in order, without those behind a star."""
    return [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
