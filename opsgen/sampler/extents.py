"""How an op's work is cut up: how long its folds are and how many lie side by side.

A kernel that gives each fold to one block or one thread is slow where folds
are short, or too few to fill the device. Batch normalization over eight
channels or a running sum over rows of 32 is ten times slower than its bytes
say, so the cost model needs both.
"""

from __future__ import annotations

from math import inf, prod

from opsgen.ops import Kind
from opsgen.sampler.calibration import Calibration
from opsgen.sampler.resolution import ResolvedNode

_PRODUCTS = (Kind.MATMUL, Kind.CONVOLUTION, Kind.ATTENTION)


def variant_of(node: ResolvedNode) -> str:
    """Return in which of its variants an op is applied; empty for the usual one.

    `grouped` is a convolution in groups, `global` a pooling over all positions, `outer` an op
    along dims other than the last.
    """
    attrs = node.attrs
    if attrs.get("groups", 1) > 1:
        return "grouped"
    if attrs.get("output_size") == 1:
        return "global"
    dim = attrs.get("dim")
    if dim is None or isinstance(dim, bool):
        return ""
    last = len(node.ins[0]) - 1
    is_last = dim in (-1, last) if isinstance(dim, int) else -1 in dim or last in dim
    return "" if is_last else "outer"


def extents(node: ResolvedNode) -> tuple[float, float]:
    """Return the length of a node's folds and their number; infinite where that is no limit.

    Of a product the length is that of its sums; what is narrow is the columns of its result,
    and of a convolution in groups the channels of a group. Of other ops the length is that of
    the stretches which are contiguous in memory.
    """
    op, shape = node.op, node.ins[0]
    if op.kind in _PRODUCTS:
        columns: float = node.out[-1]
        if op.kind is Kind.CONVOLUTION:
            groups = node.attrs.get("groups", 1)
            columns = min(shape[1], node.out[1]) / groups if groups > 1 else inf
        return op.terms(node.ins, node.attrs), columns
    dims = op.folds(node.ins, node.attrs)
    if not dims:
        return inf, inf
    length, at = 1, len(shape) - 1
    while at in dims:
        length *= shape[at]
        at -= 1
    number = prod([size for dim, size in enumerate(shape) if dim not in dims])
    return (length if len(shape) - 1 in dims else inf), number


def slowdown(node: ResolvedNode, calibration: Calibration) -> float:
    """Return how many times the full-speed time a node takes for its extents, at least 1."""
    kind = node.op.kind.value
    half_length = calibration.half_length.get(kind, 0.0)
    half_number = calibration.half_number.get(kind, 0.0)
    if not half_length and not half_number:
        return 1.0
    length, number = extents(node)
    # Sizes that are tried while a graph is scaled can be empty.
    return 1.0 + half_length / max(1.0, length) + half_number / max(1.0, number)
