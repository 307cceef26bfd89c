"""What the building blocks of models need beside the other entries.

Heads, rotations, masks of position, causal convolutions, patches. Alone each
moves or scales little, so that plans of single ops and of stacks leave them
out; composites are made of them.
"""

from __future__ import annotations

from math import prod
from typing import Any

from opsgen.ops.dims import Shape
from opsgen.ops.entry import Attrs, Draw, Kind, Op, Operand, Shapes, Spelling, spell
from opsgen.ops.intervals import (
    NONNEGATIVE,
    NONPOSITIVE,
    REAL,
    UNIT,
    Interval,
    hull,
    minus,
    of_first,
    of_first_with_zero,
    plus,
    times,
)

HIDDEN = -10000.0
"""Score of a masked position: its exponential is 0 in every dtype, and float16 holds it."""

_CHANNELS = (64, 96, 128, 192, 256, 384, 768)


def _free(_ins: Shapes, _attrs: Attrs, _out: Shape) -> int:
    return 0


def _view(name: str, call: str, qualified: str | None = None, **fields: Any) -> Op:
    settings: dict[str, Any] = {"range": of_first, "flops": _free, **fields}
    return Op(name, Kind.LAYOUT, (spell(call, name=qualified),), **settings)


def _part_attrs(draw: Draw, ins: Shapes) -> Attrs | None:
    dims = (-1, *range(1, len(ins[0]) - 1))
    attrs = draw.pick(parts=(2, 2, 3, 4), dim=dims)
    if attrs is None or ins[0][attrs["dim"]] % attrs["parts"]:
        return None
    index = draw.pick(index=range(attrs["parts"]))
    return None if index is None else {**attrs, **index}


