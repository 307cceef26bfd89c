"""How many ops the catalogue has, counted so that nothing counts twice.

What counts as an op is an entry that computes. Left out are views (entries
that move no memory), entries that serve composites only, entries whose result
does not repeat on a GPU and that therefore no task holds, and variants: the
entries below, which compute what another entry does with a number in place of
a tensor, a transposed or further operand, or weights that are operands
instead of parameters. Creation of tensors is no entry at all, and aliases are
spellings of one entry. A qualified name counts once, whatever number of
entries it can write, and only if it writes an entry that tasks can hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from opsgen.ops.catalogue import BLOCK_OPS, CATALOGUE
from opsgen.ops.entry import Op

VARIANTS: dict[str, str] = {
    "add_scalar": "add",
    "add_scaled": "add",
    "batch_norm_weight": "batch_norm2d",
    "bmm_transposed": "bmm",
    "clamp_max": "clamp",
    "clamp_min": "clamp",
    "conv1d_weight": "conv1d",
    "conv2d_weight": "conv2d",
    "conv3d_weight": "conv3d",
    "conv_transpose1d_weight": "conv_transpose1d",
    "conv_transpose2d_weight": "conv_transpose2d",
    "conv_transpose3d_weight": "conv_transpose3d",
    "cross_attention": "attention",
    "cross_entropy_soft": "cross_entropy",
    "cube": "power",
    "embedding_bag_lookup": "embedding_bag",
    "embedding_lookup": "embedding",
    "group_norm_weight": "group_norm",
    "head_scores": "bmm",
    "instance_norm_weight": "instance_norm2d",
    "kl_div_log_target": "kl_div",
    "layer_norm_matrix": "layer_norm",
    "layer_norm_sample": "layer_norm",
    "layer_norm_weight": "layer_norm",
    "lerp_weighted": "lerp",
    "linear_weight": "linear",
    "linear_weight_bias": "linear",
    "masked_attention": "attention",
    "matmul_chain": "matmul",
    "matmul_left": "matmul",
    "mm": "matmul",
    "mul_scalar": "mul",
    "norm_max": "norm",
    "poisson_nll_loss_rate": "poisson_nll_loss",
    "prelu_weight": "prelu",
    "rms_norm_weight": "rms_norm",
    "rsub_scalar": "sub",
    "sub_scaled": "sub",
}
"""Entries that compute what another one does, and which."""


def is_view(op: Op) -> bool:
    """Tell whether an op moves and computes nothing."""
    return op.passes == 0.0


def reachable_ops(catalogue: Mapping[str, Op] = CATALOGUE) -> list[Op]:
    """Return the entries that tasks of single ops and stacks can hold, views left out."""
    return [
        op
        for op in catalogue.values()
        if op.is_deterministic and op.name not in BLOCK_OPS and not is_view(op)
    ]


def computing_ops(catalogue: Mapping[str, Op] = CATALOGUE) -> list[Op]:
    """Return the entries that count as ops of their own."""
    return [op for op in reachable_ops(catalogue) if op.name not in VARIANTS]


def qualified_names(ops: Iterable[Op]) -> list[str]:
    """Return the torch names under which `ops` can be written, each once."""
    return sorted({spelling.name for op in ops for spelling in op.spellings})
