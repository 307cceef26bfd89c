"""Comparing outputs in scaled error, whatever their size.

The error of an element is its distance divided by the scale of its
surroundings, so that one number judges leaves of any magnitude and a small
element beside large ones is not asked for digits it cannot have.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from opsgen.records import Tolerance
from opsgen.verify.leaves import Leaves, is_exact, real_view

OUTLIER_SHARE = 1e-4
"""Share of elements of a large leaf that may miss the tolerance."""
OUTLIER_FACTOR = 20.0
"""No element may miss it by more than this factor."""
MANY_ELEMENTS = 10_000
"""Below this number of elements none may miss the tolerance."""
_SHORT_AXIS = 32
_ROW_FLOOR = 1e-3
_CHUNK = 1 << 22
_SAMPLE = 1 << 16
_SAFE_RANGE = (1e-15, 1e15)  # squares of float32 values stay normal numbers within


def element_scale(reference: Tensor) -> Tensor:
    """Return the scale of every element, broadcastable to `reference`.

    The reference is real; `real_view` makes complex ones so. The scale is the larger of the
    root mean square over the last axis and a thousandth of that of the leaf; the leaf's alone where the last axis is shorter than 32. Elements that are not
    finite count as zero.
    """
    values = _wide(reference)
    peak = _peak(values)
    if not math.isfinite(peak):
        values = values.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
        peak = _peak(values)
    if peak and not _SAFE_RANGE[0] < peak < _SAFE_RANGE[1]:
        values = values.double()
    squares = values.square()
    leaf = squares.mean().sqrt()
    if reference.ndim == 0 or reference.shape[-1] < _SHORT_AXIS:
        return leaf
    return torch.maximum(squares.mean(-1, keepdim=True).sqrt(), _ROW_FLOOR * leaf)


def scaled_error(actual: Tensor, reference: Tensor) -> Tensor:
    """Return distance over scale for every element, in float32, or float64 if a side is that.

    Equal elements have no error, two NaNs or equal infinities included; an element that is
    finite on one side only has an infinite error.
    """
    return divided_error(actual, reference, element_scale(reference))


def divided_error(actual: Tensor, reference: Tensor, scale: Tensor) -> Tensor:
    """Return the error of `actual` in units of `scale`; see `scaled_error`."""
    dtype = torch.promote_types(torch.float32, torch.promote_types(actual.dtype, reference.dtype))
    left, right = actual.to(dtype), reference.to(dtype)
    error = (left - right).abs_().div_(scale.to(dtype))
    if bool(error.sum().isfinite()):
        return error
    is_same = (left == right) | (left.isnan() & right.isnan())
    error = error.nan_to_num_(nan=math.inf, posinf=math.inf)
    return error.masked_fill_(is_same, 0.0)


def kth_largest(values: Tensor, k: int) -> float:
    """Return the `k`-th largest element, from 1, exactly and in bounded extra memory."""
    flat = values.flatten()
    if flat.numel() > _CHUNK and k <= _CHUNK // 4:
        flat = _candidates(flat, k)
    if flat.numel() > _CHUNK and k <= _CHUNK // 4:
        chunks = torch.split(flat, _CHUNK)
        flat = torch.cat([chunk.topk(min(k, chunk.numel()), sorted=False)[0] for chunk in chunks])
    if flat.is_cuda:  # kthvalue is slower than a sort there, by two orders on 2.5e7 values
        return float(flat.sort(descending=True)[0][k - 1])
    return float(flat.kthvalue(flat.numel() - k + 1)[0])


def _candidates(flat: Tensor, k: int) -> Tensor:
    """Return the elements above a bound that leaves at least `k`, or all if it leaves many.

    The bound is guessed from a sample: it decides how much is left to sort, not the result.
    """
    sample = flat[:: max(1, flat.numel() // _SAMPLE)]
    rank = min(sample.numel(), 2 + 4 * k * sample.numel() // flat.numel())
    bound = sample.topk(rank)[0][-1]
    above = flat >= bound
    num_above = int(above.sum())
    return flat[above] if k <= num_above <= flat.numel() // 16 else flat


def outlier_quantile(errors: Tensor) -> float:
    """Return the 99.99 % quantile: at most that share of elements is above it."""
    return kth_largest(errors, int(errors.numel() * OUTLIER_SHARE) + 1)


def comparison_margin(
    actual: Leaves, reference: Leaves, tolerances: tuple[Tolerance, ...]
) -> float:
    """Return how far `actual` is from `reference` in units of what a comparison bears.

    At most 1 exactly when the comparison passes: structure, shapes and dtypes agree, exact
    leaves are equal, and in every floating leaf 99.99 % of elements are within its tolerance
    and none beyond 20 times it (all within, below 10,000 elements). The largest over leaves.
    """
    if len(actual) != len(reference) or len(tolerances) != len(reference):
        return math.inf
    pairs = zip(actual, reference, tolerances, strict=True)
    return max(_leaf_margin(left, right, tolerance.value) for left, right, tolerance in pairs)


def over_tolerance(error: float, tolerance: float) -> float:
    """Return `error / tolerance`, where no error is 0 and any error beyond 0 is infinite."""
    if error == 0 or math.isinf(tolerance):
        return 0.0
    return error / tolerance if tolerance else math.inf


def _leaf_margin(actual: Tensor, reference: Tensor, tolerance: float) -> float:
    if actual.shape != reference.shape or actual.dtype != reference.dtype:
        return math.inf
    if is_exact(reference):
        return 0.0 if torch.equal(actual, reference) else math.inf
    if reference.numel() == 0:
        return 0.0
    errors = scaled_error(real_view(actual), real_view(reference))
    largest = float(errors.max())
    if reference.numel() < MANY_ELEMENTS or largest == 0:
        return over_tolerance(largest, tolerance)
    typical = over_tolerance(outlier_quantile(errors), tolerance)
    return max(typical, over_tolerance(largest, OUTLIER_FACTOR * tolerance))


def _wide(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def _peak(values: Tensor) -> float:
    least, most = values.aminmax() if values.numel() else (torch.zeros(()), torch.zeros(()))
    return max(-float(least), float(most))
