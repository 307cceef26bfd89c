"""How much work a task is, found on `meta` before anything large is allocated."""

from __future__ import annotations

import types
import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from opsgen.errors import TaskError
from opsgen.records import TensorSpec, Trace
from opsgen.verify.leaves import Inputs, Leaves, specs_of, tensors_of
from opsgen.verify.recording import Recording, record_calls
from opsgen.verify.reference import Reference
from opsgen.verify.running import TaskCodeError, task_code, task_fault
from opsgen.verify.tracing import trace_call

PEAK_FACTOR = 4


@dataclass(frozen=True, slots=True)
class Outline:
    """What a run on `meta` shows.

    Attributes:
        inputs: Specs of the inputs.
        outputs: Specs of the output leaves; empty where `meta` cannot run the call.
        size_bytes: Bytes of inputs, parameters, buffers and outputs.
        flops: Floating-point operations of matrix products, convolutions and attention;
            None unless counted.
        num_parts: Inputs, parameters and buffers.
        peak_bytes: Most that inputs, state and results hold together during the call; None
            where `meta` cannot run it.
        largest_elements: Elements of the largest tensor; None likewise.
        kept_fraction: Elements of the outputs over those of the largest result of an op, at
            most 1; None likewise.
        state_names: Of parameters and buffers.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    size_bytes: int
    flops: int | None
    num_parts: int
    peak_bytes: int | None = None
    largest_elements: int | None = None
    kept_fraction: float | None = None
    state_names: tuple[str, ...] = ()

    def fits(self, max_bytes: float, max_flops: float) -> bool:
        """Whether the work is below both bounds; work that `meta` cannot run counts by bytes.

        The call itself may hold some times as much as it is given and returns.
        """
        peak = (self.peak_bytes or 0) / PEAK_FACTOR
        return max(self.size_bytes, peak) <= max_bytes and (self.flops or 0) <= max_flops


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """A run on `meta`, seen from all sides.

    Attributes:
        outline: How much work it is; None where `meta` cannot build the task.
        trace: What runs; None where `meta` cannot run it.
        recording: What was called; None likewise.
    """

    outline: Outline | None
    trace: Trace | None = None
    recording: Recording | None = None


def outline(module: types.ModuleType, *, count_flops: bool) -> Outline | None:
    """Run the task on `meta`; None where `meta` cannot even build it, though a device might.

    Raises:
        TaskCodeError: The code is wrong on any device, such as by its shapes.
    """
    built = _build(module)
    return None if built is None else _run(*built, count_flops=count_flops)


def rehearse(module: types.ModuleType, *, count_flops: bool) -> Rehearsal:
    """Run the task on `meta` twice: once for its work, once for what it calls and computes.

    Raises:
        TaskCodeError: The code is wrong on any device, such as by its shapes, or no kernel
            would run.
    """
    built = _build(module)
    if built is None:
        return Rehearsal(None)
    reference, inputs = built
    found = _run(reference, inputs, count_flops=count_flops)
    if not found.outputs:
        return Rehearsal(found)
    trace: Trace | None = None
    try:
        with task_code("meta"):
            trace, recording = trace_call(reference.model, inputs)
    except TaskCodeError:  # taken apart it does not run there
        with task_code("meta"):
            recording = record_calls(reference.model, inputs, is_deep=True)
    return Rehearsal(found, trace, recording)


def _build(module: types.ModuleType) -> tuple[Reference, Inputs] | None:
    try:
        reference = Reference.build(module, "meta", 0)
        reference.stage = "meta"
        return reference, reference.draw(0)
    except TaskCodeError as error:
        if _is_limit_of_meta(error):
            return None
        raise


def _run(reference: Reference, inputs: Inputs, *, count_flops: bool) -> Outline:
    given = (*tensors_of(inputs), *reference.state.tensors)
    ledger = _Ledger(given, count_flops=count_flops)
    outputs: Leaves = ()
    try:
        with _Attention(ledger), ledger:
            outputs = reference.run(inputs)
    except TaskCodeError as error:
        if not _is_limit_of_meta(error):
            raise
    if outputs and not ledger.num_kernels:
        raise task_fault("executes", "nothing is computed: no kernel would run", reference.stage)
    model = reference.model
    num_kept = sum(leaf.numel() for leaf in outputs)
    return Outline(
        inputs=specs_of(tensors_of(inputs)),
        outputs=specs_of(outputs),
        size_bytes=sum(tensor.nbytes for tensor in (*given, *outputs)),
        flops=ledger.flops if count_flops and outputs else None,
        num_parts=len(given),
        peak_bytes=ledger.peak_bytes if outputs else None,
        largest_elements=ledger.largest_elements if outputs else None,
        kept_fraction=min(1.0, num_kept / max(1, ledger.largest_result)) if outputs else None,
        state_names=tuple(name for name, _ in (*model.named_parameters(), *model.named_buffers())),
    )


_ACROSS = frozenset(
    ("copy_", "copy", "_to_copy", "index", "index_put_", "index_put", "_index_put_impl_")
)
"""Ops that may read from another device: copies, and indexing by positions on the CPU."""


class _Ledger(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Keeps account of the memory of living tensors, as an allocator without reserve would.

    Flops are counted by torch's formulas but without its mode, which follows modules by hooks
    that gradients within a call do not bear.
    """

    def __init__(self, given: Iterable[Tensor], *, count_flops: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._count_flops = count_flops
        self.flops = 0
        self.is_within_kernel = False
        self._bytes: dict[int, int] = {}
        self._now = 0
        self.peak_bytes = 0
        self.largest_elements = 0
        self.largest_result = 0
        self.num_kernels = 0
        for tensor in given:
            self._book(tensor)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Run the op and book its results.

        Raises:
            TaskError: It reads tensors of two devices. Where `forward` makes one of them without
                naming a device this fails wherever the inputs lie elsewhere.
        """
        if func._opname not in _ACROSS:
            kinds = {t.device.type for t in tensors_of((args, kwargs or {})) if t.ndim}
            if len(kinds) > 1:
                raise TaskError("executes", f"{func._opname} reads a tensor of another device")
        result = func(*args, **(kwargs or {}))
        if func.is_view:
            return result
        if self._count_flops and func.overloadpacket in flop_registry:
            count = flop_registry[func.overloadpacket]
            self.flops += count(*args, **(kwargs or {}), out_val=result)
        leaves = tensors_of(result)
        if self.is_within_kernel:
            return result
        if leaves and (tensors_of(args) or func._schema.is_mutable):
            self.num_kernels += 1
        self.take(leaves)
        return result

    def take(self, leaves: Leaves) -> None:
        """Book new tensors."""
        for leaf in leaves:
            self._book(leaf)
            self.largest_result = max(self.largest_result, leaf.numel())

    def _book(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        self.largest_elements = max(self.largest_elements, tensor.numel())
        if key not in self._bytes:
            self._bytes[key] = storage.nbytes()
            self._now += self._bytes[key]
            self.peak_bytes = max(self.peak_bytes, self._now)
            weakref.finalize(storage, self._free, key)

    def _free(self, key: int) -> None:
        self._now -= self._bytes.pop(key)


class _Attention(TorchFunctionMode):
    """Keeps the scores of an attention out of the account: devices do not store them, `meta` does."""

    def __init__(self, ledger: _Ledger) -> None:
        super().__init__()
        self._ledger = ledger

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func is not torch.nn.functional.scaled_dot_product_attention:
            return func(*args, **(kwargs or {}))
        self._ledger.is_within_kernel = True
        try:
            result = func(*args, **(kwargs or {}))
        finally:
            self._ledger.is_within_kernel = False
        self._ledger.num_kernels += 1
        self._ledger.take(tensors_of(result))
        return result


def _is_limit_of_meta(error: TaskCodeError) -> bool:
    failure = error.failure
    kinds = ("NotImplementedError", "DataDependentOutputException", "DynamicOutputShapeException")
    return failure.kind in kinds or "meta" in failure.message.lower()