def _part_out(ins: Shapes, attrs: Attrs) -> Shape:
    cut = attrs["dim"] % len(ins[0])
    return tuple(s // attrs["parts"] if dim == cut else s for dim, s in enumerate(ins[0]))


def _heads_attrs(draw: Draw, ins: Shapes) -> Attrs | None:
    width = ins[0][-1]
    return draw.pick(num_heads=[n for n in (2, 4, 6, 8, 12, 16) if width % n == 0 and width > n])


def _heads_out(ins: Shapes, attrs: Attrs) -> Shape:
    batch, length, width = ins[0]
    return (batch, attrs["num_heads"], length, width // attrs["num_heads"])


def _merged(ins: Shapes, _attrs: Attrs) -> Shape:
    batch, heads, length, width = ins[0]
    return (batch, length, width * heads)


def _even_width(_draw: Draw, ins: Shapes) -> Attrs | None:
    return {} if ins[0][-1] % 2 == 0 else None


def _both_signs(ranges: tuple[Interval, ...], _attrs: Attrs) -> Interval:
    return hull(ranges[0], minus(ranges[0]))


def _with_hidden(ranges: tuple[Interval, ...], _attrs: Attrs) -> Interval:
    return hull(ranges[0], Interval(HIDDEN, HIDDEN))


# How a further operand meets the first: which of its dims it has.
_MEETINGS: dict[int, tuple[str, ...]] = {
    3: ("matrix", "sample"),
    4: ("matrix", "tokens", "planes", "heads", "pooled"),
}


def _meeting_shape(shape: Shape, meets: str) -> Shape:
    return {
        "matrix": shape[-2:],
        "sample": (shape[0], 1, shape[-1]),
        "tokens": (shape[0], 1, *shape[2:]),
        "planes": shape[1:],
        "heads": (shape[1], 1, 1),
        "pooled": (*shape[:2], 1, 1),
    }[meets]


def _broadcast(name: str, *spellings: Spelling, **fields: Any) -> Op:
    return Op(
        name,
        Kind.BINARY,
        spellings,
        ranks=(3, 4),
        attrs=lambda draw, ins: draw.pick(meets=_MEETINGS[len(ins[0])]),
        operands=lambda draw, ins, attrs: (Operand(_meeting_shape(ins[0], attrs["meets"])),),
        **fields,
    )


def _slopes(_draw: Draw, ins: Shapes, _attrs: Attrs) -> tuple[Operand, ...]:
    return (Operand((ins[0][1], 1, 1), UNIT, name="slopes", can_join=False),)


def _causal_outputs(ins: Shapes, attrs: Attrs) -> int:
    batch, channels, length = ins[0]
    positions: int = batch * channels * (length + attrs["kernel_size"] - 1)
    return positions


def _patch_attrs(draw: Draw, ins: Shapes) -> Attrs | None:
    fitting = [size for size in (2, 4, 8, 14, 16) if size <= min(ins[0][2:])]
    attrs = draw.pick(patch_size=fitting, bias=(True, True, False))
    out = draw.size("out_channels", _CHANNELS)
    return None if attrs is None or out is None else {**attrs, **out}


def _patches(ins: Shapes, attrs: Attrs) -> Shape:
    batch, _, height, width = ins[0]
    size = attrs["patch_size"]
    return (batch, attrs["out_channels"], height // size, width // size)


def _patch_terms(ins: Shapes, attrs: Attrs) -> int:
    terms: int = ins[0][1] * attrs["patch_size"] * attrs["patch_size"]
    return terms


_VIEWS = (
    _view(
        "chunk_part",
        "torch.chunk({x}, {parts}, dim={dim})[{index}]",
        attrs=_part_attrs,
        out=_part_out,
        passes=0.0,
    ),
    _view(
        "split_heads",
        "{x}.unflatten(-1, ({num_heads}, -1)).transpose(1, 2).contiguous()",
        ranks=(3,),
        attrs=_heads_attrs,
        out=_heads_out,
    ),
    _view("merge_heads", "{x}.transpose(1, 2).flatten(2)", ranks=(4,), out=_merged),
    _view(
        "rotate_half",
        "torch.cat([-{x}.chunk(2, dim=-1)[1], {x}.chunk(2, dim=-1)[0]], dim=-1)",
        ranks=(3, 4),
        attrs=_even_width,
        range=_both_signs,
        passes=1.5,
        props=frozenset({"odd"}),
    ),
    _view(
        "token_shift",
        "F.pad({x}, (0, 0, 1, -1))",
        ranks=(3,),
        range=of_first_with_zero,
        props=frozenset({"odd"}),
    ),
    _view(
        "causal_mask",
        f"{{x}}.masked_fill({{x}}.new_ones({{x}}.shape[-2:]).tril() == 0, {HIDDEN})",
        ranks=(3, 4),
        range=_with_hidden,
        props=frozenset({"idempotent"}),
    ),
    _view(
        "window_mask",
        f"{{x}}.masked_fill({{x}}.new_ones({{x}}.shape[-2:]).tril().triu({{lowest}}) == 0, {HIDDEN})",
        ranks=(3, 4),
        attrs=lambda draw, ins: draw.pick(lowest=(-3, -15, -63, -127, -255)),
        range=_with_hidden,
        props=frozenset({"idempotent"}),
    ),
)

_ARITHMETIC = (
    _broadcast(
        "add_broadcast",
        spell("{x} + {y}", name="torch.add"),
        spell("torch.add({x}, {y})"),
        range=lambda ranges, attrs: plus(ranges[0], ranges[1]),
    ),
    _broadcast(
        "mul_broadcast",
        spell("{x} * {y}", name="torch.mul"),
        spell("torch.mul({x}, {y})"),
        range=lambda ranges, attrs: times(ranges[0], ranges[1]),
    ),
    Op(
        "times_constant",
        Kind.POINTWISE,
        (spell("{x} * {factor}", name="torch.mul"),),
        ranks=(2, 3, 4),
        attrs=lambda draw, ins: draw.pick(factor=(8.0, 15.0, 20.0, 30.0, 50.0)),
        range=lambda ranges, attrs: ranges[0].image(lambda value: value * attrs["factor"]),
        props=frozenset({"increasing", "odd", "scale"}),
    ),
    Op(
        "over_constant",
        Kind.POINTWISE,
        (spell("{x} / {divisor}", name="torch.div"),),
        ranks=(2, 3, 4),
        attrs=lambda draw, ins: draw.pick(divisor=(8.0, 15.0, 20.0, 30.0, 50.0)),
        range=lambda ranges, attrs: ranges[0].image(lambda value: value / attrs["divisor"]),
        props=frozenset({"increasing", "odd", "scale"}),
    ),
    Op(
        "over_root_width",
        Kind.POINTWISE,
        (spell("{x} * {x}.shape[-1] ** -0.5", name="torch.mul"),),
        ranks=(2, 3, 4),
        range=of_first_with_zero,
        props=frozenset({"increasing", "odd", "scale"}),
    ),
    Op(
        "alibi",
        Kind.BINARY,
        (spell("{x} + {y} * torch.arange({x}.shape[-1], device={x}.device)", name="torch.add"),),
        ranks=(4,),
        operands=_slopes,
        range=lambda ranges, attrs: plus(ranges[0], Interval(0.0, REAL.high)),
    ),
    # exp(sums[i] - sums[j]) for j <= i: what is left at i of what came in at j, where the
    # input is the running sum of log decays (segsum in arXiv 2405.21060). The other half,
    # which may overflow, is cut off.
    Op(
        "segment_decay",
        Kind.BINARY,
        (
            spell("torch.exp({x}.unsqueeze(-1) - {x}.unsqueeze(-2)).tril()"),
            spell("({x}.unsqueeze(-1) - {x}.unsqueeze(-2)).exp().tril()", name="torch.exp"),
        ),
        ranks=(2, 3),
        out=lambda ins, attrs: (*ins[0], ins[0][-1]),
        flops=lambda ins, attrs, out: 2 * prod(out),
        domain=NONPOSITIVE,
        range=NONNEGATIVE,
        props=frozenset({"shift_invariant"}),
        folds=lambda ins, attrs: (len(ins[0]) - 1,),
    ),
    # log(x + 0.5) from 0 on and the log of a sigmoid below: values of a recurrence in the
    # log domain (arXiv 2410.01201, appendix B).
    Op(
        "log_positive",
        Kind.POINTWISE,
        (
            spell("torch.where({x} >= 0, torch.log(F.relu({x}) + 0.5), F.logsigmoid({x}))"),
            spell(
                "torch.where({x} < 0, F.logsigmoid({x}), ({x}.clamp(min=0.0) + 0.5).log())",
            ),
        ),
        ranks=(3,),
        flops=lambda ins, attrs, out: 8 * prod(out),
        passes=5.0,
    ),
    # What a recurrence h[t] = f[t] * h[t-1] + v[t] holds, from the running sums of log f and
    # from log v, without stepping (arXiv 2311.06281). The sums grow with the length, so that
    # half precision would lose the values in them.
    Op(
        "decayed_sum",
        Kind.SCAN,
        (
            spell("torch.exp({x} + torch.logcumsumexp({y} - {x}, dim=1))"),
            spell("({x} + ({y} - {x}).logcumsumexp(dim=1)).exp()", name="torch.exp"),
        ),
        ranks=(3,),
        layout="features",
        operands=lambda draw, ins, attrs: (Operand(ins[0], name="log_values"),),
        terms=lambda ins, attrs: ins[0][1],
        flops=lambda ins, attrs, out: 6 * prod(out),
        passes=4.0,
        domain=NONPOSITIVE,
        range=NONNEGATIVE,
        is_full_precision=True,
    ),
)

_CONTRACTIONS = (
    Op(
        "head_values",
        Kind.MATMUL,
        (
            spell("torch.matmul({x}, {y})"),
            spell("{x} @ {y}", name="torch.matmul"),
            spell('torch.einsum("bhij,bhjd->bhid", {x}, {y})'),
        ),
        ranks=(4,),
        layout="features",
        attrs=lambda draw, ins: draw.size("head_dim", (32, 64, 128)),
        operands=lambda draw, ins, attrs: (
            Operand((*ins[0][:-2], ins[0][-1], attrs["head_dim"]), name="value"),
        ),
        out=lambda ins, attrs: (*ins[0][:-1], attrs["head_dim"]),
        terms=lambda ins, attrs: ins[0][-1],
        flops=lambda ins, attrs, out: 2 * prod(out) * ins[0][-1],
        props=frozenset({"odd"}),
    ),
    Op(
        "causal_conv1d",
        Kind.CONVOLUTION,
        (
            spell(
                "{self}({x})[..., : {x}.shape[-1]]",
                "nn.Conv1d({C}, {C}, {kernel_size}, padding={reach}, groups={C}{...}{dtype})",
            ),
        ),
        ranks=(3,),
        layout="channels",
        attrs=lambda draw, ins: draw.pick(kernel_size=(3, 4), bias=(True, True, False)),
        defaults={"bias": True},
        refs=lambda ins, attrs: {"reach": attrs["kernel_size"] - 1},
        params=lambda ins, attrs: ins[0][1] * (attrs["kernel_size"] + attrs["bias"]),
        terms=lambda ins, attrs: attrs["kernel_size"],
        flops=lambda ins, attrs, out: 2 * attrs["kernel_size"] * _causal_outputs(ins, attrs),
    ),
    Op(
        "patch_conv2d",
        Kind.CONVOLUTION,
        (
            spell(
                "{self}({x})",
                "nn.Conv2d({C}, {out_channels}, {patch_size}, stride={patch_size}{...}{dtype})",
            ),
        ),
        ranks=(4,),
        layout="channels",
        attrs=_patch_attrs,
        defaults={"bias": True},
        out=_patches,
        params=lambda ins, attrs: (
            (_patch_terms(ins, attrs) + attrs["bias"]) * attrs["out_channels"]
        ),
        terms=_patch_terms,
        flops=lambda ins, attrs, out: 2 * prod(out) * _patch_terms(ins, attrs),
    ),
)

OPS = (*_VIEWS, *_ARITHMETIC, *_CONTRACTIONS)
