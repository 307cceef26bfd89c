"""Rules against code that reaches out of its task: files, processes, networks, other code.

The sandbox is the wall; these rules say early and by name what would run against it. They
look at every node, run or not, and at what names mean, not how they are spelled.
"""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from functools import cache
from types import ModuleType

from opsgen.source.rules.constants import UNKNOWN, constant
from opsgen.source.rules.task import Breach, Reading, last_part

ALLOWED_IMPORTS = frozenset(
    {"__future__", "abc", "bisect", "cmath", "collections", "contextlib", "copy", "dataclasses"}
    | {"enum", "fractions", "functools", "heapq", "itertools", "math", "numbers", "operator", "re"}
    | {"string", "torch", "typing", "typing_extensions", "warnings"}
)
"""Packages that a task may import: torch, and what computes without touching anything."""

_DENIED_MODULES = (
    "torch._inductor",
    "torch._lazy",
    "torch.classes",
    "torch.distributed",
    "torch.export",
    "torch.hub",
    "torch.library",
    "torch.multiprocessing",
    "torch.onnx.export",
    "torch.overrides",
    "torch.package",
    "torch.profiler",
    "torch.serialization",
    "torch.utils._python_dispatch",
    "torch.utils.cpp_extension",
    "torch.utils.data",
    "torch.utils.dlpack",
    "torch.utils.file_baton",
    "torch.utils.model_zoo",
    "torch.utils.tensorboard",
)
_DENIED_FUNCTIONS = frozenset(
    {"torch.compile", "torch.from_file", "torch.jit.load", "torch.jit.save", "torch.load"}
    | {"torch.manual_seed", "torch.ops.load_library", "torch.save", "torch.seed"}
    | {"torch.random.manual_seed", "torch.random.seed", "torch.random.set_rng_state"}
    | {"torch.cuda.manual_seed", "torch.cuda.manual_seed_all", "torch.cuda.set_rng_state"}
    | {"torch.set_default_device", "torch.set_default_dtype", "torch.set_default_tensor_type"}
    | {"torch.set_float32_matmul_precision", "torch.set_num_threads", "torch.set_rng_state"}
    | {"torch.use_deterministic_algorithms", "operator.attrgetter", "operator.methodcaller"}
)
_DENIED_BUILTINS = frozenset(
    {"__builtins__", "__import__", "__loader__", "__spec__", "breakpoint", "compile"}
    | {"eval", "exec", "exit", "globals", "help", "input", "locals", "open", "quit", "vars"}
)
_DENIED_ATTRIBUTES = frozenset(
    {"__base__", "__bases__", "__builtins__", "__closure__", "__code__", "__defaults__"}
    | {"__dict__", "__func__", "__getattribute__", "__globals__", "__import__", "__kwdefaults__"}
    | {"__loader__", "__module__", "__mro__", "__reduce__", "__reduce_ex__", "__self__"}
    | {"__spec__", "__subclasses__", "__wrapped__", "builtins", "cpp_extension", "cr_frame"}
    | {"ctypes", "download_url_to_file", "f_back", "f_builtins", "f_globals", "f_locals"}
    | {"from_file", "from_pretrained", "gi_code", "gi_frame", "importlib", "load_inline"}
    | {"load_library", "load_state_dict_from_url", "mro", "subprocess", "tb_frame", "tb_next"}
    | {"tofile"}
)
_DENIED_PARTS = frozenset(
    {"builtins", "ctypes", "hub", "importlib", "inspect", "io", "multiprocessing", "os", "pathlib"}
    | {"pickle", "shutil", "socket", "subprocess", "sys", "tempfile", "threading"}
    | {"urllib", "weakref"}
)
_STRING_MAKERS = frozenset({"chr", "decode", "format", "join", "replace", "translate"})


def imports(task: Reading) -> Iterator[Breach]:
    """Imports of what is not on the list."""
    found = [(node.lineno, each.name) for node in task.find(ast.Import) for each in node.names]
    for node in task.find(ast.ImportFrom):
        base = "." * node.level + (node.module or "")
        found += [(node.lineno, f"{base}.{alias.name}") for alias in node.names]
    for line, name in found:
        # Seeding is judged where it is used.
        is_denied = _is_denied(name) and "manual_seed" not in name
        if name.partition(".")[0] not in ALLOWED_IMPORTS or is_denied:
            yield line, f"import of {name}"


def denied_names(task: Reading) -> Iterator[Breach]:
    """Names, aliases and attributes that reach files, processes, code or other objects."""
    for name in task.find(ast.Name):
        path = task.out.path(name)
        if name.id in {"__builtins__", "__loader__", "__spec__"}:
            yield name.lineno, name.id
        elif path.startswith("builtins.") and last_part(path) in _DENIED_BUILTINS:
            yield name.lineno, last_part(path)
        elif path in _DENIED_FUNCTIONS and not _seeds_inputs(task, name):
            yield name.lineno, path
    for node in task.find(ast.Attribute):
        changes_class = node.attr == "__class__" and not isinstance(node.ctx, ast.Load)
        if node.attr in _DENIED_ATTRIBUTES or changes_class:
            yield node.lineno, ast.unparse(node)
        elif _is_denied(task.out.path(node)) and not _seeds_inputs(task, node):
            yield node.lineno, task.out.path(node)


