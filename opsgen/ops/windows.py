"""Closed forms of sliding windows, shared by pooling, convolution and layout ops.

A window attribute is one number for all spatial dims or a tuple with one each.
"""

from __future__ import annotations

from math import prod

from opsgen.ops.dims import Shape
from opsgen.ops.entry import Attrs

Window = int | tuple[int, ...]


def per_dim(window: Window, dims: int) -> tuple[int, ...]:
    """Return one number for each of `dims` spatial dims."""
    return (window,) * dims if isinstance(window, int) else window


def window_size(window: Window, dims: int) -> int:
    """Number of positions in a window."""
    return prod(per_dim(window, dims))


def reaches(attrs: Attrs, dims: int) -> tuple[int, ...]:
    """Distance between the first and the last position of a window, in each dim."""
    dilations = per_dim(attrs.get("dilation", 1), dims)
    kernels = per_dim(attrs["kernel_size"], dims)
    return tuple(d * (k - 1) for d, k in zip(dilations, kernels, strict=True))


def padding_choices(attrs: Attrs, dims: int) -> list[Window]:
    """No padding, and the padding that keeps sizes at stride one."""
    half = tuple(reach // 2 for reach in reaches(attrs, dims))
    if not any(half):
        return [0]
    return [0, half[0] if len(set(half)) == 1 else half]


def fits(space: Shape, attrs: Attrs) -> bool:
    """Tell whether at least two windows' worth of positions exist in every dim."""
    dims = len(space)
    paddings = per_dim(attrs["padding"], dims)
    return all(
        size + 2 * padding > reach
        for size, padding, reach in zip(space, paddings, reaches(attrs, dims), strict=True)
    )


def window_counts(space: Shape, attrs: Attrs) -> Shape:
    """Number of windows in each spatial dim.

    With `ceil_mode` the form holds while the last window starts inside the input or its left
    padding, which the entries make sure of.
    """
    dims = len(space)
    strides = per_dim(attrs["stride"], dims)
    paddings = per_dim(attrs["padding"], dims)
    counts = []
    for size, stride, padding, reach in zip(
        space, strides, paddings, reaches(attrs, dims), strict=True
    ):
        slack = stride - 1 if attrs.get("ceil_mode") else 0
        counts.append((size + 2 * padding - reach - 1 + slack) // stride + 1)
    return tuple(counts)
