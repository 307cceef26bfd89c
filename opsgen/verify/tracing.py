"""What a task runs: its core-ATen trace on `meta`, as digests that spelling does not change.

Two tasks have one trace when they compute the same thing the same way: names,
modules or functions, methods or operators, in place or not, and the order of
independent ops do not matter, and without `sized` neither do sizes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch._decomp import core_aten_decompositions
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from opsgen.records import Trace
from opsgen.verify.canon import COMMUTATIVE, Canon, Node, Value
from opsgen.verify.describing import (
    COPIES,
    Described,
    Surroundings,
    fill_of,
    is_pointwise,
    op_name,
)
from opsgen.verify.leaves import Inputs, tensors_of
from opsgen.verify.naming import canonical_call
from opsgen.verify.recording import Recording, record_calls
from opsgen.verify.reference import Reference, task_module
from opsgen.verify.running import TaskCodeError, task_code
from opsgen.verify.viewing import (
    Key,
    dtype_of,
    geometry_of,
    is_dense,
    numel_of,
    storage_of,
    view_steps,
)

aten = torch.ops.aten
_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd


def trace_code(code: str) -> Trace | None:
    """Return the trace of a task's code at its module-level sizes; None where `meta` fails."""
    try:
        with task_module(code) as module:
            reference = Reference.build(module, "meta", 0)
            inputs = reference.draw(0)
            with task_code("meta"):
                return trace_call(reference.model, inputs)[0]
    except TaskCodeError:
        return None


def trace_call(model: nn.Module, inputs: Inputs) -> tuple[Trace, Recording]:
    """Return the trace of one call on `meta`, with what it called.

    Whatever the model raises travels.
    """
    tracer = Tracer()
    given = tensors_of(inputs)
    tracer.read(model, given)
    with tracer:
        recording = record_calls(model, inputs, is_deep=True)
    outputs = tensors_of(recording.output)
    values = [tracer.value_of(tensor) for tensor in outputs]
    plain, sized = tracer.canon.digests(values)
    trace = Trace(
        hash=plain,
        sized_hash=sized,
        calls=tuple(canonical_call(call.names) for call in recording.calls if call.computes),
        signature=(*map(_signed, given), ">", *map(_signed, outputs)),
        num_nodes=tracer.canon.count_computing(values),
    )
    return trace, recording


def _signed(tensor: Tensor) -> str:
    return f"{dtype_of(tensor)}[{tensor.ndim}]"


