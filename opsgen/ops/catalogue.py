"""The catalogue: all entries by name, and a digest that changes with them."""

from __future__ import annotations

import hashlib
from pathlib import Path

from opsgen.ops import (
    activation,
    attention,
    binary,
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
)


def _collect() -> dict[str, Op]:
    ops: dict[str, Op] = {}
    for module in _FILES:
        for op in module.OPS:
            assert op.name not in ops, f"two catalogue entries are called {op.name}"
            ops[op.name] = op
    return dict(sorted(ops.items()))


CATALOGUE: dict[str, Op] = _collect()


def generator_digest() -> str:
    """Return a digest of all source that determines which tasks a seed gives.

    The catalogue, the sampler and the renderer are hashed as text: a change of any of them
    may change tasks, and runs made before it are kept apart from runs made after it.
    """
    root = Path(__file__).parents[1]
    state = hashlib.blake2b(digest_size=8)
    for room in ("ops", "sampler", "render"):
        for path in sorted((root / room).glob("*.py")):
            state.update(path.read_bytes())
    return state.hexdigest()
