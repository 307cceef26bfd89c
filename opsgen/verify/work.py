"""How much work foreign code is, found on `meta` before anything large is allocated."""

from __future__ import annotations

import contextlib
import types
from dataclasses import dataclass

from torch.utils.flop_counter import FlopCounterMode

from opsgen.records import TensorSpec
from opsgen.verify.leaves import Leaves, specs_of, tensors_of
from opsgen.verify.reference import Reference
from opsgen.verify.running import TaskCodeError


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
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    size_bytes: int
    flops: int | None
    num_parts: int

    def fits(self, max_bytes: float, max_flops: float) -> bool:
        """Whether the work is below both bounds; work that `meta` cannot run counts by bytes."""
        return self.size_bytes <= max_bytes and (self.flops or 0) <= max_flops


def outline(module: types.ModuleType, *, count_flops: bool) -> Outline | None:
    """Run the task on `meta`; None where `meta` cannot even build it, though a device might.

    Raises:
        TaskCodeError: The code is wrong on any device, such as by its shapes.
    """
    try:
        reference = Reference.build(module, "meta", 0)
        reference.stage = "meta"
        inputs = reference.draw(0)
    except TaskCodeError as error:
        if _is_limit_of_meta(error):
            return None
        raise
    counter = FlopCounterMode(display=False)
    outputs: Leaves = ()
    try:
        with counter if count_flops else contextlib.nullcontext():
            outputs = reference.run(inputs)
    except TaskCodeError as error:
        if not _is_limit_of_meta(error):
            raise
    tensors = (*tensors_of(inputs), *reference.state.tensors, *outputs)
    return Outline(
        inputs=specs_of(tensors_of(inputs)),
        outputs=specs_of(outputs),
        size_bytes=sum(tensor.nbytes for tensor in tensors),
        flops=counter.get_total_flops() if count_flops and outputs else None,
        num_parts=len(tensors) - len(outputs),
    )


def _is_limit_of_meta(error: TaskCodeError) -> bool:
    failure = error.failure
    kinds = ("NotImplementedError", "DataDependentOutputException", "DynamicOutputShapeException")
    return failure.kind in kinds or "meta" in failure.message.lower()
