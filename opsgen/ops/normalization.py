"""Standardisation over dims, groups and channels.

Batch norms fold the batch's own statistics in train and in eval mode alike
(`track_running_stats=False`): with fresh running statistics of 0 and 1 an
eval-mode batch norm would return its input. `batch_norm_inference` takes the
running statistics as inputs instead.
"""

from __future__ import annotations

from math import prod
from typing import Any

from opsgen.ops.dims import Shape
from opsgen.ops.entry import Attrs, Draw, Kind, Op, Operand, Shapes, spell
from opsgen.ops.intervals import (
    AWAY_FROM_ZERO,
    NEAR_SIGNED_UNIT,
    NONNEGATIVE,
    Interval,
    of_first_with_zero,
)
from opsgen.ops.reduction import folded_terms, single_dims

_INVARIANT = frozenset({"shift_invariant", "scale_invariant"})
_STANDARD = _INVARIANT | {"zero_mean", "unit_variance"}
_EPS = (1e-5, 1e-5, 1e-6, 1e-3)


def _norm(name: str, init: str, **fields: Any) -> Op:
    settings: dict[str, Any] = {"passes": 2.0, "props": _STANDARD, **fields}
    return Op(
        name,
        Kind.NORMALIZATION,
        (spell("{self}({x})", init),),
        flops=lambda ins, attrs, out: 5 * prod(out),
        **settings,
    )


def _from(first: int) -> Any:
    """Folds all dims from `first` on; a negative one counts from the end."""
    return lambda ins, attrs: tuple(range(first % len(ins[0]), len(ins[0])))


def _batch_count(shape: Shape) -> int:
    return prod((shape[0], *shape[2:]))


def _batch_attrs(draw: Draw, ins: Shapes) -> Attrs | None:
    # A variance of one value is 0, and torch refuses it.
    if _batch_count(ins[0]) < 2:
        return None
    return draw.pick(eps=_EPS[:3], affine=(True, True, False))


def _batch_norm(dims: int) -> Op:
    return _norm(
        f"batch_norm{dims}d",
        f"nn.BatchNorm{dims}d({{C}}{{...}}, track_running_stats=False{{dtype}})",
        ranks=(2, 3) if dims == 1 else (dims + 2,),
        layout="channels",
        attrs=_batch_attrs,
        defaults={"eps": 1e-5, "affine": True},
        params=lambda ins, attrs: 2 * ins[0][1] * attrs["affine"],
        terms=lambda ins, attrs: _batch_count(ins[0]),
        folds=lambda ins, attrs: (0, *range(2, len(ins[0]))),
    )


def _statistics(_draw: Draw, ins: Shapes, _attrs: Attrs) -> tuple[Operand, ...]:
    per_channel = (ins[0][1],)
    return (
        Operand(per_channel, name="running_mean"),
        Operand(per_channel, AWAY_FROM_ZERO, name="running_var"),
    )


def _instance_attrs(draw: Draw, ins: Shapes) -> Attrs | None:
    if prod(ins[0][2:]) < 2:
        return None
    return draw.pick(eps=_EPS, affine=(False, False, True))


def _instance_norm(dims: int) -> Op:
    return _norm(
        f"instance_norm{dims}d",
        f"nn.InstanceNorm{dims}d({{C}}{{...}}{{dtype}})",
        ranks=(dims + 2,),
        layout="channels",
        attrs=_instance_attrs,
        defaults={"eps": 1e-5, "affine": False},
        params=lambda ins, attrs: 2 * ins[0][1] * attrs["affine"],
        terms=lambda ins, attrs: prod(ins[0][2:]),
        folds=_from(2),
    )


def _group_attrs(draw: Draw, ins: Shapes) -> Attrs | None:
    channels = ins[0][1]
    return draw.pick(
        num_groups=[g for g in (2, 4, 8, 16, 32) if channels % g == 0 and channels > g],
        eps=_EPS,
        affine=(True, True, True, False),
    )


def _layer_attrs(draw: Draw, ins: Shapes) -> Attrs | None:
    # Two equal values in a row of two always come out as -1 and 1.
    if ins[0][-1] < 3:
        return None
    attrs = draw.pick(eps=_EPS, elementwise_affine=(True, True, True, False))
    if attrs is None:
        return None
    biases = (True, True, False) if attrs["elementwise_affine"] else (True,)
    bias = draw.pick(bias=biases)
    return None if bias is None else {**attrs, **bias}


def _layer_norm(name: str, folded: int, shape: str, ranks: tuple[int, ...]) -> Op:
    """Layer norm over the last `folded` dims, which `shape` writes."""
    return _norm(
        name,
        f"nn.LayerNorm({shape}{{...}}{{dtype}})",
        ranks=ranks,
        layout="features" if folded < 3 else "channels",
        attrs=_layer_attrs,
        defaults={"eps": 1e-5, "elementwise_affine": True, "bias": True},
        refs=lambda ins, attrs: {"H": ins[0][-2]},
        params=lambda ins, attrs: (
            (1 + attrs["bias"]) * attrs["elementwise_affine"] * prod(ins[0][-folded:])
        ),
        terms=lambda ins, attrs: prod(ins[0][-folded:]),
        folds=_from(-folded),
    )


