"""What surely runs when a task runs: scopes that `forward`, the constructor or others reach."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from opsgen.source.rules.outline import Outline
from opsgen.source.rules.scopes import Class, Scope, Store

_RUN = ("forward", "__call__")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


class Reach:
    """Scopes by when they run: in a call of the model, or while it is built.

    Only what is mentioned in sure nodes counts, so that training branches and optional parts
    stay out. A module of the task is in a call when an attribute is read that surely holds it.
    """

    def __init__(self, out: Outline) -> None:
        self.call: list[Scope] = []
        self.setup: list[Scope] = []
        self._out = out
        self._seen: set[tuple[int, bool]] = set()
        self._todo: list[tuple[Scope, bool]] = []
        model = out.find_class("Model")
        if model is not None:
            self._add_methods(model, _RUN, in_call=True)
            self._add_methods(model, ("__init__",), in_call=False)
        self._drain()

    def of_function(self, name: str) -> list[Scope]:
        """Return a top-level function and what it surely reaches."""
        scope = self._out.find_function(name)
        if scope is None:
            return []
        other = Reach.__new__(Reach)
        other.call, other.setup, other._out = [], [], self._out
        other._seen, other._todo = set(), []
        other._add(scope, in_call=False)
        other._drain()
        return other.setup

    def _drain(self) -> None:
        while self._todo:
            scope, in_call = self._todo.pop()
            (self.call if in_call else self.setup).append(scope)
            for node in scope.nodes:
                if self._out.is_sure(node):
                    self._mention(node, scope, in_call)
            for child in scope.children:
                is_function = isinstance(child.node, _FUNCTIONS)
                if is_function and self._out.is_sure(child.node) and not self._is_kept(child):
                    self._add(child, in_call)

    def _is_kept(self, scope: Scope) -> bool:
        """Whether a lambda is assigned to an attribute, so that it runs when that is read."""
        parent = self._out.parents.get(scope.node)
        return isinstance(parent, ast.Assign) and isinstance(parent.targets[0], ast.Attribute)

    def _mention(self, node: ast.AST, scope: Scope, in_call: bool) -> None:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            found = self._out.definition(node)
            if isinstance(found, ast.ClassDef):
                self._class(node, self._out.class_of[found], in_call)
            elif found is not None:
                self._add(self._out.scope_of[found], in_call)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            self._attribute(node, scope, in_call)

    def _class(self, node: ast.Name, cls: Class, in_call: bool) -> None:
        """Take in what naming a class runs; `super(Model, self)` and `isinstance` run nothing."""
        above = self._out.parents.get(node)
        if not in_call:
            self._add_methods(cls, ("__init__",), in_call=False)
        elif isinstance(above, ast.Call) and above.func is node:
            self._add_methods(cls, ("__init__", *_RUN), in_call=True)
        elif isinstance(above, ast.Attribute):
            name = "forward" if above.attr == "apply" else above.attr
            self._add_methods(cls, (name,), in_call=True)

    def _attribute(self, node: ast.Attribute, scope: Scope, in_call: bool) -> None:
        if scope.owner is None:
            return
        name, held_by = self._out.self_attribute(node), self._out.self_attribute(node.value)
        method = self._out.method(scope.owner, name) if name else None
        if method is not None:
            if not self._is_overridden(scope.owner, name):
                self._add(method, in_call)
        elif in_call and (name or held_by):
            for each in held(self._out, scope.owner, name or held_by):
                if isinstance(each, Class):
                    self._add_methods(each, _RUN if name else (node.attr,), in_call=True)
                elif name:
                    self._add(each, in_call=True)

    def _is_overridden(self, cls: Class, name: str) -> bool:
        others = self._out.class_of.values()
        return any(
            other is not cls and name in other.methods and cls in self._out.lineage(other)
            for other in others
        )

    def _add_methods(self, cls: Class, names: tuple[str, ...], *, in_call: bool) -> None:
        for name in names:
            method = self._out.method(cls, name)
            if method is not None:
                self._add(method, in_call)

    def _add(self, scope: Scope, in_call: bool) -> None:
        if (id(scope), in_call) not in self._seen:
            self._seen.add((id(scope), in_call))
            self._todo.append((scope, in_call))


def held(out: Outline, cls: Class, name: str) -> list[Class | Scope]:
    """Return the task's classes and functions that an attribute of the object surely holds.

    Containers, comprehensions, lists that the constructor fills, and methods that build what
    they return are looked into; an attribute that is assigned twice holds nothing sure.
    """
    stores = out.stores(cls, name)
    if len(stores) != 1 or not out.is_sure(stores[0].node):
        return []
    found: list[Class | Scope] = []
    for node in _values(out, stores[0]):
        definition = out.definition(node) if isinstance(node, ast.Name | ast.Lambda) else None
        if isinstance(definition, ast.ClassDef):
            found.append(out.class_of[definition])
        elif definition is not None and not _is_called(out, node):
            found.append(out.scope_of[definition])
    return found


def _values(out: Outline, store: Store) -> Iterator[ast.AST]:
    """Yield the sure nodes that make up what is stored, local lists and builders included."""
    if store.value is None:
        return
    seen: set[str] = set()
    todo: list[ast.AST] = [store.value]
    while todo:
        for node in ast.walk(todo.pop()):
            if node not in out.home or not out.is_sure(node):
                continue
            yield node
            if isinstance(node, ast.Name) and node.id not in seen:
                seen.add(node.id)
                todo += _appended(out, store.scope, node.id)
                if _is_called(out, node):
                    todo += _body(out.definition(node))
            elif isinstance(node, ast.Attribute) and out.self_attribute(node) and store.scope.owner:
                builder = out.method(store.scope.owner, node.attr)
                if builder is not None and node.attr not in seen:
                    seen.add(node.attr)
                    todo += builder.body


def _is_called(out: Outline, node: ast.AST) -> bool:
    parent = out.parents.get(node)
    return isinstance(parent, ast.Call) and parent.func is node


def _body(node: ast.AST | None) -> list[ast.stmt]:
    return node.body if isinstance(node, ast.FunctionDef) else []


def _appended(out: Outline, scope: Scope, name: str) -> Iterator[ast.AST]:
    """Yield what a local list is bound to and what is appended to it."""
    for value in scope.bindings.get(name, ()):
        if isinstance(value, ast.expr):
            yield value
    for node in scope.nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            base, is_growing = node.func.value, node.func.attr in {"append", "extend", "insert"}
            if is_growing and isinstance(base, ast.Name) and base.id == name:
                yield from node.args
