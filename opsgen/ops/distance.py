"""Distances and similarities of vectors."""

from __future__ import annotations

from math import prod
from typing import Any

from opsgen.ops.dims import Shape
from opsgen.ops.entry import Attrs, Draw, Kind, Op, Operand, Shapes, spell
from opsgen.ops.intervals import NEAR_SIGNED_UNIT, NONNEGATIVE
from opsgen.ops.reduction import folded_shape, folded_terms, single_dims


def _same(_draw: Draw, ins: Shapes, _attrs: Attrs) -> tuple[Operand, ...]:
    return (Operand(ins[0]),)


def _last_terms(ins: Shapes, _attrs: Attrs) -> int:
    return ins[0][-1]


def _distance(name: str, *calls: str, init: str | None = None, **fields: Any) -> Op:
    module = (spell("{self}({x}, {y})", init),) if init else ()
    settings: dict[str, Any] = {
        "layout": "features",
        "operands": _same,
        "terms": _last_terms,
        "flops": lambda ins, attrs, out: 3 * prod(ins[0]),
        **fields,
    }
    return Op(name, Kind.DISTANCE, (*module, *[spell(call) for call in calls]), **settings)


def _cdist_attrs(draw: Draw, _ins: Shapes) -> Attrs | None:
    size, p = draw.size("num_others", (64, 128, 256, 512, 1024)), draw.pick(p=(2.0, 2.0, 1.0))
    return None if size is None or p is None else {**p, **size}


def _cdist_operands(_draw: Draw, ins: Shapes, attrs: Attrs) -> tuple[Operand, ...]:
    return (Operand((*ins[0][:-2], attrs["num_others"], ins[0][-1]), name="others"),)


def _pdist_out(ins: Shapes, _attrs: Attrs) -> Shape:
    rows = ins[0][0]
    return (rows * (rows - 1) // 2,)


def _along(draw: Draw, ins: Shapes) -> Attrs | None:
    return draw.pick(dim=single_dims(ins[0]))


def _fold_out(ins: Shapes, attrs: Attrs) -> Shape:
    return folded_shape(ins, {**attrs, "keepdim": False})


def _pair_attrs(draw: Draw, ins: Shapes) -> Attrs | None:
    return draw.pick(p=(2.0, 2.0, 1.0, 3.0), keepdim=(False, False, True))


def _pair_out(ins: Shapes, attrs: Attrs) -> Shape:
    return folded_shape(ins, {**attrs, "dim": -1})


OPS = (
    _distance(
        "cdist",
        "torch.cdist({x}, {y}{...})",
        ranks=(2, 3),
        attrs=_cdist_attrs,
        operands=_cdist_operands,
        defaults={"p": 2.0},
        out=lambda ins, attrs: (*ins[0][:-1], attrs["num_others"]),
        flops=lambda ins, attrs, out: 3 * prod(out) * ins[0][-1],
        is_full_precision=True,
        range=NONNEGATIVE,
    ),
    Op(
        "pdist",
        Kind.DISTANCE,
        (spell("F.pdist({x}{...})"), spell("torch.pdist({x}{...})")),
        ranks=(2,),
        layout="features",
        attrs=lambda draw, ins: draw.pick(p=(2.0, 1.0)) if ins[0][0] > 2 else None,
        out=_pdist_out,
        defaults={"p": 2.0},
        terms=_last_terms,
        flops=lambda ins, attrs, out: 3 * prod(out) * ins[0][-1],
        is_full_precision=True,
        range=NONNEGATIVE,
        props=frozenset({"even", "shift_invariant"}),
        folds=lambda ins, attrs: (0,),
    ),
    _distance(
        "pairwise_distance",
        "F.pairwise_distance({x}, {y}{...})",
        init="nn.PairwiseDistance({...})",
        attrs=_pair_attrs,
        defaults={"p": 2.0, "keepdim": False},
        out=_pair_out,
        range=NONNEGATIVE,
        passes=3.0,
    ),
    _distance(
        "cosine_similarity",
        "F.cosine_similarity({x}, {y}, dim={dim})",
        "torch.cosine_similarity({x}, {y}, dim={dim})",
        init="nn.CosineSimilarity(dim={dim})",
        attrs=_along,
        out=_fold_out,
        terms=folded_terms,
        layout="any",
        range=NEAR_SIGNED_UNIT,
        passes=3.0,
        props=frozenset({"commutative", "scale_invariant", "odd"}),
    ),
    _distance(
        "dist",
        "torch.dist({x}, {y}{...})",
        attrs=lambda draw, ins: draw.pick(p=(2.0, 2.0, 1.0, 3.0)),
        defaults={"p": 2.0},
        out=lambda ins, attrs: (),
        terms=lambda ins, attrs: prod(ins[0]),
        layout="any",
        range=NONNEGATIVE,
        passes=3.0,
        props=frozenset({"commutative"}),
    ),
    _distance(
        "vecdot",
        "torch.linalg.vecdot({x}, {y}, dim={dim})",
        attrs=_along,
        out=_fold_out,
        terms=folded_terms,
        layout="any",
        flops=lambda ins, attrs, out: 2 * prod(ins[0]),
        passes=2.0,
        props=frozenset({"commutative", "odd"}),
    ),
)
