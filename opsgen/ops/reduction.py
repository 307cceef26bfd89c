"""Folds over one or more dims."""

from __future__ import annotations

import math
from math import prod
from typing import Any

from opsgen.ops.dims import Shape
from opsgen.ops.entry import Attrs, Draw, Kind, Op, Shapes, named_dims, spell
from opsgen.ops.intervals import (
    NONNEGATIVE,
    Interval,
    of_first,
    of_magnitude,
    of_sum,
    of_weighted_sum,
)

Dims = int | tuple[int, ...]

# Products of more factors leave the range of a float32 at either end.
_MAX_FACTORS = 64
_SYMMETRIC = frozenset({"symmetric"})
_SPREAD = frozenset({"symmetric", "shift_invariant", "even"})


def single_dims(shape: Shape) -> list[int]:
    """Dims that an op can run along, the batch left out, each written one way only."""
    return [dim for dim in (-1, *range(1, len(shape) - 1)) if shape[dim] > 1]


def _joint_dims(shape: Shape) -> list[Dims]:
    joint: dict[int, tuple[Dims, ...]] = {3: ((1, 2),), 4: ((2, 3), (1, 2, 3)), 5: ((2, 3, 4),)}
    return [dims for dims in joint.get(len(shape), ()) if folded_count(shape, dims) > 1]


def dim_attrs(draw: Draw, ins: Shapes) -> Attrs | None:
    """Choose the dim or dims to fold, and whether they stay as size 1."""
    dims: list[Dims] = [*single_dims(ins[0]), *_joint_dims(ins[0])]
    return draw.pick(dim=dims, keepdim=(False, False, True))


def _one_dim_attrs(draw: Draw, ins: Shapes) -> Attrs | None:
    return draw.pick(dim=single_dims(ins[0]), keepdim=(False, False, True))


def _spread_attrs(draw: Draw, ins: Shapes) -> Attrs | None:
    attrs, more = dim_attrs(draw, ins), draw.pick(correction=(1, 1, 0))
    return None if attrs is None or more is None else {**attrs, **more}


def _norm_attrs(draw: Draw, ins: Shapes) -> Attrs | None:
    attrs, more = dim_attrs(draw, ins), draw.pick(ord=(2, 2, 1, 3))
    return None if attrs is None or more is None else {**attrs, **more}


def _prod_attrs(draw: Draw, ins: Shapes) -> Attrs | None:
    dims = [dim for dim in single_dims(ins[0]) if folded_count(ins[0], dim) <= _MAX_FACTORS]
    return draw.pick(dim=dims, keepdim=(False, False, True))


def folded_count(shape: Shape, dim: Dims) -> int:
    """Number of elements folded into one."""
    return prod(shape[d] for d in ((dim,) if isinstance(dim, int) else dim))


def folded_shape(ins: Shapes, attrs: Attrs) -> Shape:
    """Shape after folding `dim`, with or without the dims of size 1."""
    folded = named_dims(ins, attrs)
    if attrs["keepdim"]:
        return tuple(1 if dim in folded else size for dim, size in enumerate(ins[0]))
    return tuple(size for dim, size in enumerate(ins[0]) if dim not in folded)


def folded_terms(ins: Shapes, attrs: Attrs) -> int:
    """Additions behind one output element."""
    return folded_count(ins[0], attrs["dim"])


def input_flops(ins: Shapes, _attrs: Attrs, _out: Shape) -> int:
    """One operation for every input element."""
    return prod(ins[0])


def _fold(name: str, *calls: str, **fields: Any) -> Op:
    texts = calls or (
        f"torch.{name}({{x}}, dim={{dim}}{{...}})",
        f"{{x}}.{name}(dim={{dim}}{{...}})",
    )
    settings: dict[str, Any] = {
        "attrs": dim_attrs,
        "defaults": {"keepdim": False},
        "terms": folded_terms,
        **fields,
    }
    return Op(
        name,
        Kind.REDUCTION,
        tuple(spell(text) for text in texts),
        ranks=(2, 3, 4, 5),
        out=folded_shape,
        flops=input_flops,
        **settings,
    )


def _trapezoid_attrs(draw: Draw, ins: Shapes) -> Attrs | None:
    return draw.pick(dim=single_dims(ins[0]), dx=(1.0, 0.5, 0.1))


