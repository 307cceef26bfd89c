"""A module's parameters and buffers as a function of a seed.

Every check runs on re-drawn state: at constructor defaults a batch norm in
eval mode is the identity and affine weights do nothing.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from opsgen.verify.leaves import Fingerprint, Leaves, fingerprint
from opsgen.verify.seeding import derive_seed

_BIAS_STD = 0.25
_SHORT_BIAS_STD = 0.5  # in types of two bytes, whose tolerances are wider
_ZERO_STD = 0.5
_FACTOR = (0.5, 1.5)

Fill = Callable[[Tensor, torch.Generator], object]


@dataclass(frozen=True, slots=True)
class _Normal:
    """Normal draws around what the constructor chose."""

    mean: float
    std: float

    def __call__(self, tensor: Tensor, generator: torch.Generator) -> None:
        tensor.normal_(self.mean, self.std, generator=generator)


@dataclass(frozen=True, slots=True)
class _Factor:
    """A constant times uniform factors, so that signs stay."""

    constant: float

    def __call__(self, tensor: Tensor, generator: torch.Generator) -> None:
        tensor.uniform_(*_FACTOR, generator=generator).mul_(self.constant)


_STATISTICS: dict[str, Fill] = {
    "running_mean": _Normal(0.0, _ZERO_STD),
    "running_var": _Factor(1.0),
}


class State:
    """Parameters and buffers of a built module.

    Parameters keep the mean and spread of their constructor's draw. Constant ones are
    scaled element by element by [0.5, 1.5], zeros become normal draws, and biases get a
    spread that an output at low precision still shows. Of the buffers only running
    statistics are re-drawn: masks, tables and counters stay.
    """

    def __init__(self, model: nn.Module) -> None:
        self._tensors = dict(model.named_parameters()) | dict(model.named_buffers())
        self._parameters = {name for name, _ in model.named_parameters()}
        self._sizes: dict[str, int] = {}
        self._kept: dict[str, Tensor] = {}

    @functools.cached_property
    def _fills(self) -> dict[str, Fill]:
        fills = {
            name: _fill_for(name, tensor, is_parameter=name in self._parameters)
            for name, tensor in self._tensors.items()
        }
        return {name: fill for name, fill in fills.items() if fill is not None}

    @property
    def names(self) -> tuple[str, ...]:
        """Names of what `redraw` changes."""
        return tuple(self._fills)

    @property
    def tensors(self) -> Leaves:
        """All parameters and buffers."""
        return tuple(self._tensors.values())

    @property
    def size_bytes(self) -> int:
        """Bytes of all parameters and buffers."""
        return sum(tensor.nbytes for tensor in self._tensors.values())

    @torch.no_grad()
    def redraw(self, seed: int, only: str | None = None) -> None:
        """Draw state from `seed`, in place; each name has its own stream."""
        for name in self._fills if only is None else (only,):
            tensor = self._tensors[name]
            generator = torch.Generator(tensor.device).manual_seed(derive_seed(seed, name))
            self._fills[name](tensor, generator)

    def fingerprint(self) -> Fingerprint:
        """Return versions and checksums: see `leaves.fingerprint`."""
        return fingerprint(self.tensors)

    def free(self) -> None:
        """Give all memory back; shapes and types stay, so the module can still be compiled."""
        kept = self._tensors.keys() - self._fills.keys()
        self._sizes = {n: t.untyped_storage().nbytes() for n, t in self._tensors.items()}
        self._kept = {name: self._tensors[name].detach().to("cpu", copy=True) for name in kept}
        for tensor in self._tensors.values():
            _resize(tensor, 0)

    @torch.no_grad()
    def refill(self, seed: int) -> None:
        """Take memory again after `free` and draw the state of `seed`."""
        for name, tensor in self._tensors.items():
            _resize(tensor, self._sizes[name])
        for name, kept in self._kept.items():
            self._tensors[name].copy_(kept)
        self._kept = {}
        self.redraw(seed)


def redraw(model: nn.Module, seed: int) -> State:
    """Draw all parameters and running statistics of `model` from `seed`."""
    state = State(model)
    state.redraw(seed)
    return state


def _resize(tensor: Tensor, size_bytes: int) -> None:
    storage = tensor.untyped_storage()
    if storage.resizable():  # not where an array of numpy shares it
        storage.resize_(size_bytes)


def _fill_for(name: str, tensor: Tensor, *, is_parameter: bool) -> Fill | None:
    last = name.rpartition(".")[2]
    if not tensor.is_floating_point() or tensor.numel() == 0:
        return None
    if not is_parameter:
        return _STATISTICS.get(last)
    least, most = (float(bound) for bound in tensor.detach().aminmax())
    is_bias = last.endswith("bias")
    if not (math.isfinite(least) and math.isfinite(most)):
        return None
    if least == most and not (is_bias and tensor.numel() == 1):
        return _Normal(0.0, _ZERO_STD) if most == 0 else _Factor(most)
    if least == most:
        return _Normal(0.0, _ZERO_STD)
    std, mean = (float(value) for value in torch.std_mean(tensor.detach().float()))
    spread = _BIAS_STD if tensor.itemsize > 2 else _SHORT_BIAS_STD
    return _Normal(mean, max(std, spread) if is_bias else std)
