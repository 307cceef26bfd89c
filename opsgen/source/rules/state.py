"""Rules against state that is neither parameter, buffer nor input."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from opsgen.source.rules.inputs import is_tensor
from opsgen.source.rules.scopes import Class, Scope, Store, parameters
from opsgen.source.rules.task import Breach, Reading, last_part

_GROWING = frozenset(
    {"add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popitem"}
    | {"popleft", "remove", "setdefault", "update"}
)
_CONTAINERS = frozenset(
    {"builtins.dict", "builtins.list", "builtins.set", "collections.Counter"}
    | {"collections.OrderedDict", "collections.defaultdict", "collections.deque"}
)
_LITERALS = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)
_REGISTERING = frozenset(
    {"add_module", "register_buffer", "register_module", "register_parameter", "setattr"}
)
_WEIGHTED = ("Bilinear", "Conv", "Embedding", "GRU", "LSTM", "Linear", "RNN", "Transformer")


def plain_tensors(task: Reading) -> Iterator[Breach]:
    """Tensors that the constructor keeps as plain attributes and a call reads."""
    for owner, name, store in _read_stores(task):
        values = (
            store.value.elts if isinstance(store.value, ast.List | ast.Tuple) else [store.value]
        )
        is_plain = any(is_tensor(task, value) for value in values)
        if is_plain and name not in _registered(task, owner):
            yield store.node.lineno, f"self.{name}"


def unregistered_modules(task: Reading) -> Iterator[Breach]:
    """Modules with weights in plain lists, whose parameters nobody can see."""
    for owner, name, store in _read_stores(task):
        holds = isinstance(store.value, ast.List | ast.Tuple | ast.ListComp | ast.Dict)
        if not holds or _is_wrapped(task, owner, name):
            continue
        parts = [store.value.elt] if isinstance(store.value, ast.ListComp) else _items(store.value)
        if any(isinstance(each, ast.Call) and _has_weights(task, each) for each in parts):
            yield store.node.lineno, f"self.{name}"


def counters(task: Reading) -> Iterator[Breach]:
    """Attributes that a call changes on the strength of what they were."""
    for scope in task.call:
        for node in task.sure([scope]):
            if isinstance(node, ast.AugAssign | ast.Assign):
                name = _counted(task, scope, node)
                if name:
                    yield node.lineno, name
            elif isinstance(node, ast.Call | ast.Subscript):
                name = _grown(task, node)
                if name:
                    yield node.lineno, name
            elif task.out.self_attribute(node) == "register_buffer":
                assert isinstance(node, ast.Attribute)
                yield node.lineno, "self.register_buffer"


def global_state(task: Reading) -> Iterator[Breach]:
    """Module variables, class attributes and default arguments changed at run time."""
    for scope in dict.fromkeys([*task.call, *task.setup, *task.inputs, *task.init_inputs]):
        for node in scope.nodes:
            if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
                if node.id in scope.outer:
                    yield node.lineno, f"global {node.id}"
            elif isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
                if _is_own_class(task, node.value):
                    yield node.lineno, ast.unparse(node)
            elif isinstance(node, ast.Call | ast.Subscript):
                base = _changed_base(node)
                if isinstance(base, ast.Name) and _is_shared(task, scope, base):
                    yield node.lineno, base.id


def _read_stores(task: Reading) -> Iterator[tuple[Class, str, Store]]:
    """Yield the attributes that a call surely reads and the constructor surely sets once."""
    setup, seen = set(task.setup), set()
    for scope in task.call:
        for node in task.sure([scope]):
            name = task.out.self_attribute(node)
            if not name or scope.owner is None or not isinstance(node, ast.Attribute):
                continue
            stores = task.out.stores(scope.owner, name)
            is_read = isinstance(node.ctx, ast.Load) and (scope.owner, name) not in seen
            if is_read and len(stores) == 1 and stores[0].scope in setup:
                seen.add((scope.owner, name))
                if task.out.is_sure(stores[0].node):
                    yield scope.owner, name, stores[0]


def _registered(task: Reading, owner: Class) -> set[str]:
    """Return the names that methods of a class register as buffers or parameters."""
    return {
        str(node.args[0].value)
        for cls in task.out.lineage(owner)
        for scope in cls.methods.values()
        for node in scope.nodes
        if isinstance(node, ast.Call)
        and last_part(ast.unparse(node.func)) in _REGISTERING
        and node.args
        and isinstance(node.args[0], ast.Constant)
    }


def _is_wrapped(task: Reading, owner: Class, name: str) -> bool:
    """Whether the constructor reads an attribute again or registers modules by hand."""
    for cls in task.out.lineage(owner):
        for scope in cls.methods.values():
            for node in scope.nodes:
                if isinstance(node, ast.Call) and last_part(ast.unparse(node.func)) in _REGISTERING:
                    return True
                is_read = task.out.self_attribute(node) == name and scope in task.setup
                if is_read and isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                    return True
    return False


def _items(node: ast.expr | None) -> list[ast.expr]:
    return node.values if isinstance(node, ast.Dict) else list(getattr(node, "elts", []))


def _has_weights(task: Reading, call: ast.Call) -> bool:
    path = task.out.path(call.func)
    return path.startswith("torch.nn.") and last_part(path).startswith(_WEIGHTED)


def _counted(task: Reading, scope: Scope, node: ast.AugAssign | ast.Assign) -> str:
    """Return the attribute that a statement counts on: `self.n += 1`, `self.n = self.n + 1`."""
    target = node.target if isinstance(node, ast.AugAssign) else node.targets[0]
    name = task.out.self_attribute(target)
    if not name or scope.owner is None or name in _registered(task, scope.owner):
        return ""
    if isinstance(node, ast.Assign):
        inner = ast.walk(node.value)
        if not any(
            task.out.self_attribute(each) == name for each in inner if each in task.out.home
        ):
            return ""
    stores = task.out.stores(scope.owner, name)
    is_fresh = any(
        each.scope is scope and each.node.lineno < node.lineno and each.value is not None
        for each in stores
    )
    starts = [each.value for each in stores if each.scope is not scope and each.value is not None]
    starts += [each for each in _class_values(task, scope.owner, name) if each is not None]
    is_plain = bool(starts) and all(isinstance(each, ast.Constant) for each in starts)
    return f"self.{name}" if is_plain and not is_fresh else ""


def _changed_base(node: ast.Call | ast.Subscript) -> ast.expr | None:
    """Return what a call of a mutating method or a store into an item changes."""
    if isinstance(node, ast.Subscript):
        return None if isinstance(node.ctx, ast.Load) else node.value
    func = node.func
    return func.value if isinstance(func, ast.Attribute) and func.attr in _GROWING else None


def _grown(task: Reading, node: ast.Call | ast.Subscript) -> str:
    base, scope = _changed_base(node), task.out.home[node]
    name = task.out.self_attribute(base) if base is not None else ""
    if not name or scope.owner is None:
        return ""
    stores = task.out.stores(scope.owner, name)
    values = [each.value for each in stores if each.scope in task.setup]
    if not stores:
        values = _class_values(task, scope.owner, name)
    is_kept = len(values) == 1 and len(stores) <= 1 and _is_container(task, values[0])
    return f"self.{name}" if is_kept else ""


def _class_values(task: Reading, owner: Class, name: str) -> list[ast.expr | None]:
    """Return what the bodies of a class and those above it bind a name to."""
    return [
        each if isinstance(each, ast.expr) else None
        for cls in task.out.lineage(owner)
        for each in cls.scope.bindings.get(name, ())
    ]


def _is_container(task: Reading, value: object) -> bool:
    if isinstance(value, ast.Call):
        return task.out.path(value.func) in _CONTAINERS
    return isinstance(value, _LITERALS)


def _is_shared(task: Reading, scope: Scope, node: ast.Name) -> bool:
    """Whether a name is a container of the module, or one made once as a default argument."""
    home, found = task.out.bindings(node.id, task.out.home[node])
    if home is task.out.module:
        return len(found) == 1 and _is_container(task, found[0])
    is_argument = home is scope and len(found) == 1 and isinstance(found[0], ast.arg)
    if not is_argument:
        return False
    assert isinstance(scope.node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
    arguments = scope.node.args
    names = [each.arg for each in parameters(scope.node)][: -len(arguments.kwonlyargs) or None]
    given = dict(zip(reversed(names), reversed(arguments.defaults), strict=False))
    return _is_container(task, given.get(node.id))


def _is_own_class(task: Reading, node: ast.expr) -> bool:
    """Whether an expression is a class of the task, `type(self)` or `self.__class__`."""
    if isinstance(task.out.definition(node), ast.ClassDef):
        return True
    if isinstance(node, ast.Call):
        return task.out.path(node.func) == "builtins.type" and len(node.args) == 1
    return task.out.self_attribute(node) == "__class__"
