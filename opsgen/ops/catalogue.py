"""The catalogue: all entries by name."""

from __future__ import annotations

from dataclasses import replace

from opsgen.ops import (
    activation,
    attention,
    binary,
    blocks,
    comparison,
    convolution,
    distance,
    functional,
    index,
    layout,
    loss,
    matmul,
    normalization,
    outer,
    pointwise,
    pooling,
    recurrent,
    reduction,
    resample,
    scan,
    softmax,
    sort,
    special,
    transform,
)
from opsgen.ops.determinism import NOT_REPEATABLE_BACKWARD
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
    special,
    comparison,
    outer,
    recurrent,
    transform,
    functional,
    blocks,
)


def _collect() -> dict[str, Op]:
    ops: dict[str, Op] = {}
    for module in _FILES:
        for op in module.OPS:
            assert op.name not in ops, f"two catalogue entries are called {op.name}"
            repeats = op.is_deterministic and op.name not in NOT_REPEATABLE_BACKWARD
            ops[op.name] = replace(op, is_backward_deterministic=repeats)
    return dict(sorted(ops.items()))


CATALOGUE: dict[str, Op] = _collect()

BLOCK_OPS = frozenset(op.name for op in blocks.OPS)
"""Entries that serve composites only: plans of single ops and stacks leave them out."""