class Tracer(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Follows values through core-ATen ops; decomposes what is none.

    A value is known by its place in memory, so that views which change nothing need no rule
    and a write in place gives a new value to whoever looks at that memory.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.canon = Canon()
        self._values: dict[int, dict[Key, Value]] = {}
        self._shapes: set[tuple[int, ...]] = set()
        self._held: list[Tensor] = []  # else memory would be used again under another value

    def read(self, model: nn.Module, inputs: Sequence[Tensor]) -> None:
        """Take the tensors that a call starts from."""
        for tensor in (*model.parameters(), *model.buffers()):
            self._start(tensor, ("state", dtype_of(tensor), tensor.ndim))
        for position, tensor in enumerate(inputs):
            self._start(tensor, ("input", position, dtype_of(tensor), tensor.ndim))

    def _start(self, tensor: Tensor, plain: tuple[Any, ...]) -> Value:
        is_given = plain[0] != "constant"
        value = self.canon.add(Node(plain, tuple(tensor.shape), is_given=is_given))
        self._put(tensor, value)
        return value

    def value_of(self, tensor: Tensor) -> Value:
        """Return what a tensor holds; a tensor from nowhere is a constant."""
        known = self._values.get(storage_of(tensor), {}).get(geometry_of(tensor))
        if known is not None:
            return known
        others = list(self._values.get(storage_of(tensor), {}).values())
        if not others:
            return self._start(tensor, ("constant", dtype_of(tensor), tensor.ndim))
        value = others[0].viewed(("alias", dtype_of(tensor), tensor.ndim))
        self._put(tensor, value)
        return value

    def _put(self, tensor: Tensor, value: Value) -> None:
        self._values.setdefault(storage_of(tensor), {})[geometry_of(tensor)] = value
        self._held.append(tensor)
        self._shapes.add(tuple(tensor.shape))

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Run an op, or what it is made of, and name its results."""
        kwargs = kwargs or {}
        decomposition = self._made_of(func)
        if func._schema.is_mutable and decomposition is None:
            return self._write(func, args, kwargs)
        if decomposition is not None:
            with self:
                result = decomposition(*args, **kwargs)
            if result is not NotImplemented:
                return result
        result = func(*args, **kwargs)
        if func.is_view or op_name(func) == "_unsafe_view":
            self._view(func, args, kwargs, result)
        else:
            self._compute(func, args, kwargs, result)
        return result

    def _made_of(self, func: Any) -> Callable[..., Any] | None:
        return _decomposition(func)

    def _write(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run an op that writes to its arguments, as the same op without that would be."""
        target = args[0] if args and isinstance(args[0], Tensor) else None
        functional = _functional(func)
        if target is None or functional is None:
            result = func(*args, **kwargs)
            written = [
                value
                for argument, value in _written(func, args, kwargs)
                if isinstance(value, Tensor)
            ]
            self._compute(func, args, kwargs, written or result)
            return result
        if op_name(func) == "copy":
            value = self._cast(self._expanded(args[1], target), args[1], target)
            func(*args, **kwargs)
        else:
            with self:
                computed = functional(*args, **kwargs)
            func(*args, **kwargs)
            value = self._cast(self.value_of(computed), computed, target)
        self._overwrite(target, value)
        return target

    def _expanded(self, source: Tensor, target: Tensor) -> Value:
        value = self.value_of(source)
        if source.shape == target.shape:
            return value
        return value.viewed(("expand", tuple(source.shape), tuple(target.shape)))

    def _context(self, args: tuple[Any, ...]) -> Surroundings:
        read = [self.canon.nodes[self.value_of(tensor).node] for tensor in tensors_of(args)]
        return Surroundings(
            is_table=not any(node.is_given for node in read),
            is_state=bool(read) and read[0].plain[0] == "state",
            shapes=self._shapes,
        )

    def _cast(self, value: Value, source: Tensor, target: Tensor) -> Value:
        if source.dtype == target.dtype:
            return value
        is_given = self.canon.nodes[value.node].is_given
        return self.canon.add(Node(("cast", dtype_of(target)), (), (value,), is_given=is_given))

    def _overwrite(self, target: Tensor, value: Value) -> None:
        """Give memory a new value; who else looks at it sees the part that was written."""
        before = self.value_of(target)
        views = self._values[storage_of(target)]
        ours = geometry_of(target)
        shape, stride = ours[1], ours[2]
        for key, old in views.items():
            if key == ours:
                continue
            same = is_dense(shape, stride) and is_dense(key[1], key[2])
            if same and key[0] == ours[0] and numel_of(key[1]) == numel_of(shape):
                views[key] = value.viewed(("reshape", shape, key[1]))
            else:
                views[key] = self.canon.add(
                    Node(("written",), (), (old, before, value), is_given=True)
                )
        views[ours] = value

    def _view(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        source = args[0]
        value = self.value_of(source)
        results = [result] if isinstance(result, Tensor) else list(result)
        steps = view_steps(func, args, kwargs, source, results)
        for out, step in zip(results, steps, strict=True):
            if geometry_of(out) not in self._values.get(storage_of(out), {}):
                self._put(out, value.viewed(step))

    def _compute(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
    ) -> None:
        results = [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, Tensor)]
        if not results:
            return
        value = self._named(func, args, kwargs, results)
        for part, out in enumerate(results):
            self._put(out, value if len(results) == 1 else Value(value.node, part))

    def _named(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], results: list[Tensor]
    ) -> Value:
        name, first = op_name(func), results[0]
        kinds = tuple((dtype_of(out), out.ndim) for out in results)
        shapes = tuple(tuple(out.shape) for out in results)
        if name in COPIES and args and isinstance(args[0], Tensor):
            return self._cast(self.value_of(args[0]), args[0], first)
        filled = fill_of(func, args, kwargs)
        if filled is not None:
            fill = complex(filled)
            return self.canon.add(Node(("full", fill.real, fill.imag, kinds), shapes))
        call = Described(func, args, kwargs, self._context(args))
        operands = [self.value_of(tensor) for tensor in call.tensors]
        if is_pointwise(func):
            operands = [operand.unexpanded() for operand in operands]
            if call.is_nothing() and _alike(first, call.tensors[0]):
                return operands[0]
        keeps = call.keeps if len(results) == 1 else None
        if keeps:
            reduced = tuple(s for i, s in enumerate(first.shape) if i not in keeps)
            kinds = ((dtype_of(first), len(reduced)),)
        node = Node(
            (call.name, *call.plain, kinds),
            (*call.sized, shapes),
            tuple(operands),
            commutes=call.name in COMMUTATIVE and len(operands) == 2 and _has_no_rest(call),
            computes=bool(operands),
            is_given=not call.is_table,
        )
        value = self.canon.add(node)
        return value.viewed(("reshape", reduced, tuple(first.shape))) if keeps else value


