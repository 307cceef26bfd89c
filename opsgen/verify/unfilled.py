"""References and inputs whose values do not count: for calls of which only the launches do."""

from __future__ import annotations

import types

import torch
from torch import Tensor

from opsgen.verify.leaves import Inputs, map_tensors
from opsgen.verify.reference import Reference
from opsgen.verify.running import task_code

_CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


def unfilled(module: types.ModuleType, device: str) -> tuple[Reference, Inputs]:
    """Return a reference and inputs on `device` that hold memory and no values.

    Built and drawn on `meta`, so that nothing is launched.

    Raises:
        TaskCodeError: The task cannot be built or drawn without values.
    """
    shapes = Reference.build(module, "meta", 0)
    inputs = shapes.draw(0)
    with task_code("build"):
        model = shapes.model.to_empty(device=device)
    return Reference(module, model, device), map_tensors(
        lambda tensor: torch.empty_like(tensor, device=device), inputs
    )


def in_other_order(reference: Reference, inputs: Inputs) -> tuple[Reference, Inputs]:
    """Return both with channels last, matrices by columns, as compilers may lay values out.

    Changes the reference's model. Of tensors with fewer axes nothing changes.

    Raises:
        TaskCodeError: The model cannot be changed.
    """
    with task_code(reference.stage), torch.no_grad():
        for layout in _CHANNELS_LAST.values():
            reference.model.to(memory_format=layout)  # type: ignore[call-overload]
    return reference, map_tensors(_reordered, inputs)


def _reordered(tensor: Tensor) -> Tensor:
    if tensor.ndim in _CHANNELS_LAST:
        return tensor.contiguous(memory_format=_CHANNELS_LAST[tensor.ndim])
    return tensor.mT.contiguous().mT if tensor.ndim in (2, 3) else tensor
