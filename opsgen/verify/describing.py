"""How one core-ATen call is described in a trace: attributes by name, sizes apart.

The op's schema tells attributes from sizes; what it cannot tell (a factor that
is the root of a length) is told by the lengths at hand.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from opsgen.verify.canon import is_size_like

COPIES = frozenset(
    (
        "_to_copy",
        "clone",
        "contiguous",
        "copy",
        "lift_fresh",
        "lift_fresh_copy",
        "alias",
        "detach",
        "view_of",
        "convert_element_type",
        "to_dtype",
        "_unsafe_view",
        "alias_copy",
        "detach_copy",
        "view_copy",
        "_conj_physical",
    )
)
"""Ops that hand on the same values, of another type at most."""
_IGNORED = frozenset(
    (
        "dtype",
        "layout",
        "device",
        "pin_memory",
        "memory_format",
        "generator",
        "implicit",
        "non_blocking",
        "copy",
        "cudnn_enabled",
        "cudnn_enable",
        "input_dtype",
    )
)
_SIZES = frozenset(
    (
        "size",
        "sizes",
        "shape",
        "normalized_shape",
        "output_size",
        "input_size",
        "input_sizes",
        "self_size",
        "self_sizes",
        "bias_sizes",
        "sym_size",
        "N",
        "C",
        "HxW",
        "split_size",
        "split_sizes",
        "num_weights",
        "stride_size",
        "end",
        "steps",
        "last_dim_size",
    )
)
_FILLS = {
    "zeros": 0.0,
    "zeros_like": 0.0,
    "new_zeros": 0.0,
    "zero": 0.0,
    "ones": 1.0,
    "ones_like": 1.0,
    "new_ones": 1.0,
}
_FILLING = frozenset(("full", "full_like", "new_full", "fill", "scalar_tensor"))
_REDUCTIONS = frozenset(
    (
        "sum",
        "mean",
        "amax",
        "amin",
        "max",
        "min",
        "argmax",
        "argmin",
        "prod",
        "any",
        "all",
        "var",
        "std",
        "var_mean",
        "std_mean",
        "logsumexp",
        "linalg_vector_norm",
        "median",
        "nanmedian",
        "count_nonzero",
        "aminmax",
        "nansum",
    )
)
_DIMS = frozenset(("dim", "dims", "dim0", "dim1", "dimension", "axis"))
_LONG = 8
"""Smaller numbers are counts of heads, groups or taps more often than extents."""
_FACTORS = frozenset(("mul", "div"))


@functools.cache
def op_name(func: Any) -> str:
    """Return the name of an op without overload, namespace and in-place mark."""
    name = str(func._schema.name).rpartition("::")[2]
    return name.rstrip("_") or name


@functools.cache
def is_pointwise(func: Any) -> bool:
    """Whether every element depends on the elements at its own place alone."""
    return torch.Tag.pointwise in func.tags


@functools.cache
def _arguments(func: Any) -> tuple[tuple[str, str, Any], ...]:
    found = []
    for argument in func._schema.arguments:
        default = argument.default_value if argument.has_default_value() else None
        found.append((argument.name, str(argument.type), default))
    return tuple(found)


def bound(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> list[tuple[str, str, Any]]:
    """Return name, type and value of every argument that is not at its default."""
    found = []
    for position, (name, kind, default) in enumerate(_arguments(func)):
        value = args[position] if position < len(args) else kwargs.get(name, default)
        if value is not None and not (_is_plain(value) and value == default):
            found.append((name, kind, value))
    return found


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(_is_plain(each) for each in value)
    return isinstance(value, bool | int | float | complex | str)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a call is described among.

    Attributes:
        is_table: It reads nothing that depends on inputs or state: its numbers follow from sizes.
        is_state: It reads state before all else.
        shapes: Of all tensors so far.
    """

    is_table: bool
    is_state: bool
    shapes: Collection[tuple[int, ...]]


