"""Standardisation over dims, groups and channels, in eval mode."""

from __future__ import annotations

from opsgen.ops.entry import Kind, Op, spell

_INVARIANT = frozenset({"shift_invariant", "scale_invariant"})

OPS = (
    Op(
        "group_norm",
        Kind.NORMALIZATION,
        (spell("{self}({x})", "nn.GroupNorm({num_groups}, {C}{...}{dtype})"),),
        ranks=(3, 4, 5),
        layout="channels",
        attrs=lambda draw, ins: draw.pick(
            num_groups=[g for g in (2, 4, 8, 16, 32) if ins[0][1] % g == 0 and ins[0][1] > g],
            eps=(1e-5, 1e-5, 1e-6, 1e-3),
        ),
        defaults={"eps": 1e-5},
        params=lambda ins, attrs: 2 * ins[0][1],
        terms=lambda ins, attrs: ins[0][1] // attrs["num_groups"] * ins[0][2],
        passes=2.0,
        props=_INVARIANT,
    ),
    Op(
        "layer_norm",
        Kind.NORMALIZATION,
        (spell("{self}({x})", "nn.LayerNorm({D}{...}{dtype})"),),
        layout="features",
        attrs=lambda draw, ins: draw.pick(eps=(1e-5, 1e-5, 1e-6), bias=(True, True, False)),
        defaults={"eps": 1e-5, "bias": True},
        params=lambda ins, attrs: (1 + attrs["bias"]) * ins[0][-1],
        terms=lambda ins, attrs: ins[0][-1],
        passes=2.0,
        props=_INVARIANT,
    ),
)
