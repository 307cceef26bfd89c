"""Rules against work and parts whose results nobody can see: straight-line cases only."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from opsgen.source.rules.constants import returned_items
from opsgen.source.rules.placement import FACTORIES, NAMESPACES
from opsgen.source.rules.scopes import Class, Scope, parameters
from opsgen.source.rules.task import Breach, Reading, last_part

_WALKS = frozenset(
    {"__dict__", "_buffers", "_modules", "_parameters", "apply", "buffers", "children"}
    | {"functional_call", "get_buffer", "get_parameter", "get_submodule", "modules"}
    | {"named_buffers", "named_children", "named_modules", "named_parameters", "parameters"}
    | {"state_dict"}
)
_CONTAINERS = frozenset(
    {"ModuleDict", "ModuleList", "ParameterDict", "ParameterList", "Sequential"}
)
_NO_WORK = FACTORIES | frozenset(
    {"autocast", "broadcast_shapes", "can_cast", "compile", "cond", "device", "enable_grad"}
    | {"finfo", "iinfo", "inference_mode", "initial_seed", "load", "manual_seed", "no_grad"}
    | {"numel", "promote_types", "result_type", "save", "seed", "typename", "vmap"}
)
_WORK_METHODS = frozenset(
    {"abs", "bmm", "clamp", "cumsum", "exp", "log_softmax", "matmul", "mean", "mm", "norm", "pow"}
    | {"relu", "rsqrt", "sigmoid", "softmax", "sqrt", "std", "sum", "tanh", "var"}
)


def unused_modules(task: Reading) -> Iterator[Breach]:
    """Modules and parameters that the constructor makes and nothing reads."""
    if _walks_attributes(task):
        return
    setup = set(task.setup)
    for cls in _running_classes(task):
        for name, stores in cls.stores.items():
            if name in task.out.loaded:
                continue
            for store in stores:
                is_made = store.scope in setup and task.out.is_sure(store.node)
                if is_made and _is_part(task, store.value):
                    yield store.node.lineno, f"self.{name}"


def dead_values(task: Reading) -> Iterator[Breach]:
    """Results that are computed and never read, or assigned over before they are."""
    for scope in task.call:
        if not isinstance(scope.node, ast.FunctionDef) or _is_tangled(scope):
            continue
        read = _read_names(scope)
        for node in task.sure([scope]):
            if isinstance(node, ast.Expr) and _works(task, node.value):
                yield node.lineno, ast.unparse(node)[:80]
            elif isinstance(node, ast.Assign) and _works(task, node.value):
                names = _targets(node)
                if names and not any(name in read or not name.strip("_") for name in names):
                    yield node.lineno, ", ".join(names)
        yield from _overwritten(task, scope)


def unused_inputs(task: Reading) -> Iterator[Breach]:
    """Arguments of `forward` whose values are never read."""
    scope = task.forward
    if scope is None or not isinstance(scope.node, ast.FunctionDef) or not scope.receiver:
        return
    names = [each.arg for each in parameters(scope.node)][1:]
    positional = len(names) - len(scope.node.args.kwonlyargs)
    given = returned_items(task.out, "get_inputs")
    num_given = positional - len(scope.node.args.defaults)
    if given is not None:
        num_given = max(num_given, min(len(given), positional))
    read = names_read(task, scope)
    for name in names[:num_given]:
        if name not in read or _is_replaced(task, scope, name):
            yield scope.node.lineno, name


def names_read(task: Reading, scope: Scope) -> set[str]:
    """Return the names of a function that it or what is defined in it reads."""
    found, todo = set(), [scope]
    while todo:
        each = todo.pop()
        todo += each.children
        for node in each.nodes:
            if isinstance(node, ast.Name):
                is_read = isinstance(node.ctx, ast.Load)
                is_read |= isinstance(task.out.parents.get(node), ast.AugAssign)
                if is_read and task.out.bindings(node.id, each)[0] is scope:
                    found.add(node.id)
    return found


def _walks_attributes(task: Reading) -> bool:
    """Whether something else than the constructor reads parts without naming them."""
    building = set(task.setup) - set(task.call)
    others = [scope for scope in task.out.scopes if scope not in building]
    walks = any(node.attr in _WALKS for node in task.find(ast.Attribute, others))
    return walks or task.is_read_dynamically


def _running_classes(task: Reading) -> Iterator[Class]:
    """Yield the classes that surely run and leave nothing to a forward of torch's own."""
    owners = {scope.owner for scope in task.call if scope.name == "forward"}
    for cls in task.out.class_of.values():
        if cls in owners and _derives_from_module_only(task, cls):
            yield cls


