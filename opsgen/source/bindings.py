"""What the names of a source stand for: imports, constants, definitions, attributes, numbers."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator

_LARGEST = 2**64
_ARITHMETIC: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}
_PURE = (ast.Constant, ast.Tuple, ast.List, ast.Name, ast.Attribute, ast.BinOp, ast.UnaryOp)
_PURE_PARTS = (*_PURE, ast.expr_context, ast.operator, ast.unaryop)
_BODIES = ("body", "orelse", "handlers", "finalbody", "cases")
_REGISTRARS = frozenset({"add_module", "register_buffer", "register_module", "register_parameter"})
_FLAT = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.Return, ast.Assert, ast.Pass)
_LATE = (ast.Lambda, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
Function = ast.FunctionDef | ast.AsyncFunctionDef


class Bindings:
    """The top-level names of a module.

    Attributes:
        imports: Full names of what imports bind, wherever they stand.
        constants: Expressions of names that are assigned once, to what needs no call.
        definitions: Statements that define all other names, in order.
        statements: What defines nothing and still runs at import.
        classes: All classes by name, nested ones included.
    """

    def __init__(self, tree: ast.Module) -> None:
        self.imports: dict[str, str] = {}
        self.constants: dict[str, ast.expr] = {}
        self.definitions: dict[str, list[ast.stmt]] = {}
        self.statements: list[ast.stmt] = []
        self.classes: dict[str, ast.ClassDef] = {}
        for node in statements_of(tree):
            if isinstance(node, ast.ClassDef):
                self.classes[node.name] = node
            elif isinstance(node, ast.Import | ast.ImportFrom):
                self.imports.update(_imported(node))
        for statement in tree.body:
            self._bind(statement)
        for name, definitions in list(self.definitions.items()):
            value = getattr(definitions[0], "value", None)
            if len(definitions) == 1 and isinstance(value, ast.expr) and _is_pure(value):
                self.constants[name] = value
                del self.definitions[name]
        self._drop_circles()

    def _bind(self, statement: ast.stmt) -> None:
        if isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            self.definitions.setdefault(statement.name, []).append(statement)
            return
        pairs = list(_assigned(statement))
        for name, value in pairs:
            single = ast.Assign(targets=[ast.Name(id=name, ctx=ast.Store())], value=value)
            self.definitions.setdefault(name, []).append(single)
        is_script = isinstance(statement, ast.If) and "__name__" in ast.dump(statement.test)
        if not (pairs or is_script):
            self.statements.append(statement)

    def _drop_circles(self) -> None:
        """Take out constants that mention themselves: `x = x + 1` after a loop, or a mistake."""
        depths: dict[str, int] = {}

        def depth(name: str) -> int:
            if name not in depths:
                depths[name] = len(self.constants) + 1  # what a circle meets
                inner = [n.id for n in ast.walk(self.constants[name]) if isinstance(n, ast.Name)]
                known = [depth(other) for other in inner if other in self.constants]
                depths[name] = 1 + max(known, default=0)
            return depths[name]

        for name in list(self.constants):
            if depth(name) > len(self.constants):
                del self.constants[name]

    def parameters(self, name: str) -> list[str]:
        """Return the parameters of an own function, or of a class's constructor without self."""
        for node in self.definitions.get(name, ()):
            if isinstance(node, Function):
                return [arg.arg for arg in node.args.args]
            if isinstance(node, ast.ClassDef):
                made = [n for n in node.body if isinstance(n, Function) and n.name == "__init__"]
                return [arg.arg for arg in made[0].args.args][1:] if made else []
        return []


def class_attributes(node: ast.ClassDef) -> dict[str, ast.expr | None]:
    """Return the names that a class gives its objects, each with what is called to make it.

    These are its methods, what its body assigns, and what its methods assign to the first
    argument or register under a literal name.
    """
    found: dict[str, ast.expr | None] = {}
    for statement in node.body:
        if isinstance(statement, Function):
            found[statement.name] = None
        elif isinstance(statement, ast.Assign | ast.AnnAssign):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            found.update((t.id, None) for t in targets if isinstance(t, ast.Name))
    for method in node.body:
        if isinstance(method, Function) and method.args.args:
            for name, value in _set_on(method, method.args.args[0].arg):
                maker = value.func if isinstance(value, ast.Call) else None
                # Assigned twice it has no one maker.
                found[name] = None if name in found else maker
    return found


