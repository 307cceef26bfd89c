"""Tensors in nested inputs and outputs: flattening, specs, bit patterns."""

from __future__ import annotations

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


def output_leaves(output: object) -> Leaves:
    """Return the tensors of a task's output in order.

    Raises:
        TaskError: A leaf is not a plain, dense tensor, or there is none.
    """
    leaves = pytree.tree_leaves(output)
    for leaf in leaves:
        if type(leaf) not in (Tensor, torch.nn.Parameter) or leaf.layout != torch.strided:
            raise TaskError("executes", f"output leaf of type {type(leaf).__name__}")
    if not leaves:
        raise TaskError("executes", "the output holds no tensor")
    return tuple(leaf.detach() for leaf in leaves)


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
    return torch.view_as_real(tensor).flatten(-2) if tensor.is_complex() else tensor


def bits_of(tensor: Tensor) -> Tensor:
    """Return the bit patterns of a tensor as integers; a view where it is contiguous."""
    plain = real_view(tensor).detach().contiguous()
    return plain.view(_BITS[plain.element_size()])


def equal_bits(left: Leaves, right: Leaves) -> bool:
    """Whether two results agree in structure and in every bit, NaNs included."""
    return specs_of(left) == specs_of(right) and all(
        torch.equal(bits_of(a), bits_of(b)) for a, b in zip(left, right, strict=True)
    )


def fingerprint(tensors: Leaves) -> tuple[tuple[int, int], ...]:
    """Return version and checksum of every tensor: any in-place write changes one of them.

    The version sees writes through torch, even such that store equal values; the sum of
    bit patterns sees most others.
    """
    return tuple((t._version, int(bits_of(t).sum(dtype=torch.int64))) for t in tensors)


def count_nonfinite(leaves: Leaves) -> int:
    """Count NaN and infinite elements."""
    return sum(int(leaf.numel() - leaf.isfinite().sum()) for leaf in leaves if not is_exact(leaf))
