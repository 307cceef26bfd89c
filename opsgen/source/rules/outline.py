"""The outline of a module: what its names, attributes and methods mean.

Every rule asks the outline instead of walking the tree again. What a name means is followed
through imports, aliases and scopes; a name that two bindings compete for means nothing. A
node is *sure* when it runs whenever its scope does: not in a branch, behind an early return,
in a handler or in the tail of `and` and `or`. Rules that must be certain look at those only.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator

from opsgen.source.rules.scopes import Binding, Class, Definition, Scope, Store

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_BUILTINS = frozenset(dir(builtins))
_MAX_DEPTH = 12


class Outline:
    """Scopes, names and attributes of one module; empty until it is read."""

    def __init__(self, tree: ast.Module, code: str) -> None:
        self.tree = tree
        self.code = code
        self.body: list[ast.stmt] = []
        """Top-level statements that run."""
        self.parents: dict[ast.AST, ast.AST] = {}
        self.home: dict[ast.AST, Scope] = {}
        self.doubtful: set[ast.AST] = set()
        self.scopes: list[Scope] = []
        self.scope_of: dict[ast.AST, Scope] = {}
        self.class_of: dict[ast.AST, Class] = {}
        self.stars: list[str] = []
        self.loaded: set[str] = set()
        """Names of all attributes that are read, and all strings that could name one."""
        self._paths: dict[ast.AST, str] = {}
        self.module = Scope(node=tree, parent=None, owner=None)

    def find_class(self, name: str) -> Class | None:
        """Return the top-level class of that name; of several the last."""
        for scope in reversed(self.module.children):
            if scope.name == name and scope.node in self.class_of:
                return self.class_of[scope.node]
        return None

    def find_function(self, name: str) -> Scope | None:
        """Return the top-level function of that name; of several the last."""
        for scope in reversed(self.module.children):
            if scope.name == name and isinstance(scope.node, ast.FunctionDef):
                return scope
        return None

    def path(self, node: ast.AST | None, depth: int = 0) -> str:
        """Return the dotted path that an expression means, such as `torch.rand`; empty if unknown.

        Builtins start with `builtins.`. Aliases, attributes and `getattr` with a literal name
        are followed.
        """
        if isinstance(node, ast.Attribute | ast.Name):
            if node not in self._paths:
                if isinstance(node, ast.Attribute):
                    base = self.path(node.value, depth)
                    self._paths[node] = f"{base}.{node.attr}" if base else ""
                else:
                    self._paths[node] = self._name_path(node, depth)
            return self._paths[node]
        if isinstance(node, ast.Call) and len(node.args) >= 2:
            name = node.args[1]
            if isinstance(name, ast.Constant) and self.path(node.func) == "builtins.getattr":
                base = self.path(node.args[0], depth)
                return f"{base}.{name.value!s}" if base else ""
        return ""

    def bindings(self, name: str, scope: Scope) -> tuple[Scope | None, list[Binding]]:
        """Return the scope that binds a name seen from `scope`, and all its bindings there."""
        each: Scope | None = scope
        while each is not None:
            if name in each.bindings and not (
                isinstance(each.node, ast.ClassDef) and each is not scope
            ):
                return each, each.bindings[name]
            each = each.parent
        return None, []

    def definition(self, node: ast.AST, depth: int = 0) -> Definition | None:
        """Return the function, lambda or class of the task that an expression names."""
        if isinstance(node, ast.Lambda):
            return node
        if not isinstance(node, ast.Name) or depth > _MAX_DEPTH:
            return None
        _, found = self.bindings(node.id, self.home[node])
        if len(found) != 1 or not isinstance(found[0], ast.AST):
            return None
        if isinstance(found[0], _DEFINITIONS):
            return found[0]
        return self.definition(found[0], depth + 1)

    def bases(self, cls: Class) -> list[Class]:
        """Return the classes of the task that `cls` derives from directly."""
        found = [self.definition(base) for base in cls.node.bases]
        return [self.class_of[each] for each in found if isinstance(each, ast.ClassDef)]

    def lineage(self, cls: Class) -> list[Class]:
        """Return `cls` and the task's classes above it, nearest first."""
        line, todo = [], [cls]
        while todo:
            each = todo.pop(0)
            if each not in line:
                line.append(each)
                todo += self.bases(each)
        return line

    def method(self, cls: Class, name: str) -> Scope | None:
        """Return the method that objects of `cls` have under a name, if the task defines it."""
        for each in self.lineage(cls):
            if name in each.methods:
                return each.methods[name]
        return None

    def self_attribute(self, node: ast.AST) -> str:
        """Return the name when `node` is an attribute of the method's own object, else empty."""
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            scope: Scope | None = self.home[node]
            name = node.value.id
            while scope is not None:
                if scope.receiver:
                    return node.attr if scope.receiver == name else ""
                if name in scope.bindings:
                    return ""
                scope = scope.parent
        return ""

    def stores(self, cls: Class, name: str) -> list[Store]:
        """Return all assignments to an attribute in a class and those it derives from."""
        return [store for each in self.lineage(cls) for store in each.stores.get(name, ())]

    def is_sure(self, node: ast.AST) -> bool:
        """Return whether the node runs whenever its scope does."""
        return node not in self.doubtful

    def above(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield what the node stands in, innermost first, up to its definition."""
        while node in self.parents:
            node = self.parents[node]
            yield node

    def _name_path(self, node: ast.Name, depth: int) -> str:
        if depth > _MAX_DEPTH:
            return ""
        scope, found = self.bindings(node.id, self.home[node])
        if scope is not None:
            if isinstance(found[0], str):
                return found[0] if all(each == found[0] for each in found) else ""
            if len(found) == 1 and isinstance(found[0], ast.expr):
                return self.path(found[0], depth + 1)
            return ""
        if node.id in _BUILTINS:
            return f"builtins.{node.id}"
        return f"{self.stars[0]}.{node.id}" if self.stars else ""
