"""How much of foreign code's work nobody checks: calls whose results do not matter or are dropped.

The work is that of the eager aten ops. Whether they matter is known from
freezing the calls that they are part of: how torch takes a call apart is not
the task's doing. What a slice or a selection drops is read off the
dataflow, at full size wherever `meta` runs the code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import flop_registry

from opsgen.verify.canon import Value
from opsgen.verify.describing import is_pointwise, op_name
from opsgen.verify.leaves import Inputs, tensors_of
from opsgen.verify.reference import Reference, task_module
from opsgen.verify.running import TaskCodeError, task_code
from opsgen.verify.surgery import Surgery
from opsgen.verify.tracing import Tracer

_SELECTING = frozenset(
    (
        *("index", "index_select", "gather", "take", "take_along_dim", "masked_select"),
        *("diagonal_copy", "select_copy", "slice_copy", "unfold_copy", "trace"),
    )
)
_PLACED = frozenset(("mm", "bmm", "addmm", "baddbmm", "convolution", "mv", "dot"))
"""Ops that compute each element by itself, though from many."""


class Dataflow(Tracer):  # type: ignore[no-untyped-call]
    """The eager aten ops of one call: what they cost and who reads what of their results.

    Attributes:
        orders: Place of each node's op among all that are no view.
        costs: Bytes that it moves plus its floating-point operations.
    """

    def __init__(self) -> None:
        super().__init__()
        self.orders: dict[int, int] = {}
        self.costs: dict[int, float] = {}
        self.num_ops = 0
        self._depth = 0
        self._numel: dict[int, int] = {}
        self._reads: dict[int, dict[int, float]] = {}
        self._local: set[int] = set()
        self._placed: set[int] = set()

    @classmethod
    def of(cls, reference: Reference, inputs: Inputs) -> tuple[Dataflow, list[tuple[Value, int]]]:
        """Run once; return the dataflow, and each output with its number of elements.

        Raises:
            TaskCodeError: It does not run like that.
        """
        flow = cls()
        flow.read(reference.model, tensors_of(inputs))
        with task_code(reference.stage), torch.no_grad(), flow:
            outputs = tensors_of(reference.model(*inputs))
        return flow, [(flow.value_of(leaf), leaf.numel()) for leaf in outputs]

    def _made_of(self, func: Any) -> Callable[..., Any] | None:
        return None

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Follow the op, counting it unless it is part of another."""
        if not self._depth and not func.is_view:
            self.num_ops += 1
        self._depth += 1
        try:
            return super().__torch_dispatch__(func, types, args, kwargs)
        finally:
            self._depth -= 1

    def _put(self, tensor: Tensor, value: Value) -> None:
        super()._put(tensor, value)
        if not value.steps:
            self._numel.setdefault(value.node, tensor.numel())

    def _named(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], results: list[Tensor]
    ) -> Value:
        tensors = tensors_of((args, kwargs))
        reads = [(self.value_of(tensor).node, tensor.numel()) for tensor in tensors]
        value = super()._named(func, args, kwargs, results)
        node = value.node
        if node in self.costs or not self.canon.nodes[node].operands:
            return value
        self.orders[node] = self.num_ops - 1
        self.costs[node] = _cost(func, args, kwargs, tensors, results)
        num_kept = results[0].numel() if op_name(func) in _SELECTING else None
        if op_name(func) == "trace":
            num_kept = min(tensors[0].shape)
        ours = self._reads.setdefault(node, {})
        for place, (source, numel) in enumerate(reads):
            count = min(numel, num_kept) if num_kept is not None and place == 0 else numel
            share = min(1.0, count / max(1, self._numel.get(source, numel)))
            ours[source] = min(1.0, ours.get(source, 0.0) + share)
        if is_pointwise(func):
            self._local.add(node)
        if op_name(func) in _PLACED:
            self._placed.add(node)
        return value

    def wasted(self, outputs: list[tuple[Value, int]], calls: list[range], safe: set[int]) -> float:
        """Return the share of the cost that is in results which do not matter or are dropped.

        Args:
            outputs: What is returned, with numbers of elements.
            calls: Places, as in `orders`, of the ops of each public call. How torch takes a call
                apart is not the task's doing: its ops matter as much as the one that does most.
            safe: Places of ops whose results may be anything.
        """
        kept: dict[int, float] = {}
        for value, numel in outputs:
            share = min(1.0, numel / max(1, self._numel.get(value.node, numel)))
            kept[value.node] = min(1.0, kept.get(value.node, 0.0) + share)
        wasted = 0.0
        call_of = {op: place for place, ops in enumerate(calls) for op in ops}
        most: dict[int, float] = {}
        for node in range(len(self.canon.nodes) - 1, -1, -1):
            order = self.orders.get(node, -1)
            ours = 0.0 if order in safe else kept.get(node, 0.0)
            if order in call_of:
                ours = most[call_of[order]] = max(ours, most.get(call_of[order], 0.0))
            is_local = node in self._local or node in self._placed
            wasted += self.costs.get(node, 0.0) * (1 - ours if is_local else float(not ours))
            weight = ours if node in self._local else float(ours > 0)
            shares = self._reads.get(node, {})
            for operand in self.canon.nodes[node].operands:
                share = weight * shares.get(operand.node, 1.0)
                kept[operand.node] = min(1.0, kept.get(operand.node, 0.0) + share)
        return wasted / max(1.0, sum(self.costs.values()))


Flow = tuple[Dataflow, list[tuple[Value, int]]]


def full_dataflow(code: str) -> Flow | None:
    """Return the dataflow of code at its own sizes on `meta`; None where that fails."""
    try:
        with task_module(code) as module:
            reference = Reference.build(module, "meta", 0)
            return Dataflow.of(reference, reference.draw(0))
    except TaskCodeError:
        return None


def _cost(
    func: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    tensors: tuple[Tensor, ...],
    results: list[Tensor],
) -> float:
    moved = float(sum(tensor.nbytes for tensor in (*tensors, *results)))
    count = flop_registry.get(func.overloadpacket)
    if count is None:
        return moved
    result = results[0] if len(results) == 1 else tuple(results)
    return moved + float(count(*args, **kwargs, out_val=result))


def unverified_fraction(surgery: Surgery, full: Flow | None) -> float:
    """Return the share of the cost of all ops whose results do not matter or are thrown away.

    Args:
        surgery: The twin, after `call_effects`.
        full: Dataflow of the full size, where `meta` runs it; else the twin's own is taken.

    Raises:
        TaskCodeError: The twin does not run under a dispatch mode.
    """
    flow, outputs = Dataflow.of(surgery.reference, surgery.draws[0])
    if full is not None and full[0].num_ops == flow.num_ops:
        flow, outputs = full
    calls = [part.ops for part in surgery.parts()]
    return flow.wasted(outputs, calls, {op for part in surgery.idle for op in part.ops})
