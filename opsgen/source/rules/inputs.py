"""Rules for what `get_inputs` and `get_init_inputs` give: tensors that vary from draw to draw."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from opsgen.source.rules.constants import UNKNOWN, constant, followed, returned_items
from opsgen.source.rules.placement import FACTORIES
from opsgen.source.rules.randomness import is_draw
from opsgen.source.rules.scopes import Scope
from opsgen.source.rules.task import Breach, Reading, last_part

_FILLED = frozenset(
    {"eye", "hamming_window", "hann_window", "linspace", "logspace", "ones", "zeros"}
)
_KEEPING = frozenset(
    {"contiguous", "clone", "expand", "flatten", "permute", "repeat", "reshape", "requires_grad_"}
    | {"squeeze", "t", "transpose", "tril", "triu", "unsqueeze", "view"}
)
_FLOATS = frozenset({"bfloat16", "double", "float", "float16", "float32", "float64", "half"})
_METHODS = _KEEPING | {"abs", "bool", "cuda", "exp", "float", "half", "log", "long", "sqrt", "to"}
_MATHS = _METHODS | {"cat", "cos", "outer", "pow", "sin", "stack", "tanh", "where"}
_CACHES = ("functools.cache", "functools.lru_cache")
_MAX_DEPTH = 8


def no_inputs(task: Reading) -> Iterator[Breach]:
    """A task without inputs."""
    if returned_items(task.out, "get_inputs") == []:
        scope = task.out.find_function("get_inputs")
        assert scope is not None
        yield getattr(scope.node, "lineno", 1), "get_inputs returns nothing"


def seeded_inputs(task: Reading) -> Iterator[Breach]:
    """Inputs drawn from a seed of the code's own, or kept from an earlier draw."""
    for call in task.calls(task.inputs):
        func = call.func
        is_seeding = isinstance(func, ast.Attribute) and func.attr.startswith("manual_seed")
        path = task.out.path(func)
        is_global = path.startswith("torch.") and last_part(path).startswith("manual_seed")
        is_known = bool(call.args) and constant(task.out, call.args[0]) is not UNKNOWN
        if is_global or (is_seeding and is_known):
            yield call.lineno, path or ast.unparse(func)
    for scope in task.inputs:
        for decorator in getattr(scope.node, "decorator_list", ()):
            target = decorator.func if isinstance(decorator, ast.Call) else decorator
            if task.out.path(target) in _CACHES:
                yield decorator.lineno, task.out.path(target)


def fixed_inputs(task: Reading) -> Iterator[Breach]:
    """Inputs that every draw gives alike: built on import, or filled with fixed floats."""
    for item in returned_items(task.out, "get_inputs") or ():
        name = _built_on_import(task, item)
        if name:
            yield item.lineno, f"{name} is built at module level"
        elif _is_fixed(task, item):
            yield item.lineno, ast.unparse(item)[:80]


def nested_draw(task: Reading) -> Iterator[Breach]:
    """Constructor arguments that are read off drawn inputs."""
    for call in task.calls(task.init_inputs):
        found = task.out.definition(call.func)
        if isinstance(found, ast.FunctionDef) and found.name == "get_inputs":
            yield call.lineno, "get_inputs"


def module_tensors(task: Reading) -> Iterator[Breach]:
    """Tensors built on import and read in a call: neither parameter, buffer nor input."""
    for node in task.sure(task.call):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            scope, found = task.out.bindings(node.id, task.out.home[node])
            if scope is task.out.module and len(found) == 1 and is_tensor(task, found[0]):
                yield node.lineno, node.id


