"""The catalogue: all entries by name."""

from __future__ import annotations

from opsgen.ops import (
    activation,
    attention,
    binary,
    blocks,
    convolution,
    distance,
    index,
    layout,
    loss,
    matmul,
    normalization,
    pointwise,
    pooling,
    reduction,
    resample,
    scan,
    softmax,
    sort,
)
from opsgen.ops.entry import Op

_FILES = (
    activation,
    pointwise,
    binary,
    reduction,
    softmax,
    normalization,
    pooling,
    convolution,
    matmul,
    layout,
    index,
    scan,
    sort,
    resample,
    loss,
    distance,
    attention,
    blocks,
)


def _collect() -> dict[str, Op]:
    ops: dict[str, Op] = {}
    for module in _FILES:
        for op in module.OPS:
            assert op.name not in ops, f"two catalogue entries are called {op.name}"
            ops[op.name] = op
    return dict(sorted(ops.items()))


CATALOGUE: dict[str, Op] = _collect()

BLOCK_OPS = frozenset(op.name for op in blocks.OPS)
"""Entries that serve composites only: plans of single ops and stacks leave them out."""
