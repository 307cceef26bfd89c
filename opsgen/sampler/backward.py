"""What the backward of an op moves and computes, by kind, in closed form.

A gradient task asks for the gradients of its inputs alone, so parameters of
modules get none. The passes follow torch's eager formulas; what they leave
out is fitted by the factors in `Calibration.gradients`.
"""

from __future__ import annotations

from math import prod

from opsgen.ops import Kind
from opsgen.sampler.resolution import ResolvedNode

# Passes over the first input and over the output for the gradient of one argument: the
# gradient that comes in is read, what was saved is read, the gradient that goes out is written.
_PASSES: dict[Kind, tuple[float, float]] = {
    Kind.POINTWISE: (2.0, 1.0),
    Kind.BINARY: (1.0, 2.0),
    Kind.REDUCTION: (2.0, 1.0),
    Kind.SOFTMAX: (1.0, 2.0),
    Kind.NORMALIZATION: (3.0, 2.0),
    Kind.POOLING: (2.0, 3.0),
    Kind.CONVOLUTION: (1.0, 1.0),
    Kind.MATMUL: (1.0, 1.0),
    Kind.LAYOUT: (1.0, 1.0),
    Kind.INDEX: (2.0, 2.0),
    Kind.SCAN: (3.0, 3.0),
    Kind.SORT: (2.0, 3.0),
    Kind.RESAMPLE: (2.0, 1.0),
    Kind.LOSS: (3.0, 1.0),
    Kind.DISTANCE: (3.0, 2.0),
    Kind.ATTENTION: (1.0, 1.0),
    Kind.TRANSFORM: (3.0, 3.0),
}
# Attention computes its weights again before it differentiates them.
_RECOMPUTED = {Kind.ATTENTION: 1.25}


def backward_work(node: ResolvedNode, num_gradients: int) -> tuple[float, float]:
    """Return elements moved and operations of a node's backward.

    Args:
        node: The node.
        num_gradients: Arguments that get a gradient.
    """
    over_input, over_output = _PASSES[node.op.kind]
    largest = max((prod(shape) for shape in node.ins), default=0)
    moved = num_gradients * (over_input * largest + over_output * prod(node.out))
    # A product has another of the same size behind it for each gradient; the arithmetic of
    # the others counts as often as their passes, once.
    flops = num_gradients * node.op.flops(node.ins, node.attrs, node.out)
    return moved, flops * _RECOMPUTED.get(node.op.kind, 1.0)