def _derives_from_module_only(task: Reading, cls: Class) -> bool:
    for each in task.out.lineage(cls):
        for base in each.node.bases:
            is_own = isinstance(task.out.definition(base), ast.ClassDef)
            if not is_own and task.out.path(base) not in {
                "torch.nn.Module",
                "torch.nn.modules.Module",
                "torch.nn.modules.module.Module",
            }:
                return False
    return True


def _is_part(task: Reading, value: ast.expr | None) -> bool:
    if not isinstance(value, ast.Call):
        return False
    path = task.out.path(value.func)
    if path.startswith("torch.nn."):
        is_class = path.count(".") == 2 and last_part(path)[0].isupper()
        return (is_class and path != "torch.nn.Buffer") or path == "torch.nn.parameter.Parameter"
    found = task.out.definition(value.func)
    return isinstance(found, ast.ClassDef) and _derives_from_module_only(
        task, task.out.class_of[found]
    )


def _is_tangled(scope: Scope) -> bool:
    """Whether the order of a function's statements says too little about what is read."""
    tangling = (ast.Try, ast.Yield, ast.YieldFrom, ast.Await, ast.Global, ast.Nonlocal)
    todo = [scope]
    while todo:
        each = todo.pop()
        todo += each.children
        if any(isinstance(node, tangling) for node in each.nodes):
            return True
    return False


def _read_names(scope: Scope) -> set[str]:
    """Return all names read anywhere in a function, whoever binds them."""
    found, todo = set(), [scope]
    while todo:
        each = todo.pop()
        todo += each.children
        for node in each.nodes:
            if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Store):
                found.add(node.id)
            elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
                found.add(node.target.id)
    return found


def _targets(node: ast.stmt) -> list[str]:
    """Return the names that an assignment binds, if it binds nothing else."""
    if not isinstance(node, ast.Assign) or len(node.targets) != 1:
        return []
    target = node.targets[0]
    parts = target.elts if isinstance(target, ast.Tuple) else [target]
    return (
        [p.id for p in parts if isinstance(p, ast.Name)]
        if all(isinstance(part, ast.Name) for part in parts)
        else []
    )


def _overwritten(task: Reading, scope: Scope) -> Iterator[Breach]:
    late = {name for child in scope.children for name in _read_names(child)}
    for place, statement in enumerate(scope.body):
        names = _targets(statement)
        if not isinstance(statement, ast.Assign) or len(names) != 1 or names[0] in late:
            continue
        if not task.out.is_sure(statement) or not _works(task, statement.value):
            continue
        if _is_lost(scope.body[place + 1 :], names[0]):
            yield statement.lineno, names[0]


def _is_lost(body: list[ast.stmt], name: str) -> bool:
    """Whether a value is assigned over in a block before anything may read it."""
    for statement in body:
        if isinstance(statement, ast.Return) or _reads(statement, name):
            return False
        if name in _targets(statement):
            return True
    return False


def _reads(statement: ast.stmt, name: str) -> bool:
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and node.id == name and not isinstance(node.ctx, ast.Store):
            return True
        if isinstance(node, ast.AugAssign) and getattr(node.target, "id", "") == name:
            return True
    return False


def _is_replaced(task: Reading, scope: Scope, name: str) -> bool:
    """Whether an argument is assigned over before anything reads it."""
    late = {each for child in scope.children for each in _read_names(child)}
    return name not in late and not _is_tangled(scope) and _is_lost(scope.body, name)


def _works(task: Reading, node: ast.expr) -> bool:
    """Whether an expression certainly computes tensors and changes nothing."""
    if isinstance(node, ast.BinOp):
        is_product = isinstance(node.op, ast.MatMult)
        return is_product or _works(task, node.left) or _works(task, node.right)
    if not isinstance(node, ast.Call):
        return False
    may_write = any(word.arg in {"out", "inplace", None} for word in node.keywords)
    if may_write or any(isinstance(a, ast.Constant) and a.value is True for a in node.args):
        return False
    path = task.out.path(node.func)
    if path:
        name = last_part(path)
        is_op = path[: -len(name)] in NAMESPACES and name[0].islower()
        is_op = is_op and not name.endswith("_") and not name.startswith(("is_", "set_", "get_"))
        return is_op and name not in _NO_WORK
    if not isinstance(node.func, ast.Attribute):
        return False
    if task.is_submodule(node.func):
        return _is_pure_module(task, node.func)
    return node.func.attr in _WORK_METHODS


def _is_pure_module(task: Reading, func: ast.Attribute) -> bool:
    owner = task.out.home[func].owner
    stores = task.out.stores(owner, func.attr) if owner else []
    if len(stores) != 1 or not isinstance(stores[0].value, ast.Call):
        return False
    made = stores[0].value
    path = task.out.path(made.func)
    return (
        path.startswith("torch.nn.")
        and last_part(path) not in _CONTAINERS
        and "inplace" not in ast.unparse(made)
        and not any(isinstance(arg, ast.Constant) and arg.value is True for arg in made.args)
    )