def reflection(task: Reading) -> Iterator[Breach]:
    """Attributes fetched by names that are put together, or that name what is denied."""
    for node in task.find(ast.Call):
        is_getattr = len(node.args) > 1 and task.out.path(node.func) == "builtins.getattr"
        if is_getattr and _fetches(task, node):
            yield node.lineno, ast.unparse(node)[:80]


def patches(task: Reading) -> Iterator[Breach]:
    """Assignments to parts of torch or of another package."""
    targets: list[tuple[ast.expr, ast.expr]] = [
        (node, node.value)
        for node in task.find(ast.Attribute)
        if not isinstance(node.ctx, ast.Load)
    ]
    targets += [
        (call, call.args[0])
        for call in task.find(ast.Call)
        if call.args and task.out.path(call.func) in {"builtins.setattr", "builtins.delattr"}
    ]
    for change, target in targets:
        if task.out.path(target).partition(".")[0] in ALLOWED_IMPORTS:
            yield change.lineno, ast.unparse(change)[:80]


def decorators(task: Reading) -> Iterator[Breach]:
    """Functions of the task that wrap the model or its inputs and may hide what they do."""
    for name in ("get_inputs", "get_init_inputs"):
        scope = task.out.find_function(name)
        if scope is not None:
            yield from _own_decorators(task, scope.node)
    if task.model is not None:
        yield from _own_decorators(task, task.model.node)
        for scope in task.model.methods.values():
            if scope.name in {"__init__", "forward", "__call__"}:
                yield from _own_decorators(task, scope.node)


def _seeds_inputs(task: Reading, node: ast.AST) -> bool:
    """Whether a name is a seeding inside of `get_inputs`, of which the inputs' rules speak."""
    is_seeding = "manual_seed" in last_part(task.out.path(node))
    return is_seeding and task.out.home[node] in task.inputs


def _own_decorators(task: Reading, node: ast.AST) -> Iterator[Breach]:
    for decorator in getattr(node, "decorator_list", ()):
        target = decorator.func if isinstance(decorator, ast.Call) else decorator
        path = task.out.path(target)
        is_honest = path.startswith(
            ("torch.", "typing.", "functools.wraps", "abc.", "dataclasses.")
        )
        if not is_honest and path not in {"functools.cache", "functools.lru_cache"}:
            yield decorator.lineno, f"decorator {ast.unparse(decorator)[:70]}"


def _is_denied(path: str) -> bool:
    """Whether a path leads to what is denied, or to a module inside an allowed package."""
    if not path or path.startswith("builtins."):
        return False
    if path in _DENIED_FUNCTIONS or f"{path}.".startswith(_DENIED_PREFIXES):
        return True
    root, _, rest = path.partition(".")
    parts = rest.split(".") if rest else []
    if root == "torch":
        return any(part.lstrip("_") in _DENIED_PARTS for part in parts)
    if root in ALLOWED_IMPORTS:
        return bool(parts) and parts[0] in _inner_modules(root)
    return False


_DENIED_PREFIXES = tuple(f"{name}." for name in _DENIED_MODULES)


@cache
def _inner_modules(package: str) -> frozenset[str]:
    """Return the modules that an allowed package besides torch happens to hold."""
    try:
        held = vars(importlib.import_module(package))
    except ModuleNotFoundError:  # typing_extensions is no part of Python
        return frozenset()
    own = {"abc"} if package == "collections" else set()
    return frozenset(k for k, v in held.items() if isinstance(v, ModuleType) and k not in own)


def _fetches(task: Reading, call: ast.Call) -> bool:
    """Whether a `getattr` fetches what is denied, or hides what it fetches."""
    base, name = task.out.path(call.args[0]), constant(task.out, call.args[1])
    if name is not UNKNOWN:
        if not isinstance(name, str):
            return False
        is_denied = name in _DENIED_ATTRIBUTES or name in {"os", "sys"}
        if base.startswith("builtins."):
            is_denied |= name in _DENIED_BUILTINS
        return is_denied or bool(base and _is_denied(f"{base}.{name}"))
    made = [n for n in ast.walk(call.args[1]) if isinstance(n, ast.Call)]
    if any(isinstance(n.func, ast.Attribute) and n.func.attr in _STRING_MAKERS for n in made):
        return True
    return base in {"builtins", "torch"} and _may_name_denied(task, base, call.args[1])


def _may_name_denied(task: Reading, base: str, name: ast.expr) -> bool:
    """Whether an unknown name may be denied: put together, or some string of the code is it."""
    if base == "builtins" or not isinstance(name, ast.Name | ast.Attribute | ast.Subscript):
        return True
    if isinstance(name, ast.Subscript) and isinstance(name.slice, ast.Slice):
        return True
    return any(
        isinstance(node.value, str)
        and (node.value in _DENIED_ATTRIBUTES or _is_denied(f"{base}.{node.value}"))
        for node in task.find(ast.Constant)
    )