def _rms_attrs(draw: Draw, ins: Shapes) -> Attrs | None:
    if ins[0][-1] < 3:
        return None
    return draw.pick(eps=(1e-6, 1e-6, 1e-5), elementwise_affine=(True, True, False))


def _normalize_attrs(draw: Draw, ins: Shapes) -> Attrs | None:
    return draw.pick(dim=single_dims(ins[0]), p=(2.0, 2.0, 1.0))


def _local_attrs(draw: Draw, ins: Shapes) -> Attrs | None:
    return draw.pick(
        size=[size for size in (3, 5, 7) if size <= ins[0][1]],
        alpha=(0.1, 0.5, 1.0),
        beta=(0.75, 0.75, 0.5),
        k=(1.0, 1.0, 2.0),
    )


def _renorm_attrs(draw: Draw, ins: Shapes) -> Attrs | None:
    dims = [dim for dim in range(len(ins[0])) if ins[0][dim] > 1]
    return draw.pick(dim=dims, p=(2.0, 2.0, 1.0), maxnorm=(0.5, 1.0, 5.0))


OPS = (
    _batch_norm(1),
    _batch_norm(2),
    _batch_norm(3),
    Op(
        "batch_norm_inference",
        Kind.NORMALIZATION,
        (spell("F.batch_norm({x}, {y}, {z}{...})"),),
        ranks=(2, 3, 4, 5),
        layout="channels",
        attrs=lambda draw, ins: draw.pick(eps=_EPS[:3]),
        operands=_statistics,
        defaults={"eps": 1e-5},
    ),
    _instance_norm(1),
    _instance_norm(2),
    _instance_norm(3),
    _norm(
        "group_norm",
        "nn.GroupNorm({num_groups}, {C}{...}{dtype})",
        ranks=(3, 4, 5),
        layout="channels",
        attrs=_group_attrs,
        defaults={"eps": 1e-5, "affine": True},
        params=lambda ins, attrs: 2 * ins[0][1] * attrs["affine"],
        terms=lambda ins, attrs: ins[0][1] // attrs["num_groups"] * prod(ins[0][2:]),
        folds=_from(1),
    ),
    _layer_norm("layer_norm", 1, "{D}", (2, 3, 4)),
    _layer_norm("layer_norm_matrix", 2, "({H}, {D})", (3, 4)),
    _layer_norm("layer_norm_sample", 3, "({C}, {H}, {D})", (4,)),
    _norm(
        "rms_norm",
        "nn.RMSNorm({D}, eps={eps}{...}{dtype})",
        layout="features",
        attrs=_rms_attrs,
        defaults={"elementwise_affine": True},
        params=lambda ins, attrs: ins[0][-1] * attrs["elementwise_affine"],
        terms=lambda ins, attrs: ins[0][-1],
        props=frozenset({"scale_invariant", "unit_norm", "odd"}),
        folds=_from(-1),
    ),
    Op(
        "local_response_norm",
        Kind.NORMALIZATION,
        (
            spell("{self}({x})", "nn.LocalResponseNorm({size}{...})"),
            spell("F.local_response_norm({x}, {size}{...})"),
        ),
        is_full_precision=True,
        needs_contiguous=True,
        ranks=(3, 4, 5),
        layout="channels",
        attrs=_local_attrs,
        defaults={"alpha": 1e-4, "beta": 0.75, "k": 1.0},
        terms=lambda ins, attrs: attrs["size"],
        flops=lambda ins, attrs, out: (attrs["size"] + 5) * prod(out),
        passes=10.0,
        range=of_first_with_zero,
        props=frozenset({"odd"}),
    ),
    Op(
        "renorm",
        Kind.NORMALIZATION,
        (
            spell("torch.renorm({x}, {p}, {dim}, {maxnorm})"),
            spell("{x}.renorm({p}, {dim}, {maxnorm})"),
        ),
        attrs=_renorm_attrs,
        # The norm is that of a slice: it adds up over all dims but `dim`.
        terms=lambda ins, attrs: prod(ins[0]) // ins[0][attrs["dim"]],
        flops=lambda ins, attrs, out: 3 * prod(out),
        passes=2.0,
        range=of_first_with_zero,
        props=frozenset({"odd", "idempotent"}),
    ),
    Op(
        "normalize",
        Kind.NORMALIZATION,
        (spell("F.normalize({x}, p={p}, dim={dim})"),),
        ranks=(2, 3, 4, 5),
        attrs=_normalize_attrs,
        terms=folded_terms,
        flops=lambda ins, attrs, out: 3 * prod(out),
        passes=2.0,
        range=lambda ranges, attrs: (
            Interval(0.0, NEAR_SIGNED_UNIT.high)
            if ranges[0].within(NONNEGATIVE)
            else NEAR_SIGNED_UNIT
        ),
        props=frozenset({"scale_invariant", "unit_norm", "keeps_order", "idempotent", "odd"}),
    ),
)
