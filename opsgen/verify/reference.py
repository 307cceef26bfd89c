"""A task's reference: its code loaded as a module, built on a device, drawn from seeds."""

from __future__ import annotations

import copy
import inspect
import linecache
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from opsgen.errors import TaskError
from opsgen.records import digest
from opsgen.verify.leaves import (
    Inputs,
    Leaves,
    map_tensors,
    output_leaves,
    tensors_of,
    validate_inputs,
)
from opsgen.verify.running import task_code
from opsgen.verify.seeding import seeded
from opsgen.verify.state import State


@contextmanager
def task_module(code: str, *, stage: str = "build") -> Iterator[types.ModuleType]:
    """Run `code` as a fresh module, known to tracebacks, `inspect` and Dynamo for the block.

    Raises:
        TaskCodeError: The module's own statements raised.
    """
    name = f"opsgen_task_{digest(code)}"
    while name in sys.modules:
        name += "_"
    filename = f"<{name}>"
    module = types.ModuleType(name)
    module.__file__ = filename
    linecache.cache[filename] = (len(code), None, code.splitlines(keepends=True), filename)
    sys.modules[name] = module
    try:
        with task_code(stage):
            exec(compile(code, filename, "exec"), module.__dict__)
        yield module
    finally:
        linecache.cache.pop(filename, None)
        sys.modules.pop(name, None)


class Reference:
    """A reference with its state and its inputs as functions of seeds.

    The model is in eval mode. `stage` names what is being done in failures of task code
    and is set as work proceeds.
    """

    def __init__(self, module: types.ModuleType, model: nn.Module, device: str) -> None:
        self.module = module
        self.model = model
        self.device = device
        self.stage = "build"
        self.state = State(model)

    @classmethod
    def build(cls, module: types.ModuleType, device: str, seed: int) -> Reference:
        """Build the model on `device`, which may be `meta`, with the generators at `seed`.

        Raises:
            TaskCodeError: The task's constructor raised.
        """
        with task_code("build"), seeded(seed, device), torch.device(device):
            model = _construct(module).to(device).eval()
        return cls(module, model, device)

    def draw(self, seed: int) -> Inputs:
        """Return the inputs that `get_inputs` draws from `seed` on the device."""
        with task_code(self.stage), seeded(seed, self.device):
            with torch.device(self.device):
                inputs = self.module.get_inputs()
            validate_inputs(inputs)
            kept = _kept_storages(self.module)
            return map_tensors(lambda tensor: self._own(tensor, kept), tuple(inputs))

    def _own(self, tensor: Tensor, kept: frozenset[int]) -> Tensor:
        """Return an input of this draw alone: its memory may be freed and written."""
        ours = tensor.detach().to(self.device)
        is_kept = tensor.device.type != "meta" and _storage(ours) in kept
        return ours.clone() if is_kept or ours.is_inference() else ours

    def run(self, inputs: Inputs, seed: int | None = None) -> Leaves:
        """Return the output leaves of one call, with the global generators at `seed` if given.

        Raises:
            TaskCodeError: The call raised, or its output is not made of plain tensors.
        """
        if seed is not None:
            with seeded(seed, self.device):
                return self.run(inputs)
        with task_code(self.stage), torch.no_grad():
            return output_leaves(self.model(*inputs))

    def copied(self) -> Reference:
        """Return a copy with state of its own, as it is now.

        Raises:
            TaskCodeError: The model cannot be copied.
        """
        with task_code(self.stage):
            copy_ = Reference(self.module, copy.deepcopy(self.model), self.device)
        copy_.stage = self.stage
        return copy_

    def in_double(self) -> Reference:
        """Return a copy that computes in float64 on the state as it is now; see `widen`.

        Raises:
            TaskCodeError: The model cannot be copied.
        """
        wide = self.copied()
        # As `double` does, but for complex tensors too.
        wide.model._apply(_widen)  # type: ignore[no-untyped-call]
        wide.state = State(wide.model)
        return wide

    def input_names(self, inputs: Inputs) -> tuple[str, ...]:
        """Return the argument names that `inputs` are passed as."""
        names = list(inspect.signature(self.model.forward).parameters)
        names += [f"#{position}" for position in range(len(names), len(inputs))]
        return tuple(names[: len(inputs)])


def coarsest_eps(tensors: Leaves) -> float:
    """Return the largest spacing (`finfo.eps`) of floating types among `tensors`, or 0."""
    found = (torch.finfo(t.dtype).eps for t in tensors if t.is_floating_point() or t.is_complex())
    return max(found, default=0.0)


def working_eps(reference: Reference, inputs: Inputs) -> float:
    """Return the spacing of the task's working type: the coarsest it is given to compute with."""
    return coarsest_eps((*reference.model.parameters(), *tensors_of(inputs)))


def widen(inputs: Inputs) -> Inputs:
    """Return `inputs` with floating and complex tensors in double precision."""
    return map_tensors(_widen, inputs)


def _widen(tensor: Tensor) -> Tensor:
    if tensor.is_complex():
        return tensor.to(torch.complex128)
    return tensor.double() if tensor.is_floating_point() else tensor


def _kept_storages(module: types.ModuleType) -> frozenset[int]:
    """Return where the tensors lie that the module itself holds on to."""
    held = [
        value
        for value in vars(module).values()
        if isinstance(value, Tensor | list | tuple | dict)
        and value is not vars(module).get("__builtins__")
    ]
    return frozenset(_storage(leaf) for leaf in tensors_of(held) if leaf.layout == torch.strided)


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _construct(module: types.ModuleType) -> nn.Module:
    arguments: Any = module.get_init_inputs()
    # KernelBook's files return [positional, keywords] where KernelBench's return positional.
    if isinstance(arguments, dict):
        model = module.Model(**arguments)
    elif len(arguments) == 2 and isinstance(arguments[0], list) and isinstance(arguments[1], dict):
        model = module.Model(*arguments[0], **arguments[1])
    else:
        model = module.Model(*arguments)
    if not isinstance(model, nn.Module):
        raise TaskError("self_contained", "Model is not a torch.nn.Module")
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if is_lazy(tensor):
            raise TaskError("self_contained", f"{name} has no shape before the first call")
    return model
