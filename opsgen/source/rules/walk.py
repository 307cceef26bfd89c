"""The one walk over a task's tree that fills its outline."""

from __future__ import annotations

import ast
from collections.abc import Callable

from opsgen.source.rules.outline import Outline
from opsgen.source.rules.scopes import Binding, Class, FunctionNode, Scope, Store, parameters

_LEAVES = (ast.Return, ast.Break, ast.Continue)
_COMPOUND = (ast.If, ast.For, ast.While, ast.With, ast.Try, ast.Match)
_SKIPPED = frozenset({"ctx", "op", "ops"})


def read_outline(tree: ast.Module, code: str) -> Outline:
    """Return the outline of a parsed task.

    A block under `if __name__ == "__main__":` never runs in an import and is left out.
    """
    outline = Outline(tree, code)
    _Reader(outline).read()
    return outline


def is_main_guard(statement: ast.stmt) -> bool:
    """Return whether a statement is `if __name__ == "__main__":` without an `else`."""
    if not isinstance(statement, ast.If) or statement.orelse:
        return False
    return ast.unparse(statement.test) in {"__name__ == '__main__'", "'__main__' == __name__"}


class _Reader:
    """Fills an outline."""

    def __init__(self, outline: Outline) -> None:
        self.out = outline
        self.handlers: dict[type, Callable[..., None]] = {
            ast.FunctionDef: self.function,
            ast.AsyncFunctionDef: self.function,
            ast.Lambda: self.function,
            ast.ClassDef: self.class_,
            ast.If: self.branch,
            ast.IfExp: self.branch,
            ast.While: self.branch,
            ast.BoolOp: self.junction,
            ast.Try: self.attempt,
            ast.Match: self.match,
            ast.For: self.loop,
            ast.With: self.block_holder,
            ast.ListComp: self.comprehension,
            ast.SetComp: self.comprehension,
            ast.DictComp: self.comprehension,
            ast.GeneratorExp: self.comprehension,
            ast.Import: self.imported,
            ast.ImportFrom: self.imported,
            ast.Assign: self.assignment,
            ast.AnnAssign: self.assignment,
            ast.NamedExpr: self.assignment,
            ast.AugAssign: self.augmented,
            ast.Name: self.name,
            ast.Attribute: self.attribute,
            ast.Constant: self.constant,
            ast.Global: self.declaration,
            ast.ExceptHandler: self.named,
            ast.MatchAs: self.named,
            ast.MatchStar: self.named,
        }

    def read(self) -> None:
        self.out.body = [each for each in self.out.tree.body if not is_main_guard(each)]
        self.out.scopes.append(self.out.module)
        self.out.scope_of[self.out.tree] = self.out.module
        self.block(self.out.body, self.out.module, True, self.out.tree)

    def visit(self, node: ast.AST, scope: Scope, sure: bool) -> None:
        self.out.home[node] = scope
        scope.add(node)
        if not sure:
            self.out.doubtful.add(node)
        handler = self.handlers.get(type(node))
        if handler is None:
            self.children(node, scope, sure)
        else:
            handler(node, scope, sure)

    def children(self, node: ast.AST, scope: Scope, sure: bool) -> None:
        for name in node._fields:
            if name not in _SKIPPED:
                value = getattr(node, name, None)
                if isinstance(value, list):
                    self.each(value, node, scope, sure)
                elif isinstance(value, ast.AST):
                    self.out.parents[value] = node
                    self.visit(value, scope, sure)

    def each(self, items: list[ast.AST], parent: ast.AST, scope: Scope, sure: bool) -> None:
        for item in items:
            if isinstance(item, ast.AST):
                self.out.parents[item] = parent
                self.visit(item, scope, sure)

    def one(self, node: ast.AST | None, parent: ast.AST, scope: Scope, sure: bool) -> None:
        if node is not None:
            self.each([node], parent, scope, sure)

    def block(self, body: list[ast.stmt], scope: Scope, sure: bool, parent: ast.AST) -> None:
        for statement in body:
            self.one(statement, parent, scope, sure)
            if isinstance(statement, _COMPOUND + _LEAVES) and _may_leave(statement):
                sure = False

    def function(self, node: FunctionNode, scope: Scope, sure: bool) -> None:
        inner = Scope(node=node, parent=scope, owner=scope.owner)
        self.out.scopes.append(inner)
        self.out.scope_of[node] = inner
        scope.children.append(inner)
        if not isinstance(node, ast.Lambda):
            self.bind(node.name, node, scope)
            self.each([*node.decorator_list], node, scope, sure)
            self.one(node.returns, node, scope, sure)
        self.one(node.args, node, scope, sure)
        rest = [each for each in (node.args.vararg, node.args.kwarg) if each is not None]
        for argument in [*parameters(node), *rest]:
            inner.bindings[argument.arg] = [argument]
        if isinstance(scope.node, ast.ClassDef) and not isinstance(node, ast.Lambda):
            assert scope.owner is not None
            scope.owner.methods[node.name] = inner
            names = parameters(node)
            if names and not any(_is_static(each) for each in node.decorator_list):
                inner.receiver = names[0].arg
        if isinstance(node, ast.Lambda):
            self.one(node.body, node, inner, True)
        else:
            self.block(node.body, inner, True, node)

    def class_(self, node: ast.ClassDef, scope: Scope, sure: bool) -> None:
        self.bind(node.name, node, scope)
        self.each([*node.decorator_list, *node.bases, *node.keywords], node, scope, sure)
        inner = Scope(node=node, parent=scope, owner=None)
        inner.owner = self.out.class_of[node] = Class(node=node, scope=inner)
        self.out.scopes.append(inner)
        self.out.scope_of[node] = inner
        scope.children.append(inner)
        self.block(node.body, inner, True, node)

    def branch(self, node: ast.If | ast.IfExp | ast.While, scope: Scope, sure: bool) -> None:
        self.one(node.test, node, scope, sure)
        known = bool(node.test.value) if isinstance(node.test, ast.Constant) else None
        for part, runs in ((node.body, known is True), (node.orelse, known is False)):
            if isinstance(part, list):
                self.block(part, scope, sure and runs, node)
            else:
                self.one(part, node, scope, sure and runs)

    def junction(self, node: ast.BoolOp, scope: Scope, sure: bool) -> None:
        self.one(node.values[0], node, scope, sure)
        self.each([*node.values[1:]], node, scope, False)

    def attempt(self, node: ast.Try, scope: Scope, sure: bool) -> None:
        self.block(node.body, scope, sure, node)
        self.each([*node.handlers], node, scope, False)
        self.block(node.orelse, scope, False, node)
        self.block(node.finalbody, scope, sure, node)

    def match(self, node: ast.Match, scope: Scope, sure: bool) -> None:
        self.one(node.subject, node, scope, sure)
        self.each([*node.cases], node, scope, False)

    def loop(self, node: ast.For, scope: Scope, sure: bool) -> None:
        self.one(node.iter, node, scope, sure)
        self.one(node.target, node, scope, sure)
        self.block(node.body, scope, sure, node)
        self.block(node.orelse, scope, False, node)

    def block_holder(self, node: ast.With, scope: Scope, sure: bool) -> None:
        self.each([*node.items], node, scope, sure)
        self.block(node.body, scope, sure, node)

    def comprehension(self, node: ast.ListComp, scope: Scope, sure: bool) -> None:
        is_filtered = any(each.ifs for each in node.generators)
        self.each([*node.generators], node, scope, sure)
        for name in ("key", "value", "elt"):
            self.one(getattr(node, name, None), node, scope, sure and not is_filtered)

    def imported(self, node: ast.Import | ast.ImportFrom, scope: Scope, sure: bool) -> None:
        for alias in node.names:
            if isinstance(node, ast.Import):
                path = alias.name if alias.asname else alias.name.partition(".")[0]
                self.bind(alias.asname or path, path, scope)
            elif alias.name == "*":
                self.out.stars.append(node.module or "")
            else:
                base = "." * node.level + (node.module or "")
                self.bind(alias.asname or alias.name, f"{base}.{alias.name}", scope)

    def assignment(
        self, node: ast.Assign | ast.AnnAssign | ast.NamedExpr, scope: Scope, sure: bool
    ) -> None:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        self.one(node.value, node, scope, sure)
        if isinstance(node, ast.AnnAssign):
            self.one(node.annotation, node, scope, sure)
        for target in targets:
            if isinstance(target, ast.Name) and node.value is not None:
                self.out.parents[target] = node
                self.out.home[target] = scope
                scope.add(target)
                self.bind(target.id, node.value, scope)
            else:
                self.one(target, node, scope, sure)

    def augmented(self, node: ast.AugAssign, scope: Scope, sure: bool) -> None:
        self.one(node.value, node, scope, sure)
        if isinstance(node.target, ast.Name):
            self.out.parents[node.target] = node
            self.out.home[node.target] = scope
            scope.add(node.target)
            self.bind(node.target.id, node, scope)
        else:
            self.one(node.target, node, scope, sure)

    def name(self, node: ast.Name, scope: Scope, sure: bool) -> None:
        if not isinstance(node.ctx, ast.Load):
            self.bind(node.id, None, scope)

    def named(self, node: ast.ExceptHandler, scope: Scope, sure: bool) -> None:
        if node.name is not None:
            self.bind(node.name, None, scope)
        self.children(node, scope, sure)

    def declaration(self, node: ast.Global, scope: Scope, sure: bool) -> None:
        scope.outer.update(node.names)

    def attribute(self, node: ast.Attribute, scope: Scope, sure: bool) -> None:
        self.one(node.value, node, scope, sure)
        if isinstance(node.ctx, ast.Load):
            self.out.loaded.add(node.attr)
        elif isinstance(node.ctx, ast.Store) and self.out.self_attribute(node):
            statement = self.out.parents[node]
            value = getattr(statement, "value", None)
            if isinstance(statement, ast.AugAssign):
                self.out.loaded.add(node.attr)
                value = None
            if scope.owner is not None:
                stores = scope.owner.stores.setdefault(node.attr, [])
                stores.append(Store(value=value, node=node, statement=statement, scope=scope))

    def constant(self, node: ast.Constant, scope: Scope, sure: bool) -> None:
        if isinstance(node.value, str) and not isinstance(self.out.parents[node], ast.Expr):
            self.out.loaded.update(node.value.split("."))

    def bind(self, name: str, value: Binding, scope: Scope) -> None:
        target = self.out.module if name in scope.outer else scope
        target.bindings.setdefault(name, []).append(value)


def _is_static(decorator: ast.expr) -> bool:
    return isinstance(decorator, ast.Name) and decorator.id == "staticmethod"


def _may_leave(statement: ast.stmt, leaves: tuple[type, ...] = _LEAVES) -> bool:
    """Return whether control may leave the block at a statement without an error."""
    if isinstance(statement, leaves):
        return True
    if isinstance(statement, ast.For | ast.While):
        leaves = (ast.Return,)
    for _, value in ast.iter_fields(statement):
        for each in value if isinstance(value, list) else ():
            inner = each.body if isinstance(each, ast.ExceptHandler | ast.match_case) else [each]
            if any(isinstance(s, _COMPOUND + _LEAVES) and _may_leave(s, leaves) for s in inner):
                return True
    return False
