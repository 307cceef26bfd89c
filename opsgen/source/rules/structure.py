"""Rules for the form of a task: one model, one of each entry point, nothing else that runs."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator

from opsgen.source.rules.scopes import Class, Scope
from opsgen.source.rules.task import Breach, Reading, last_part

ENTRY_POINTS = ("get_inputs", "get_init_inputs")
_TOP_LEVEL = (
    ast.AnnAssign,
    ast.Assert,
    ast.Assign,
    ast.AugAssign,
    ast.ClassDef,
    ast.FunctionDef,
    ast.Import,
    ast.ImportFrom,
    ast.Pass,
)
_REDEFINING = frozenset({"deleter", "getter", "overload", "register", "setter"})


def one_model(task: Reading) -> Iterator[Breach]:
    """One class `Model`, a module with one constructor at most and one forward."""
    nodes = [n for n in task.out.body if isinstance(n, ast.ClassDef) and n.name == "Model"]
    if len(nodes) != 1:
        yield (nodes[1].lineno if nodes else 1), f"{len(nodes)} classes named Model"
    for node in nodes[:1]:
        model = task.out.class_of[node]
        if not _is_module(task, model):
            yield node.lineno, "Model does not derive from nn.Module"
        for name in ("__init__", "forward"):
            count = sum(isinstance(n, ast.FunctionDef) and n.name == name for n in node.body)
            is_missing = count == 0 and name == "forward" and not _inherits(task, model, name)
            if count > 1 or is_missing:
                yield node.lineno, f"{count} definitions of {name} in Model"


def entry_points(task: Reading) -> Iterator[Breach]:
    """One definition of each of the functions that give inputs."""
    for name in ENTRY_POINTS:
        count = sum(isinstance(n, ast.FunctionDef) and n.name == name for n in task.out.body)
        if count != 1:
            yield 1, f"{count} definitions of {name}"


def top_level(task: Reading) -> Iterator[Breach]:
    """Definitions, imports and assignments only: nothing else runs on import."""
    for node in task.out.body:
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not is_text and not isinstance(node, _TOP_LEVEL):
            yield node.lineno, f"{type(node).__name__} statement at module level"


def duplicates(task: Reading) -> Iterator[Breach]:
    """Names that are defined twice, so that the last hides the others."""
    for scope in task.out.scopes:
        if isinstance(scope.node, ast.Module | ast.ClassDef):
            yield from _repeated(task, scope)


def replaced_methods(task: Reading) -> Iterator[Breach]:
    """Attributes of the task's own classes assigned at module level."""
    for node in task.find(ast.Attribute, [task.out.module]):
        is_store = not isinstance(node.ctx, ast.Load)
        if is_store and isinstance(task.out.definition(node.value), ast.ClassDef):
            yield node.lineno, ast.unparse(node)


def placeholders(task: Reading) -> Iterator[Breach]:
    """A forward that somebody meant to write."""
    if task.forward is None or isinstance(task.forward.node, ast.Lambda):
        return
    work = [each for each in task.forward.body if not _is_blank(task, each)]
    if not work:
        yield getattr(task.forward.node, "lineno", 1), "forward without a body"


def lazy_modules(task: Reading) -> Iterator[Breach]:
    """Modules without shapes until they are called."""
    for node in [*task.find(ast.Name), *task.find(ast.Attribute)]:
        path = task.out.path(node)
        name = last_part(path)
        is_lazy = name.startswith("Lazy") and path.startswith("torch.nn.")
        if is_lazy or name in {"UninitializedBuffer", "UninitializedParameter"}:
            yield node.lineno, path


def _is_module(task: Reading, cls: Class) -> bool:
    for each in task.out.lineage(cls):
        for base in each.node.bases:
            path = task.out.path(base)
            if last_part(path).endswith("Module") or path.startswith("torch.nn."):
                return True
    return False


def _inherits(task: Reading, cls: Class, name: str) -> bool:
    """Whether a class above has a method: one of the task's, or one of torch's own."""
    method = task.out.method(cls, name)
    if method is not None:
        return isinstance(method.node, ast.FunctionDef)
    bases = [task.out.path(base) for each in task.out.lineage(cls) for base in each.node.bases]
    return any(path.startswith("torch.nn.") and not path.endswith("Module") for path in bases)


def _repeated(task: Reading, scope: Scope) -> Iterator[Breach]:
    definitions = [
        node
        for node in (task.out.body if scope is task.out.module else scope.body)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and not any(_redefines(decorator) for decorator in node.decorator_list)
    ]
    seen: Counter[str] = Counter()
    for node in definitions:
        seen[node.name] += 1
        if seen[node.name] == 2 and node.name != "_":
            yield node.lineno, f"{node.name} is defined again"
    for node in definitions:
        found = scope.bindings[node.name]
        if any(each is None or isinstance(each, ast.expr) for each in found):
            yield node.lineno, f"{node.name} is assigned to as well"


def _redefines(decorator: ast.expr) -> bool:
    target = decorator.func if isinstance(decorator, ast.Call) else decorator
    name = target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", "")
    return name in _REDEFINING


def _is_blank(task: Reading, node: ast.stmt) -> bool:
    if isinstance(node, ast.Raise):
        raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
        return task.out.path(raised) == "builtins.NotImplementedError"
    is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return is_text or isinstance(node, ast.Pass)
