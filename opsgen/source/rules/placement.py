"""The rule against tensors of the host that meet tensors of the device inside `forward`.

`get_inputs` and the constructor run with the device as default; `forward` does not, so what a
factory makes there without `device` stays on the host. Only a meeting of two tensors that are
certain is a breach: indices may lie on the host, numbers and 0-d tensors may, and whatever is
moved first may.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from opsgen.source.rules.constants import argument_of, constant
from opsgen.source.rules.scopes import Binding, Class, Scope, parameters
from opsgen.source.rules.task import Breach, Reading, last_part

_SIZED = frozenset(
    {"empty", "full", "ones", "rand", "randn", "zeros", "FloatTensor", "LongTensor", "Tensor"}
)
_RANGED = frozenset(
    {"arange", "bartlett_window", "blackman_window", "eye", "hamming_window", "hann_window"}
    | {"kaiser_window", "linspace", "logspace", "randint", "randperm", "tril_indices"}
    | {"triu_indices"}
)
_WRAPPED = frozenset({"as_tensor", "tensor"})
FACTORIES = _SIZED | _RANGED | _WRAPPED
"""Names in `torch` of what makes tensors out of numbers."""

_MOVES = frozenset({"copy_", "cuda", "to", "type_as"})
# Methods that give no tensor, or one of no dimensions, which may meet any device.
_NO_TENSOR = frozenset(
    {"all", "any", "argmax", "argmin", "can_cast", "data_ptr", "dim", "element_size", "item"}
    | {"max", "mean", "median", "min", "ndimension", "nelement", "norm", "numel", "prod"}
    | {"promote_types", "result_type", "size", "std", "storage_offset", "stride", "sum"}
    | {"tolist", "type", "typename", "var"}
)
_ASKING = ("_", "get_", "has_", "is_")
_TO_ONE = frozenset({"all", "any", "argmax", "argmin", "max", "mean", "min", "norm", "prod", "sum"})
_TENSOR_VIEWS = frozenset({"H", "T", "data", "imag", "mH", "mT", "real"})
# What takes lengths or places on the host by contract, or makes a tensor of its own device.
_HOST_ARGUMENTS = frozenset(
    {"as_tensor", "broadcast_tensors", "compile", "cond", "ctc_loss", "device", "index_put"}
    | {"meshgrid", "tensor", "tensor_split", "vmap", "while_loop"}
)
NAMESPACES = ("torch.", "torch.nn.functional.", "torch.linalg.", "torch.fft.", "torch.special.")
"""Where torch keeps functions of tensors."""
_MAX_DEPTH = 10


def host_tensors(task: Reading) -> Iterator[Breach]:
    """Tensors made on the host that meet an input or parameter, or are returned."""
    sides = Sides(task)
    for node in task.sure(task.call):
        if isinstance(node, ast.Return):
            is_answer = task.out.home[node] is task.forward
            operands = [node.value] if is_answer and node.value is not None else []
            meets = is_answer
        else:
            operands = sides.operands(node)
            meets = any(sides.is_device(each) for each in operands)
        for each in operands if meets else ():
            if sides.is_host(each) and not sides.is_placed(node):
                yield getattr(node, "lineno", 1), sides.factory(each)


class Sides:
    """Which expressions certainly are tensors, on the host or on the device."""

    def __init__(self, task: Reading) -> None:
        self._task = task
        self._out = task.out
        self._open: set[tuple[Scope, str, bool]] = set()
        self._known: dict[tuple[Scope, str, bool], bool] = {}

    def operands(self, node: ast.AST) -> list[ast.expr]:
        """Return the expressions that have to lie on one device; none if `node` asks nothing."""
        if isinstance(node, ast.BinOp):
            return [node.left, node.right]
        if isinstance(node, ast.Compare):
            is_test = any(
                isinstance(op, ast.Is | ast.IsNot | ast.In | ast.NotIn) for op in node.ops
            )
            return [] if is_test else [node.left, *node.comparators]
        if not isinstance(node, ast.Call):
            return []
        arguments = [*node.args, *(word.value for word in node.keywords)]
        arguments = [
            inner
            for each in arguments
            for inner in (each.elts if isinstance(each, ast.List | ast.Tuple) else [each])
        ]
        path = self._out.path(node.func)
        if path:
            name = last_part(path)
            is_known = path[: -len(name)] in NAMESPACES and name[0].islower()
            return arguments if is_known and not _takes_host(name) else []
        func = node.func
        if isinstance(func, ast.Attribute) and not self._task.is_submodule(func):
            is_known = func.attr not in _MOVES and not _takes_host(func.attr)
            return [func.value, *arguments] if is_known else []
        return []

    def is_placed(self, node: ast.AST) -> bool:
        """Return whether the node stands under a `with` that may set the default device."""
        return any(
            isinstance(item.context_expr, ast.Call)
            and last_part(self._out.path(item.context_expr.func)) in {"", "device"}
            for each in self._out.above(node)
            if isinstance(each, ast.With)
            for item in each.items
        )

    def factory(self, node: ast.expr) -> str:
        """Return the name of the factory behind an expression of the host."""
        for each in ast.walk(node):
            if isinstance(each, ast.Call) and self._is_factory(each):
                return self._out.path(each.func)
        return ast.unparse(node)[:80]

    def is_host(self, node: ast.expr, depth: int = 0) -> bool:
        """Return whether an expression certainly is a tensor of the host with dimensions."""
        if depth > _MAX_DEPTH or node not in self._out.home:
            return False
        if isinstance(node, ast.Name):
            return self._all_bindings(node, depth, is_host=True)
        if isinstance(node, ast.Subscript):
            return _keeps_axes(node.slice) and self.is_host(node.value, depth + 1)
        if isinstance(node, ast.Attribute):
            return node.attr in _TENSOR_VIEWS and self.is_host(node.value, depth + 1)
        if isinstance(node, ast.Call):
            return self._is_host_call(node, depth)
        parts = _parts(node)
        return any(self.is_host(each, depth + 1) for each in parts) and not any(
            self.is_device(each, depth + 1) for each in parts
        )

    def is_device(self, node: ast.expr, depth: int = 0) -> bool:
        """Return whether an expression certainly is a tensor of the device."""
        if depth > _MAX_DEPTH or node not in self._out.home:
            return False
        if isinstance(node, ast.Name):
            return self._all_bindings(node, depth, is_host=False)
        if isinstance(node, ast.Subscript):
            return self.is_device(node.value, depth + 1)
        if isinstance(node, ast.Attribute):
            if self._out.self_attribute(node):
                return self._holds(node, ("torch.nn.Parameter", "torch.nn.parameter.Parameter"))
            return node.attr in _TENSOR_VIEWS and self.is_device(node.value, depth + 1)
        if isinstance(node, ast.Call):
            return self._is_device_call(node, depth)
        return any(self.is_device(each, depth + 1) for each in _parts(node))

    def is_data(self, node: ast.expr) -> bool:
        """Return whether an expression certainly is a tensor of the device or one value of it."""
        if isinstance(node, ast.Call):
            path = self._out.path(node.func)
            if path.startswith("torch.") and last_part(path) in _TO_ONE:
                return bool(node.args) and self.is_device(node.args[0])
            if isinstance(node.func, ast.Attribute) and not path and node.func.attr in _TO_ONE:
                return self.is_device(node.func.value)
        return self.is_device(node)

    def _is_host_call(self, node: ast.Call, depth: int) -> bool:
        if self._is_factory(node):
            return True
        path = self._out.path(node.func)
        if path:
            if not path.startswith("torch.") or last_part(path) in FACTORIES | _NO_TENSOR:
                return False
            return self._is_mix_of_host(node, depth)
        func = node.func
        if not isinstance(func, ast.Attribute) or func.attr in _MOVES | _NO_TENSOR:
            return False
        words = {word.arg for word in node.keywords}
        return "device" not in words and self.is_host(func.value, depth + 1)

    def _is_mix_of_host(self, node: ast.Call, depth: int) -> bool:
        if any(word.arg in {"device", "out", None} for word in node.keywords):
            return False
        arguments = [*node.args, *(word.value for word in node.keywords)]
        return any(self.is_host(each, depth + 1) for each in arguments) and not any(
            self.is_device(each, depth + 1) for each in arguments
        )

    def _is_factory(self, node: ast.Call) -> bool:
        """Whether a call makes a tensor of at least one dimension on the host."""
        path = self._out.path(node.func)
        name = last_part(path)
        if path != f"torch.{name}" or name not in FACTORIES or self.is_placed(node):
            return False
        for word in node.keywords:
            if word.arg in {"out", None} or (word.arg == "device" and not _is_cpu(word.value)):
                return False
        if name in _RANGED:
            return True
        first = argument_of(node, 0, "data" if name in _WRAPPED else "size")
        if name in _WRAPPED:
            return isinstance(first, ast.List | ast.Tuple) and bool(first.elts)
        if first is None or (isinstance(first, ast.List | ast.Tuple) and not first.elts):
            return False
        # One size alone may be a shape that somebody computed, even one of no dimensions.
        return (
            len(node.args) > 1
            or isinstance(first, ast.List | ast.Tuple)
            or isinstance(constant(self._out, first), int)
            or _is_extent(first)
        )

    def _all_bindings(self, node: ast.Name, depth: int, *, is_host: bool) -> bool:
        """Whether a name is bound to nothing but tensors of one side.

        While a name is looked at, it is taken to be one: `y = y + 1` says nothing against it.
        """
        scope, found = self._out.bindings(node.id, self._out.home[node])
        if scope is None or scope is self._out.module:
            return False
        key = (scope, node.id, is_host)
        if key not in self._known:
            if key in self._open:
                return True
            self._open.add(key)
            answer = all(self._is_side(each, scope, node.id, depth, is_host) for each in found)
            self._open.remove(key)
            if answer and self._open:
                return True  # perhaps only because another name was taken for granted
            self._known[key] = answer
        return self._known[key]

    def _is_side(self, value: Binding, scope: Scope, name: str, depth: int, is_host: bool) -> bool:
        if isinstance(value, ast.AugAssign):
            return True  # it keeps the side that it has
        if isinstance(value, ast.arg):
            return not is_host and scope is self._task.forward and name in _inputs(scope)
        if not isinstance(value, ast.expr):
            return False
        return (self.is_host if is_host else self.is_device)(value, depth + 1)

    def _is_device_call(self, node: ast.Call, depth: int) -> bool:
        path = self._out.path(node.func)
        arguments = [*node.args, *(word.value for word in node.keywords)]
        has_device = any(self.is_device(each, depth + 1) for each in arguments)
        if path:
            name = last_part(path)
            is_op = path.startswith("torch.") and name not in FACTORIES | _NO_TENSOR
            return is_op and has_device and name[0].islower() and not name.startswith(_ASKING)
        func = node.func
        if not isinstance(func, ast.Attribute):
            return False
        if self._task.is_submodule(func):
            return has_device and self._holds(func, ("torch.nn.",))
        is_op = func.attr not in _NO_TENSOR | {"cpu", "to", "type_as", "new_tensor", "numpy"}
        is_op = is_op and not func.attr.startswith(_ASKING)
        return is_op and self.is_device(func.value, depth + 1)

    def _holds(self, node: ast.Attribute, paths: tuple[str, ...]) -> bool:
        owner: Class | None = self._out.home[node].owner
        stores = self._out.stores(owner, node.attr) if owner else []
        return len(stores) == 1 and (
            isinstance(stores[0].value, ast.Call)
            and self._out.path(stores[0].value.func).startswith(paths)
        )


def _inputs(scope: Scope) -> set[str]:
    """Return the parameters of `forward` that a caller must give and that may be tensors."""
    node = scope.node
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    given = parameters(node)[1:]
    given = given[: len(given) - len(node.args.defaults) - len(node.args.kwonlyargs)]
    return {
        each.arg
        for each in given
        if each.annotation is None or "Tensor" in ast.unparse(each.annotation)
    }


def _takes_host(name: str) -> bool:
    """Whether a function may be given tensors of the host together with others."""
    return name in _HOST_ARGUMENTS or name.startswith(_ASKING) or name.endswith("_as")


def _parts(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.BinOp):
        return [node.left, node.right]
    if isinstance(node, ast.UnaryOp):
        return [] if isinstance(node.op, ast.Not) else [node.operand]
    if isinstance(node, ast.Compare):
        return [node.left, *node.comparators]
    return []


def _keeps_axes(index: ast.expr) -> bool:
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    return any(
        isinstance(each, ast.Slice) or (isinstance(each, ast.Constant) and each.value is None)
        for each in parts
    )


def _is_extent(node: ast.expr) -> bool:
    """Whether an expression is a tensor's shape or one axis of it."""
    if isinstance(node, ast.Subscript):
        is_shape = isinstance(node.value, ast.Attribute) and node.value.attr == "shape"
        return is_shape and not isinstance(node.slice, ast.Slice)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr == "size"
    return isinstance(node, ast.Attribute) and node.attr == "shape"


def _is_cpu(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == "cpu"