def _has_no_rest(call: Described) -> bool:
    return len(call.plain) == 2  # nothing but the names of both operands


def _alike(left: Tensor, right: Tensor) -> bool:
    return left.dtype == right.dtype and left.shape == right.shape


def _written(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[tuple[str, Any]]:
    found = []
    for position, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = args[position] if position < len(args) else kwargs.get(argument.name)
            found.append((argument.name, value))
    return found


@functools.cache
def _functional(func: Any) -> Any:
    """Return the op that computes what an in-place op writes; None if it is no in-place op."""
    name = str(func._schema.name).rpartition("::")[2]
    if not name.endswith("_") or name.endswith("__"):
        return None
    packet = getattr(aten, name.rstrip("_"), None)
    return getattr(packet, func._overloadname, None) if packet is not None else None


# What these are made of holds index tables, whose numbers are sizes; the ops name their attributes.
_WHOLE = ("pad", "upsample", "im2col", "col2im", "adaptive", "grid_sampler", "roll", "pixel")


@functools.cache
def _table() -> dict[Any, Callable[..., Any]]:
    table = {
        func: decomposition
        for func, decomposition in dict(core_aten_decompositions()).items()
        if not func._schema.is_mutable and not any(part in str(func) for part in _WHOLE)
    }
    table[aten.addmm.default] = _addmm
    table[aten.relu.default] = _relu
    table[aten.hardtanh.default] = _hardtanh
    table[aten.clamp_min.default] = lambda x, least: aten.clamp(x, least)
    table[aten.clamp_max.default] = lambda x, most: aten.clamp(x, None, most)
    return table


@functools.cache
def _decomposition(func: Any) -> Callable[..., Any] | None:
    """Return what an op is made of; inside of transforms composite ops come undivided."""
    found = _table().get(func)
    if found is None and func.has_kernel_for_dispatch_key(_COMPOSITE):
        return func.decompose  # type: ignore[no-any-return]
    return found


def _addmm(bias: Tensor, x: Tensor, y: Tensor, *, beta: float = 1, alpha: float = 1) -> Any:
    product = aten.mm(x, y)
    if alpha != 1:
        product = aten.mul(product, alpha)
    return aten.add(product, bias if beta == 1 else aten.mul(bias, beta))


def _relu(x: Tensor) -> Any:
    return aten.clamp(x, 0)


def _hardtanh(x: Tensor, least: float = -1, most: float = 1) -> Any:
    return aten.clamp(x, least, most)