def is_tensor(task: Reading, node: object, depth: int = 0) -> bool:
    """Return whether an expression certainly is a tensor that a factory of torch made."""
    if depth > _MAX_DEPTH or not isinstance(node, ast.expr):
        return False
    if isinstance(node, ast.BinOp):
        return any(is_tensor(task, each, depth + 1) for each in (node.left, node.right))
    if isinstance(node, ast.Subscript | ast.UnaryOp):
        inner = node.value if isinstance(node, ast.Subscript) else node.operand
        return is_tensor(task, inner, depth + 1)
    if isinstance(node, ast.Name):
        value = followed(task.out, node)
        return value is not node and is_tensor(task, value, depth + 1)
    if not isinstance(node, ast.Call):
        return False
    path = task.out.path(node.func)
    name = last_part(path)
    if path == f"torch.{name}":
        if name in FACTORIES or is_draw(task, node):
            return True
        return name in _MATHS and any(is_tensor(task, each, depth + 1) for each in node.args)
    if isinstance(node.func, ast.Attribute) and not path:
        return node.func.attr in _METHODS and is_tensor(task, node.func.value, depth + 1)
    return False


def _built_on_import(task: Reading, node: ast.expr) -> str:
    """Return the name of the module-level tensor that an input is, or is a copy of."""
    value: ast.expr | None = node
    for _ in range(_MAX_DEPTH):
        if isinstance(value, ast.Name):
            scope, found = task.out.bindings(value.id, task.out.home[value])
            if _is_changed(task, task.out.home[value], value.id):
                return ""
            if scope is task.out.module:
                is_built = len(found) == 1 and is_tensor(task, found[0])
                return value.id if is_built else ""
            value = followed(task.out, value)
        elif isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
            is_kept = value.func.attr in _METHODS and not task.out.path(value.func)
            value = value.func.value if is_kept else None
        else:
            return ""
    return ""


def _is_fixed(task: Reading, node: ast.expr | None, depth: int = 0) -> bool:
    """Whether an expression certainly is a floating tensor of the same values in every draw."""
    if depth > _MAX_DEPTH or node is None:
        return False
    if isinstance(node, ast.Name):
        value = followed(task.out, node)
        is_kept = value is not node and not _is_changed(task, task.out.home[node], node.id)
        return is_kept and _is_fixed(task, value, depth + 1)
    if isinstance(node, ast.BinOp):
        sides = (node.left, node.right)
        is_plain = all(
            _is_fixed(task, each, depth + 1) or constant(task.out, each) is not UNKNOWN
            for each in sides
        )
        return is_plain and any(_is_fixed(task, each, depth + 1) for each in sides)
    if not isinstance(node, ast.Call) or any(word.arg is None for word in node.keywords):
        return False
    path = task.out.path(node.func)
    name = last_part(path)
    if path == f"torch.{name}" and name in _FILLED:
        ends = node.args[:2] if name in {"linspace", "logspace"} else []
        is_known = all(constant(task.out, each) is not UNKNOWN for each in ends)
        return is_known and _has_float_dtype(task, node)
    if path == f"torch.{name}" and name in {"tril", "triu"}:
        return _is_fixed(task, node.args[0], depth + 1) if node.args else False
    if isinstance(node.func, ast.Attribute) and not path and node.func.attr in _KEEPING:
        return _is_fixed(task, node.func.value, depth + 1)
    return False


def _has_float_dtype(task: Reading, call: ast.Call) -> bool:
    for word in call.keywords:
        if word.arg == "dtype":
            return last_part(task.out.path(word.value)) in _FLOATS
    return True


def _is_changed(task: Reading, scope: Scope, name: str, depth: int = 0) -> bool:
    """Whether a tensor may be written to, under its name or that of a view of it."""
    return depth > _MAX_DEPTH or any(
        node.id == name and isinstance(node.ctx, ast.Load) and not _is_kept(task, node, depth)
        for node in task.find(ast.Name, [scope])
    )


def _is_kept(task: Reading, node: ast.Name, depth: int) -> bool:
    """Whether a use of a tensor only returns it, computes with it or gives it another name."""
    for each in task.out.above(node):
        if isinstance(each, ast.Attribute) and each.attr not in _METHODS:
            return False
        if isinstance(each, ast.Subscript) and not isinstance(each.ctx, ast.Load):
            return False
        if isinstance(each, ast.Call) and task.out.path(each.func).endswith("_"):
            return False
        if isinstance(each, ast.Return):
            return True
        if isinstance(each, ast.Assign):
            target, scope = each.targets[0], task.out.home[node]
            return isinstance(target, ast.Name) and not _is_changed(
                task, scope, target.id, depth + 1
            )
    return False
