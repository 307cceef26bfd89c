"""Tensors in nested inputs and outputs: flattening, specs, bit patterns."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from opsgen.errors import TaskError
from opsgen.records import TensorSpec

Inputs = tuple[Any, ...]
Leaves = tuple[Tensor, ...]

_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_COMPARABLE = frozenset(
    {torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}
    | {torch.float16, torch.bfloat16, torch.float32, torch.float64}
    | {torch.complex64, torch.complex128}
)
_ROW = 1024


def output_leaves(output: object) -> Leaves:
    """Return the tensors of a task's output in order.

    Raises:
        TaskError: A leaf is no plain, dense tensor of a type that can be compared, or has no
            elements, or there is none.
    """
    leaves = pytree.tree_leaves(output)
    if not leaves:
        raise TaskError("executes", "the output holds no tensor")
    for leaf in leaves:
        _validate_plain(leaf, "output")
        if leaf.dtype not in _COMPARABLE:
            raise TaskError("judgeable", f"output leaf of {leaf.dtype}, which has no tolerance")
        if leaf.numel() == 0:
            raise TaskError("nontrivial", f"output leaf of shape {list(leaf.shape)} is empty")
    return tuple(leaf.detach() for leaf in leaves)


def validate_inputs(inputs: object) -> None:
    """Hold that inputs are a list or tuple of plain tensors, nested or not.

    Raises:
        TaskError: They are not.
    """
    if not isinstance(inputs, list | tuple):
        raise TaskError("executes", f"get_inputs returns {type(inputs).__name__}, not a list")
    for leaf in pytree.tree_leaves(inputs):
        _validate_plain(leaf, "input")


def _validate_plain(leaf: object, what: str) -> None:
    if type(leaf) not in (Tensor, torch.nn.Parameter):
        raise TaskError("executes", f"{what} leaf of type {type(leaf).__name__}, not a tensor")
    assert isinstance(leaf, Tensor)
    if leaf.layout != torch.strided or leaf.is_nested or leaf.is_quantized:
        raise TaskError("executes", f"{what} leaf is not a dense tensor ({leaf.layout})")


def tensors_of(tree: object) -> Leaves:
    """Return the tensors in `tree`, whatever else it holds."""
    return tuple(leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, Tensor))


def map_tensors(change: Callable[[Tensor], Tensor], tree: Inputs) -> Inputs:
    """Return `tree` with every tensor replaced by `change` of it."""
    return tuple(pytree.tree_map_only(Tensor, change, list(tree)))


def spec_of(tensor: Tensor) -> TensorSpec:
    """Return shape and dtype of a tensor as a record."""
    return TensorSpec(shape=tuple(tensor.shape), dtype=str(tensor.dtype).removeprefix("torch."))


def specs_of(tensors: Leaves) -> tuple[TensorSpec, ...]:
    """Return shapes and dtypes of several tensors as records."""
    return tuple(spec_of(tensor) for tensor in tensors)


def is_exact(tensor: Tensor) -> bool:
    """Whether values are compared exactly: integers and booleans."""
    return not (tensor.is_floating_point() or tensor.is_complex())


def real_view(tensor: Tensor) -> Tensor:
    """Return a complex tensor as reals, interleaved along its last axis; others as they are."""
    if not tensor.is_complex():
        return tensor
    parts = torch.view_as_real(tensor.resolve_conj())
    return parts.flatten(-2) if tensor.ndim else parts


def bits_of(tensor: Tensor) -> Tensor:
    """Return the bit patterns of a tensor as integers; a view where it is contiguous."""
    plain = real_view(tensor.detach()).resolve_neg().contiguous()
    return plain.view(_BITS[plain.element_size()])


def equal_bits(left: Leaves, right: Leaves) -> bool:
    """Whether two results agree in structure and in every bit, NaNs included."""
    return specs_of(left) == specs_of(right) and all(
        torch.equal(bits_of(a), bits_of(b)) for a, b in zip(left, right, strict=True)
    )


Fingerprint = tuple[tuple[object, ...], ...]


def fingerprint(tensors: Leaves) -> Fingerprint:
    """Return version, layout and checksum of every tensor: any in-place write changes one.

    The version sees writes through torch, even such that store equal values. The checksum
    sees those past it (`.data`, raw memory), values that only change places included.
    """
    return tuple((_version(t), t.dtype, t.shape, t.stride(), _checksum(t)) for t in tensors)


def _version(tensor: Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


def _checksum(tensor: Tensor) -> tuple[int, ...]:
    """Return weighted sums over rows and over columns of the bits, and over the rest."""
    flat = bits_of(tensor).flatten()
    num_rows = flat.numel() // _ROW
    parts = [flat[num_rows * _ROW :]]
    if num_rows:
        rows = flat[: num_rows * _ROW].view(num_rows, _ROW)
        parts += [rows.sum(0, dtype=torch.int64), rows.sum(1, dtype=torch.int64)]
    return tuple(int((part * _weights(part)).sum(dtype=torch.int64)) for part in parts)


def _weights(part: Tensor) -> Tensor:
    if part.numel() <= _ROW and part.device.type == "cpu":
        return _short_weights()[: part.numel()]
    return _make_weights(part.numel(), part.device)


@functools.cache
def _short_weights() -> Tensor:
    return _make_weights(_ROW, torch.device("cpu"))


def _make_weights(count: int, device: torch.device) -> Tensor:
    weights = torch.arange(1, count + 1, dtype=torch.int64, device=device)
    weights *= 0x5851F42D4C957F2D  # Knuth's multiplier, modulo 2**64
    return weights ^ (weights >> 29)


def count_nonfinite(leaves: Leaves) -> int:
    """Count NaN and infinite elements."""
    return sum(int(leaf.numel() - leaf.isfinite().sum()) for leaf in leaves if not is_exact(leaf))