OPS = (
    _fold("sum", range=of_sum, props=_SYMMETRIC),
    _fold("mean", range=of_first, props=_SYMMETRIC),
    _fold(
        "amax",
        range=of_first,
        terms=lambda ins, attrs: 1,
        props=_SYMMETRIC,
    ),
    _fold(
        "amin",
        range=of_first,
        terms=lambda ins, attrs: 1,
        props=_SYMMETRIC,
    ),
    _fold(
        "prod",
        attrs=_prod_attrs,
        domain=Interval(0.5, 1.5),
        range=NONNEGATIVE,
        props=_SYMMETRIC,
    ),
    _fold(
        "var",
        "torch.var({x}, dim={dim}{...})",
        "{x}.var(dim={dim}{...})",
        attrs=_spread_attrs,
        defaults={"correction": 1, "keepdim": False},
        range=NONNEGATIVE,
        passes=2.0,
        props=_SPREAD,
    ),
    _fold(
        "std",
        "torch.std({x}, dim={dim}{...})",
        "{x}.std(dim={dim}{...})",
        attrs=_spread_attrs,
        defaults={"correction": 1, "keepdim": False},
        range=NONNEGATIVE,
        passes=2.0,
        props=_SPREAD,
    ),
    _fold(
        "logsumexp",
        "torch.logsumexp({x}, dim={dim}{...})",
        "{x}.logsumexp(dim={dim}{...})",
        "torch.special.logsumexp({x}, dim={dim}{...})",
        range=lambda ranges, attrs: Interval(ranges[0].low, math.inf),
        passes=3.0,
        props=_SYMMETRIC,
    ),
    _fold(
        "norm",
        "torch.linalg.vector_norm({x}, ord={ord}, dim={dim}{...})",
        "torch.norm({x}, p={ord}, dim={dim}{...})",
        "{x}.norm(p={ord}, dim={dim}{...})",
        attrs=_norm_attrs,
        range=lambda ranges, attrs: Interval(of_magnitude(ranges, attrs).low, math.inf),
        props=_SYMMETRIC | {"even"},
    ),
    _fold(
        "norm_max",
        'torch.linalg.vector_norm({x}, ord=float("inf"), dim={dim}{...})',
        '{x}.norm(p=float("inf"), dim={dim}{...})',
        range=of_magnitude,
        terms=lambda ins, attrs: 1,
        props=_SYMMETRIC | {"even"},
    ),
    Op(
        "matrix_norm",
        Kind.REDUCTION,
        (
            spell("torch.linalg.matrix_norm({x}, ord={ord}{...})"),
            spell("torch.linalg.norm({x}, ord={ord}, dim=(-2, -1){...})"),
        ),
        attrs=lambda draw, ins: draw.pick(
            ord=("fro", "fro", 1, math.inf), keepdim=(False, False, True)
        ),
        defaults={"keepdim": False},
        out=lambda ins, attrs: (*ins[0][:-2], 1, 1) if attrs["keepdim"] else ins[0][:-2],
        terms=lambda ins, attrs: prod(ins[0][-2:]),
        flops=input_flops,
        passes=2.0,
        range=NONNEGATIVE,
        props=frozenset({"even"}),
    ),
    _fold(
        "argmax",
        attrs=_one_dim_attrs,
        terms=lambda ins, attrs: 1,
        range=NONNEGATIVE,
        out_dtype="int64",
        props=frozenset({"order_only", "shift_invariant", "scale_invariant", "jumps"}),
    ),
    _fold(
        "argmin",
        attrs=_one_dim_attrs,
        terms=lambda ins, attrs: 1,
        range=NONNEGATIVE,
        out_dtype="int64",
        props=frozenset({"order_only", "shift_invariant", "scale_invariant", "jumps"}),
    ),
    Op(
        "trapezoid",
        Kind.REDUCTION,
        (
            spell("torch.trapezoid({x}, dx={dx}, dim={dim})"),
            spell("torch.trapz({x}, dx={dx}, dim={dim})"),
        ),
        attrs=_trapezoid_attrs,
        out=lambda ins, attrs: folded_shape(ins, {**attrs, "keepdim": False}),
        terms=folded_terms,
        flops=input_flops,
        passes=4.0,
        range=of_weighted_sum,
    ),
)
