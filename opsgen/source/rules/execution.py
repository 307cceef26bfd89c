"""Rules against code that waits for the device, leaves it, or asks how it is being run."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from opsgen.source.rules.constants import followed, returned_items
from opsgen.source.rules.placement import Sides
from opsgen.source.rules.scopes import Scope
from opsgen.source.rules.task import Breach, Reading, called_name, last_part

_WAITS = frozenset({"cpu", "item", "numpy", "tolist"})
_CASTS = frozenset({"builtins.bool", "builtins.complex", "builtins.float", "builtins.int"})
_DATA_SHAPED = frozenset({"argwhere", "masked_select", "nonzero", "unique", "unique_consecutive"})
_MODES = frozenset(
    {"graph_break", "is_compiling", "is_dynamo_compiling", "is_exporting", "is_in_onnx_export"}
    | {"is_torchdynamo_compiling", "_get_tracing_state"}
)  # `torch.jit` answers the same in eager and under torch.compile
_MODE_PACKAGES = ("torch._dynamo", "torch._inductor", "torch.compiler")


def waits(task: Reading) -> Iterator[Breach]:
    """Values brought to the host inside of `forward`."""
    sides = Sides(task)
    for node in task.sure(task.call):
        if isinstance(node, ast.If | ast.IfExp | ast.While) and _asks_data(sides, node.test):
            yield node.test.lineno, f"if {ast.unparse(node.test)[:80]}"
    for call in task.calls(task.call):
        func = call.func
        path = task.out.path(func)
        is_cast = path in _CASTS and len(call.args) == 1
        is_method = isinstance(func, ast.Attribute) and not path and not task.is_submodule(func)
        if is_cast and sides.is_data(call.args[0]):
            yield call.lineno, ast.unparse(call)[:80]
        elif is_method and called_name(task, call) in _WAITS:
            yield call.lineno, f".{called_name(task, call)}()"


def data_shapes(task: Reading) -> Iterator[Breach]:
    """Shapes that depend on values."""
    sides = Sides(task)
    for node in task.find(ast.Subscript, task.call):
        is_read = isinstance(node.ctx, ast.Load) and task.out.is_sure(node)
        if is_read and sides.is_device(node.value) and _is_mask(task, sides, node.slice):
            yield node.lineno, ast.unparse(node)[:80]
    for call in task.calls(task.call):
        if task.is_submodule(call.func):
            continue
        name = called_name(task, call)
        path = task.out.path(call.func)
        if path and path not in {f"torch.{last_part(path)}", f"torch.Tensor.{last_part(path)}"}:
            continue
        is_one = path == "torch.where" and len(call.args) == 1 and not call.keywords
        if is_one or (last_part(name) in _DATA_SHAPED):
            yield call.lineno, name


def _is_mask(task: Reading, sides: Sides, node: ast.expr | None, depth: int = 0) -> bool:
    """Whether an expression certainly compares the elements of a tensor."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
        return _is_mask(task, sides, node.operand, depth)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd | ast.BitOr):
        return _is_mask(task, sides, node.left, depth)
    if isinstance(node, ast.Name) and depth == 0:
        return _is_mask(task, sides, followed(task.out, node), depth + 1)
    if not isinstance(node, ast.Compare):
        return False
    is_test = any(isinstance(op, ast.Is | ast.IsNot | ast.In | ast.NotIn) for op in node.ops)
    return not is_test and sides.is_device(node.left)


def mode_dependence(task: Reading) -> Iterator[Breach]:
    """Questions whether the code is being compiled, traced or exported."""
    for name in task.find(ast.Name):
        path = task.out.path(name)
        is_asking = last_part(path) in _MODES and path.startswith("torch.")
        if is_asking or path.startswith(_MODE_PACKAGES):
            yield name.lineno, path
    for node in task.find(ast.Attribute):
        path = task.out.path(node)
        if node.attr in _MODES and not task.out.self_attribute(node):
            yield node.lineno, path or node.attr
        elif path in _MODE_PACKAGES:
            yield node.lineno, path


def prints(task: Reading) -> Iterator[Breach]:
    """Printing in a call, which no graph can hold."""
    for call in task.calls(task.call):
        if task.out.path(call.func) == "builtins.print":
            yield call.lineno, "print"


def plain_leaves(task: Reading) -> Iterator[Breach]:
    """Inputs and outputs that are literally no tensors."""
    for item in returned_items(task.out, "get_inputs") or ():
        if isinstance(item, ast.Constant):
            yield item.lineno, f"input {ast.unparse(item)}"
    if task.forward is None:
        return
    returns = [node for node in task.forward.nodes if isinstance(node, ast.Return)]
    for node in returns:
        if not task.out.is_sure(node):
            continue
        value = node.value
        leaves = value.elts if isinstance(value, ast.Tuple | ast.List) else [value]
        for leaf in leaves:
            if leaf is None or isinstance(leaf, ast.Constant):
                yield node.lineno, f"output {ast.unparse(leaf) if leaf else 'None'}"
    is_generator = any(isinstance(n, ast.Yield | ast.YieldFrom) for n in task.forward.nodes)
    if not returns and not is_generator and not _always_raises(task.forward):
        yield getattr(task.forward.node, "lineno", 1), "forward returns nothing"


def _always_raises(scope: Scope) -> bool:
    return bool(scope.body) and isinstance(scope.body[-1], ast.Raise)


def _asks_data(sides: Sides, node: ast.expr) -> bool:
    """Whether the truth of an expression certainly hangs on the values of a tensor."""
    if isinstance(node, ast.BoolOp):
        return _asks_data(sides, node.values[0])
    if isinstance(node, ast.UnaryOp):
        return _asks_data(sides, node.operand)
    if isinstance(node, ast.Compare):
        is_test = any(isinstance(op, ast.Is | ast.IsNot | ast.In | ast.NotIn) for op in node.ops)
        return not is_test and any(map(sides.is_data, [node.left, *node.comparators]))
    return sides.is_data(node)
