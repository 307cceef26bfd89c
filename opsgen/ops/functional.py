"""Layers in their functional form: weights are inputs of the task, or made by other ops."""

from __future__ import annotations

from math import prod
from typing import Any

from opsgen.ops.dims import Shape
from opsgen.ops.entry import Attrs, Draw, Kind, Op, Operand, Shapes, spell
from opsgen.ops.intervals import of_first
from opsgen.ops.windows import fits, padding_choices, per_dim, window_counts, window_size

_CHANNELS = (8, 16, 32, 64, 96, 128, 192, 256)
_DEFAULTS: Attrs = {"stride": 1, "padding": 0, "dilation": 1, "groups": 1}
_INVARIANT = frozenset({"shift_invariant", "scale_invariant"})
_EPS = (1e-5, 1e-5, 1e-3)


def _conv_attrs(draw: Draw, ins: Shapes) -> Attrs | None:
    _, channels, *space = ins[0]
    attrs = draw.pick(
        kernel_size=(1, 3, 3, 5),
        stride=(1, 1, 2),
        dilation=(1, 1, 2),
        groups=[g for g in (1, 1, 2, 4) if channels % g == 0],
    )
    if attrs is None:
        return None
    padding = draw.pick(padding=padding_choices(attrs, len(space)))
    out = draw.size("out_channels", _CHANNELS, multiple_of=attrs["groups"])
    if padding is None or out is None or not fits(tuple(space), {**attrs, **padding}):
        return None
    return {**attrs, **padding, **out}


def _conv_terms(ins: Shapes, attrs: Attrs) -> int:
    channels: int = ins[0][1] // attrs["groups"]
    return channels * window_size(attrs["kernel_size"], len(ins[0]) - 2)


