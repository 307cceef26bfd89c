"""Scaled dot-product attention over rank-3 and rank-4 queries, keys and values."""

from __future__ import annotations

from math import prod
from typing import Any

from opsgen.ops.dims import Shape
from opsgen.ops.entry import Attrs, Draw, Kind, Op, Operand, Shapes, spell
from opsgen.ops.intervals import of_all

_CALL = "F.scaled_dot_product_attention"


def _self_attrs(draw: Draw, ins: Shapes) -> Attrs | None:
    return draw.pick(is_causal=(False, True), scale=(None, None, 0.1)) if ins[0][-2] > 1 else None


def _cross_attrs(draw: Draw, _ins: Shapes) -> Attrs | None:
    size = draw.size("num_keys", (64, 128, 256, 512, 1024))
    scale = draw.pick(scale=(None, None, 0.1))
    return None if size is None or scale is None else {**scale, **size}


def _self_operands(_draw: Draw, ins: Shapes, _attrs: Attrs) -> tuple[Operand, ...]:
    return (Operand(ins[0], name="key"), Operand(ins[0], name="value"))


def _cross_operands(_draw: Draw, ins: Shapes, attrs: Attrs) -> tuple[Operand, ...]:
    shape = (*ins[0][:-2], attrs["num_keys"], ins[0][-1])
    return (Operand(shape, name="key"), Operand(shape, name="value"))


def _masked_operands(draw: Draw, ins: Shapes, attrs: Attrs) -> tuple[Operand, ...]:
    # Additive: a boolean mask may hide a whole row, whose softmax is then NaN.
    mask = Operand((ins[0][-2], attrs["num_keys"]), name="mask", can_join=False)
    return (*_cross_operands(draw, ins, attrs), mask)


def _num_keys(ins: Shapes, attrs: Attrs) -> int:
    keys: int = attrs.get("num_keys", ins[0][-2])
    return keys


def _terms(ins: Shapes, attrs: Attrs) -> int:
    return max(ins[0][-1], _num_keys(ins, attrs))


def _flops(ins: Shapes, attrs: Attrs, out: Shape) -> int:
    # A causal mask halves the work of some kernels; the formula counts all of it.
    return 4 * prod(out) * _num_keys(ins, attrs)


def _attention(name: str, call: str, **fields: Any) -> Op:
    return Op(
        name,
        Kind.ATTENTION,
        (spell(call),),
        ranks=(3, 4),
        layout="features",
        terms=_terms,
        flops=_flops,
        range=lambda ranges, attrs: of_all(ranges[2:3], attrs),
        **fields,
    )


def _group_attrs(draw: Draw, ins: Shapes) -> Attrs | None:
    size = draw.size("num_keys", (64, 128, 256, 512, 1024))
    heads = ins[0][1]
    groups = draw.pick(group=[g for g in (2, 3, 4, 8) if heads % g == 0])
    return None if size is None or groups is None else {**groups, **size}


def _group_operands(_draw: Draw, ins: Shapes, attrs: Attrs) -> tuple[Operand, ...]:
    batch, heads, _, width = ins[0]
    shape = (batch, heads // attrs["group"], attrs["num_keys"], width)
    return (Operand(shape, name="key"), Operand(shape, name="value"))


def _head_attrs(draw: Draw, ins: Shapes) -> Attrs | None:
    width = ins[0][-1]
    return draw.pick(num_heads=[n for n in (1, 2, 4, 8, 12, 16) if width % n == 0 and width > n])


_MULTIHEAD = Op(
    "multihead_attention",
    Kind.ATTENTION,
    (
        spell(
            "{self}({x}, {x}, {x}, need_weights=False)[0]",
            "nn.MultiheadAttention({D}, {num_heads}, batch_first=True{dtype})",
        ),
    ),
    ranks=(3,),
    layout="features",
    attrs=_head_attrs,
    params=lambda ins, attrs: 4 * ins[0][-1] * (ins[0][-1] + 1),
    terms=lambda ins, attrs: max(ins[0][-2:]),
    flops=lambda ins, attrs, out: prod(out) * (8 * ins[0][-1] + 4 * ins[0][-2]),
    passes=6.0,
)

OPS = (
    _MULTIHEAD,
    Op(
        "grouped_attention",
        Kind.ATTENTION,
        (spell(f"{_CALL}({{x}}, {{y}}, {{z}}, enable_gqa=True)"),),
        ranks=(4,),
        layout="features",
        attrs=_group_attrs,
        operands=_group_operands,
        terms=_terms,
        flops=_flops,
        range=lambda ranges, attrs: of_all(ranges[2:3], attrs),
    ),
    _attention(
        "attention",
        f"{_CALL}({{x}}, {{y}}, {{z}}{{...}})",
        attrs=_self_attrs,
        operands=_self_operands,
        defaults={"is_causal": False, "scale": None},
    ),
    _attention(
        "cross_attention",
        f"{_CALL}({{x}}, {{y}}, {{z}}{{...}})",
        attrs=_cross_attrs,
        operands=_cross_operands,
        defaults={"scale": None},
    ),
    _attention(
        "masked_attention",
        f"{_CALL}({{x}}, {{y}}, {{z}}, attn_mask={{w}}{{...}})",
        attrs=_cross_attrs,
        operands=_masked_operands,
        defaults={"scale": None},
    ),
)