class Described:
    """One call, described.

    Attributes:
        plain: Attributes without sizes.
        sized: Sizes.
        tensors: Tensors read, in argument order.
        keeps: Axes of the result that a reduction kept at length 1; None if it kept none.
    """

    def __init__(
        self, func: Any, args: Sequence[Any], kwargs: dict[str, Any], context: Surroundings
    ) -> None:
        self._context = context
        self.is_table = context.is_table
        self.name = op_name(func)
        self.plain: list[Any] = []
        self.sized: list[Any] = []
        self.tensors: list[Tensor] = []
        self.keeps: tuple[int, ...] | None = None
        self._dims: tuple[int, ...] | None = None
        arguments = bound(func, args, kwargs)
        for _, _, value in arguments:
            self._collect(value)
        self._rank = self.tensors[0].ndim if self.tensors else 0
        if self.name == "stack":
            self._rank += 1
        rule = _RULES.get(self.name)
        for name, kind, value in arguments:
            if name not in _IGNORED and not (rule and rule(self, name, value)):
                self._add(name, kind, value)
        self._finish_reduction()

    def _collect(self, value: Any) -> None:
        if isinstance(value, Tensor):
            self.tensors.append(value)
        elif isinstance(value, list | tuple):
            for each in value:
                self._collect(each)

    def _add(self, name: str, kind: str, value: Any) -> None:
        if isinstance(value, Tensor):
            self.plain.append(name)
        elif name in _SIZES:
            self.plain.append((name, len(value) if isinstance(value, list | tuple) else None))
            self.sized.append(value)
        elif name in _DIMS:
            dims = self._axes(value)
            if self.name in _REDUCTIONS:
                self._dims = dims
            else:
                self.plain.append((name, dims))
        elif name == "keepdim":
            self.keeps = ()
        else:
            self.plain.append((name, self._literal(value)))

    def _axes(self, value: Any) -> tuple[int, ...]:
        dims = value if isinstance(value, list | tuple) else (value,)
        return tuple(dim % self._rank if self._rank else 0 for dim in dims)

    def _literal(self, value: Any) -> Any:
        if isinstance(value, list | tuple):
            return tuple(self._literal(each) for each in value)
        if isinstance(value, Tensor):
            return "tensor"
        if isinstance(value, bool) or not isinstance(value, int | float):
            return str(value)
        if self._follows_sizes(value):
            self.sized.append(value)
            return "size"
        return float(value)

    def _follows_sizes(self, value: float) -> bool:
        if self.is_table:
            return abs(value) >= _LONG
        if self.name == "repeat":
            return abs(value) >= _LONG or self._context.is_state
        if self.name == "remainder":
            return abs(value) >= _LONG and not self.tensors[0].is_floating_point()
        return self.name in _FACTORS and is_size_like(value, self._context.shapes)

    def _finish_reduction(self) -> None:
        if self.name not in _REDUCTIONS or len(self.tensors) != 1:
            return
        dims = tuple(sorted(set(self._dims or range(self._rank))))
        self.plain.append(("dims", dims))
        if self.keeps is not None:
            self.keeps = dims

    def is_nothing(self) -> bool:
        """Whether the result equals the first operand: times 1, plus 0, to the power of 1."""
        if len(self.tensors) != 1:
            return False
        return (
            self.plain in (["self", ("other", 1.0)], ["self", ("exponent", 1.0)])
            and (self.name in ("mul", "div", "pow"))
        ) or (self.plain == ["self", ("other", 0.0)] and self.name in ("add", "sub"))


def _convolution(call: Described, name: str, value: Any) -> bool:
    if name == "weight" and isinstance(value, Tensor):
        call.plain.append((name, tuple(value.shape[2:])))
        return True
    if name == "groups":
        channels = call.tensors[0].shape[1]
        call.plain.append((name, "each" if value == channels and value > 1 else value))
        return True
    if name == "output_mask":
        call.plain.append((name, str(value)))
        return True
    return False


def _batch_norm(call: Described, name: str, value: Any) -> bool:
    return name == "momentum"


_RULES: dict[str, Callable[[Described, str, Any], bool]] = {
    "convolution": _convolution,
    "convolution_backward": _convolution,
    "_native_batch_norm_legit_no_training": _batch_norm,
    "native_batch_norm": _batch_norm,
}


def fill_of(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> float | str | None:
    """Return what a call fills its result with; None where it does something else."""
    name = op_name(func)
    if name in _FILLS:
        return _FILLS[name]
    if name not in _FILLING:
        return None
    for argument, _, value in bound(func, args, kwargs):
        if argument in ("fill_value", "value", "s"):
            return None if isinstance(value, Tensor) else repr(complex(value))
    return repr(complex(0))