def _conv_weight(_draw: Draw, ins: Shapes, attrs: Attrs) -> tuple[Operand, ...]:
    window = per_dim(attrs["kernel_size"], len(ins[0]) - 2)
    shape = (attrs["out_channels"], ins[0][1] // attrs["groups"], *window)
    return (Operand(shape, name="weight"),)


def _grow_attrs(draw: Draw, ins: Shapes) -> Attrs | None:
    groups = [g for g in (1, 1, 2) if ins[0][1] % g == 0]
    attrs = draw.pick(kernel_size=(2, 3, 4), stride=(2, 2, 1), groups=groups)
    if attrs is None:
        return None
    out = draw.size("out_channels", _CHANNELS, multiple_of=attrs["groups"])
    return None if out is None else {**attrs, **out}


def _grown(ins: Shapes, attrs: Attrs) -> Shape:
    space = [(size - 1) * attrs["stride"] + attrs["kernel_size"] for size in ins[0][2:]]
    return (ins[0][0], attrs["out_channels"], *space)


def _grow_weight(_draw: Draw, ins: Shapes, attrs: Attrs) -> tuple[Operand, ...]:
    window = per_dim(attrs["kernel_size"], len(ins[0]) - 2)
    shape = (ins[0][1], attrs["out_channels"] // attrs["groups"], *window)
    return (Operand(shape, name="weight"),)


def _grow_flops(ins: Shapes, attrs: Attrs, _out: Shape) -> int:
    outs: int = attrs["out_channels"] // attrs["groups"]
    return 2 * prod(ins[0]) * outs * window_size(attrs["kernel_size"], len(ins[0]) - 2)


def _convolutions(dims: int) -> tuple[Op, ...]:
    shared: dict[str, Any] = {
        "ranks": (dims + 2,),
        "layout": "channels",
        "terms": _conv_terms,
        "props": frozenset({"odd"}),
    }
    return (
        Op(
            f"conv{dims}d_weight",
            Kind.CONVOLUTION,
            (
                spell(f"F.conv{dims}d({{x}}, {{y}}{{...}})"),
                spell(f"torch.conv{dims}d({{x}}, {{y}}{{...}})"),
            ),
            attrs=_conv_attrs,
            operands=_conv_weight,
            defaults=_DEFAULTS,
            out=lambda ins, attrs: (
                ins[0][0],
                attrs["out_channels"],
                *window_counts(ins[0][2:], attrs),
            ),
            flops=lambda ins, attrs, out: 2 * prod(out) * _conv_terms(ins, attrs),
            **shared,
        ),
        Op(
            f"conv_transpose{dims}d_weight",
            Kind.CONVOLUTION,
            (
                spell(f"F.conv_transpose{dims}d({{x}}, {{y}}{{...}})"),
                spell(f"torch.conv_transpose{dims}d({{x}}, {{y}}{{...}})"),
            ),
            attrs=_grow_attrs,
            operands=_grow_weight,
            defaults={"stride": 1, "groups": 1},
            out=_grown,
            flops=_grow_flops,
            **shared,
        ),
    )


def _norm(name: str, *calls: str, **fields: Any) -> Op:
    settings: dict[str, Any] = {"props": _INVARIANT, "defaults": {"eps": 1e-5}, **fields}
    return Op(
        name,
        Kind.NORMALIZATION,
        tuple(spell(call) for call in calls),
        flops=lambda ins, attrs, out: 5 * prod(out),
        passes=2.0,
        **settings,
    )


def _affine(dim: int) -> Any:
    """A weight and a bias as long as `dim`."""
    return lambda draw, ins, attrs: (
        Operand((ins[0][dim],), name="weight"),
        Operand((ins[0][dim],), name="bias"),
    )


def _eps_attrs(least: Any) -> Any:
    """Choose an epsilon where at least three values are folded."""
    return lambda draw, ins: draw.pick(eps=_EPS) if least(ins[0]) > 2 else None


def _batch_count(shape: Shape) -> int:
    return prod((shape[0], *shape[2:]))


_NORMS = (
    _norm(
        "layer_norm_weight",
        "F.layer_norm({x}, ({D},), {y}, {z}{...})",
        "torch.layer_norm({x}, ({D},), {y}, {z}{...})",
        layout="features",
        attrs=_eps_attrs(lambda shape: shape[-1]),
        operands=_affine(-1),
        terms=lambda ins, attrs: ins[0][-1],
        folds=lambda ins, attrs: (len(ins[0]) - 1,),
    ),
    _norm(
        "rms_norm_weight",
        "F.rms_norm({x}, ({D},), {y}, eps={eps})",
        "torch.rms_norm({x}, ({D},), {y}, eps={eps})",
        layout="features",
        attrs=_eps_attrs(lambda shape: shape[-1]),
        operands=lambda draw, ins, attrs: (Operand((ins[0][-1],), name="weight"),),
        defaults={},
        terms=lambda ins, attrs: ins[0][-1],
        props=frozenset({"scale_invariant", "odd"}),
        folds=lambda ins, attrs: (len(ins[0]) - 1,),
    ),
    _norm(
        "group_norm_weight",
        "F.group_norm({x}, {num_groups}, {y}, {z}{...})",
        "torch.group_norm({x}, {num_groups}, {y}, {z}{...})",
        ranks=(3, 4, 5),
        layout="channels",
        attrs=lambda draw, ins: draw.pick(
            num_groups=[g for g in (2, 4, 8, 16) if ins[0][1] % g == 0 and ins[0][1] > g],
            eps=_EPS,
        ),
        operands=_affine(1),
        terms=lambda ins, attrs: ins[0][1] // attrs["num_groups"] * prod(ins[0][2:]),
        folds=lambda ins, attrs: tuple(range(1, len(ins[0]))),
    ),
    _norm(
        "instance_norm_weight",
        "F.instance_norm({x}, weight={y}, bias={z}{...})",
        ranks=(3, 4, 5),
        layout="channels",
        attrs=_eps_attrs(lambda shape: prod(shape[2:])),
        operands=_affine(1),
        terms=lambda ins, attrs: prod(ins[0][2:]),
        folds=lambda ins, attrs: tuple(range(2, len(ins[0]))),
    ),
    _norm(
        "batch_norm_weight",
        "F.batch_norm({x}, None, None, {y}, {z}, training=True{...})",
        ranks=(3, 4, 5),
        layout="channels",
        attrs=_eps_attrs(_batch_count),
        operands=_affine(1),
        terms=lambda ins, attrs: _batch_count(ins[0]),
        folds=lambda ins, attrs: (0, *range(2, len(ins[0]))),
    ),
)


def _tokens(_draw: Draw, ins: Shapes, attrs: Attrs) -> tuple[Operand, ...]:
    shape = (attrs["num_rows"], attrs["num_tokens"])
    return (Operand(shape, dtype="int64", high=ins[0][0], name="tokens", can_join=False),)


def _token_attrs(draw: Draw, _ins: Shapes) -> Attrs | None:
    rows, tokens = draw.size("num_rows", (8, 16, 64)), draw.size("num_tokens", (32, 64, 128))
    return None if rows is None or tokens is None else {**rows, **tokens}


def _bag_attrs(draw: Draw, ins: Shapes) -> Attrs | None:
    sizes, mode = _token_attrs(draw, ins), draw.pick(mode=("mean", "sum", "max"))
    return None if sizes is None or mode is None else {**mode, **sizes}


_LOOKUPS = (
    Op(
        "embedding_lookup",
        Kind.INDEX,
        (spell("F.embedding({y}, {x})"),),
        ranks=(2,),
        layout="features",
        attrs=_token_attrs,
        operands=_tokens,
        out=lambda ins, attrs: (attrs["num_rows"], attrs["num_tokens"], ins[0][1]),
        flops=lambda ins, attrs, out: 0,
        range=of_first,
    ),
    Op(
        "embedding_bag_lookup",
        Kind.INDEX,
        (spell("F.embedding_bag({y}, {x}{...})"),),
        ranks=(2,),
        layout="features",
        attrs=_bag_attrs,
        operands=_tokens,
        defaults={"mode": "mean"},
        out=lambda ins, attrs: (attrs["num_rows"], ins[0][1]),
        terms=lambda ins, attrs: attrs["num_tokens"],
        flops=lambda ins, attrs, out: prod(out) * attrs["num_tokens"],
    ),
)

_PRELU = Op(
    "prelu_weight",
    Kind.POINTWISE,
    (spell("F.prelu({x}, {y})"), spell("torch.prelu({x}, {y})"), spell("{x}.prelu({y})")),
    ranks=(2, 3, 4, 5),
    layout="channels",
    operands=lambda draw, ins, attrs: (Operand((ins[0][1],), name="weight"),),
)

OPS = (
    *_convolutions(1),
    *_convolutions(2),
    *_convolutions(3),
    *_NORMS,
    *_LOOKUPS,
    _PRELU,
)