def _set_on(method: Function, owner: str) -> Iterator[tuple[str, ast.expr | None]]:
    """Yield the attributes of `owner` that a method assigns or registers, and their values."""
    for node in statements_of(method):
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                for one in target.elts if isinstance(target, ast.Tuple) else [target]:
                    if isinstance(one, ast.Attribute) and _is_named(one.value, owner):
                        yield one.attr, node.value
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            name = registered_name(node.value)
            if name is not None and _is_named(node.value.func.value, owner):  # type: ignore[attr-defined]
                yield name, None


def statements_of(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements below a node, those in them included; what stands in expressions not."""
    pending = [node]
    while pending:
        parent = pending.pop()
        for name in _BODIES:
            inner = getattr(parent, name, ())
            if isinstance(inner, list):  # a lambda's body is an expression
                yield from inner
                pending += inner


def registered_name(node: ast.Call) -> str | None:
    """Return the literal name under which a call registers something with a module."""
    if not (isinstance(node.func, ast.Attribute) and node.func.attr in _REGISTRARS and node.args):
        return None
    name = node.args[0]
    is_literal = isinstance(name, ast.Constant) and isinstance(name.value, str)
    return name.value if is_literal else None  # type: ignore[attr-defined]


def says_nothing(statement: ast.stmt) -> bool:
    """Whether a statement is a docstring, an import or nothing."""
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Constant)
    return isinstance(statement, ast.Pass | ast.Import | ast.ImportFrom)


def changes_nothing(node: ast.BinOp | ast.UnaryOp) -> bool:
    """Whether an operation is by a literal that leaves the left operand as it is."""
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.UAdd)
    neutral = 0 if isinstance(node.op, ast.Add | ast.Sub) else 1
    is_neutral = isinstance(node.right, ast.Constant) and node.right.value == neutral
    return is_neutral and isinstance(node.op, ast.Add | ast.Sub | ast.Mult | ast.Div | ast.Pow)


def is_plain_init(node: ast.Call) -> bool:
    """Whether a call is `super().__init__()`, in either spelling."""
    func = node.func
    return (
        isinstance(func, ast.Attribute)
        and func.attr == "__init__"
        and isinstance(func.value, ast.Call)
        and isinstance(func.value.func, ast.Name)
        and func.value.func.id == "super"
        and not (node.args or node.keywords)
    )


def is_straight(node: Function) -> bool:
    """Whether each assignment of a body runs once, so that it may be given a name of its own."""
    return all(isinstance(one, _FLAT) for one in node.body) and not any(
        isinstance(inner, _LATE) for one in node.body for inner in ast.walk(one)
    )


def _is_named(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def fold(node: ast.expr, constant: Callable[[str], ast.expr | None]) -> float | None:
    """Return the number that arithmetic on literals gives; None where it is no such thing.

    Args:
        node: The expression.
        constant: Returns what a name stands for, or None.
    """
    if isinstance(node, ast.Constant):
        is_number = isinstance(node.value, int | float) and not isinstance(node.value, bool)
        return node.value if is_number else None  # type: ignore[return-value]
    if isinstance(node, ast.Name):
        known = constant(node.id)
        return None if known is None else fold(known, constant)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = fold(node.operand, constant)
        return None if inner is None else -inner
    if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        left, right = fold(node.left, constant), fold(node.right, constant)
        if not (isinstance(left, int) and isinstance(right, int)):
            return None
        if max(abs(left), abs(right)) > _LARGEST or (
            isinstance(node.op, ast.FloorDiv) and not right
        ):
            return None
        return _ARITHMETIC[type(node.op)](left, right)
    return None


def _imported(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, str]]:
    for alias in node.names:
        if isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            yield alias.asname or alias.name, f"{base}.{alias.name}"
        elif alias.asname:
            yield alias.asname, alias.name
        else:
            top = alias.name.partition(".")[0]
            yield top, top


def _assigned(statement: ast.stmt) -> Iterator[tuple[str, ast.expr]]:
    """Yield names and values of an assignment to plain names only; nothing for others."""
    if isinstance(statement, ast.AnnAssign):
        targets: list[ast.expr] = [statement.target]
    elif isinstance(statement, ast.Assign):
        targets = statement.targets
    else:
        return
    value = statement.value
    if value is None:
        return
    pairs: list[tuple[ast.expr, ast.expr]] = []
    for target in targets:
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            if len(target.elts) != len(value.elts):
                return
            pairs += zip(target.elts, value.elts, strict=True)
        else:
            pairs.append((target, value))
    if all(isinstance(target, ast.Name) for target, _ in pairs):
        for target, single in pairs:
            assert isinstance(target, ast.Name)
            yield target.id, single


def _is_pure(value: ast.expr) -> bool:
    return all(isinstance(node, _PURE_PARTS) for node in ast.walk(value))
