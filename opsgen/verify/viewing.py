"""Views of a traced tensor: where they lie in memory, and the steps that lead there."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import Tensor

from opsgen.verify.canon import Shape, Step
from opsgen.verify.describing import bound, op_name

Key = tuple[Any, ...]


def dtype_of(tensor: Tensor) -> str:
    """Return the type of a tensor, such as `float32`."""
    return str(tensor.dtype).removeprefix("torch.")


def storage_of(tensor: Tensor) -> int:
    """Return what tells the memory of a living tensor from all other."""
    return int(tensor.untyped_storage()._cdata)


def geometry_of(tensor: Tensor) -> Key:
    """Return which elements of its memory a tensor shows, in which order and how read."""
    shape = tuple(tensor.shape)
    # Strides of axes of one element say nothing.
    stride = tuple(s if n != 1 else 0 for n, s in zip(shape, tensor.stride(), strict=True))
    kind = (tensor.dtype, tensor.is_conj(), tensor.is_neg())
    return (tensor.storage_offset(), shape, stride, kind)


def numel_of(shape: Shape) -> int:
    """Return the number of elements of a shape."""
    return int(torch.Size(shape).numel())


def is_dense(shape: tuple[int, ...], stride: tuple[int, ...]) -> bool:
    """Whether elements follow each other without gaps, the last axis fastest."""
    expected = 1
    for extent, step in zip(reversed(shape), reversed(stride), strict=True):
        if extent != 1 and step != expected:
            return False
        expected *= extent
    return True


_RESHAPES = frozenset(
    (
        "view",
        "_unsafe_view",
        "unsqueeze",
        "squeeze",
        "reshape",
        "_reshape_alias",
        "flatten",
        "unflatten",
        "view_as",
        "reshape_as",
    )
)


def view_steps(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], source: Tensor, results: list[Tensor]
) -> list[Step]:
    """Return the view that each result is: of a split the slices that it consists of."""
    name = op_name(func)
    if name not in ("split", "split_with_sizes", "unbind"):
        steps = [_step(func, args, kwargs, source, out) for out in results]
        return steps if len(steps) == 1 else [(*step, part) for part, step in enumerate(steps)]
    place = 1 if name == "unbind" else 2
    dim = args[place] if len(args) > place else kwargs.get("dim", 0)
    dim, extent = dim % source.ndim, source.shape[dim]
    if name == "unbind":
        return [_selection(dim, index, extent) for index in range(len(results))]
    ends = list(itertools.accumulate(out.shape[dim] for out in results))
    return [
        ("slice", dim, start, end, 1, extent) for start, end in zip([0, *ends], ends, strict=False)
    ]


def _selection(dim: int, index: int, extent: int) -> Step:
    return ("select", dim, index - extent if index and index == extent - 1 else index)


def _step(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], source: Tensor, out: Tensor
) -> Step:
    name, rank = op_name(func), source.ndim
    before, after = tuple(source.shape), tuple(out.shape)
    if name in _RESHAPES and out.dtype == source.dtype:
        return ("reshape", before, after)
    if name == "expand":
        return ("expand", before, after)
    if name == "permute":
        return ("permute", tuple(dim % rank for dim in args[1]), before)
    if name in ("transpose", "t"):
        dims = list(range(rank))
        one, two = (args[1] % rank, args[2] % rank) if name == "transpose" else (0, rank - 1)
        dims[one], dims[two] = dims[two], dims[one]
        return ("permute", tuple(dims), before)
    given = {argument: value for argument, _, value in bound(func, args, kwargs)}
    if name == "slice":
        dim = given.get("dim", 0) % rank
        extent = before[dim]
        start = min(max(_from_start(given.get("start", 0), extent), 0), extent)
        end = min(max(_from_start(given.get("end", extent), extent), start), extent)
        return ("slice", dim, start, end, given.get("step", 1), extent)
    if name == "select":
        dim = given.get("dim", 0) % rank
        return _selection(dim, given.get("index", 0) % before[dim], before[dim])
    rest = [(key, value) for key, value in given.items() if not isinstance(value, Tensor)]
    plain = [
        pair for pair in rest if pair[0] not in ("size", "stride", "split_size", "split_sizes")
    ]
    return (f"by {name}", tuple(plain), out.ndim, dtype_of(out))


def _from_start(position: int, extent: int) -> int:
    return position + extent if position < 0 else position
