"""Which ops repeat bitwise on a GPU, forward and backward: a list made by hand.

No operator of torch carries a tag for atomics. The list follows the page of
`torch.use_deterministic_algorithms` (torch 2.13), in both of its parts: what
takes another kernel when that mode is on, and what raises. Forward, entries
say it themselves with `is_deterministic=False`; backward stands here, since
gradients are not part of an entry.

Two forward entries of that page are used all the same. `torch.cumsum` looks
back at other blocks only where a tensor has one dim, which no entry takes;
`nn.NLLLoss` adds up with atomics only over positions, whose reductions the
entries leave out.
"""

from __future__ import annotations

NOT_REPEATABLE_BACKWARD: dict[str, str] = {
    "adaptive_avg_pool2d": "torch.nn.AdaptiveAvgPool2d",
    "adaptive_avg_pool3d": "torch.nn.AdaptiveAvgPool3d",
    "adaptive_max_pool2d": "torch.nn.AdaptiveMaxPool2d",
    "avg_pool3d": "torch.nn.AvgPool3d",
    "embedding_bag": "torch.nn.EmbeddingBag",
    "embedding_bag_lookup": "torch.nn.EmbeddingBag",
    "gather": "torch.gather",
    "grid_sample": "torch.nn.functional.grid_sample",
    "grid_sample3d": "torch.nn.functional.grid_sample",
    "index_select": "torch.index_select",
    "interpolate_bicubic": "torch.nn.functional.interpolate",
    "interpolate_bilinear": "torch.nn.functional.interpolate",
    "interpolate_linear": "torch.nn.functional.interpolate",
    "interpolate_trilinear": "torch.nn.functional.interpolate",
    "max_pool3d": "torch.nn.MaxPool3d",
    "pad_reflect1d": "torch.nn.ReflectionPad1d",
    "pad_reflect2d": "torch.nn.ReflectionPad2d",
    "pad_reflect3d": "torch.nn.ReflectionPad3d",
    "pad_replicate1d": "torch.nn.ReplicationPad1d",
    "pad_replicate2d": "torch.nn.ReplicationPad2d",
    "pad_replicate3d": "torch.nn.ReplicationPad3d",
    "repeat_interleave": "torch.repeat_interleave",
    "nll_loss": "torch.nn.NLLLoss",
    "cross_entropy": "torch.nn.NLLLoss",
    # Gradients of a gather, like those above, though the page does not name them.
    "take": "torch.Tensor.put_",
    # Entries that pad by reflection or replication through `padding_mode`.
    **{
        f"{prefix}conv{dims}d": f"torch.nn.ReflectionPad{dims}d"
        for prefix in ("", "depthwise_")
        for dims in (1, 2, 3)
    },
}
"""Entries whose gradients do not repeat, each with the name on torch's page that says so."""
