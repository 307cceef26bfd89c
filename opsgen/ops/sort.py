"""Order along a dim."""

from __future__ import annotations

from math import prod
from typing import Any

from opsgen.ops.dims import Shape
from opsgen.ops.entry import Attrs, Draw, Kind, Op, Operand, Shapes, spell
from opsgen.ops.intervals import NONNEGATIVE, of_first
from opsgen.ops.reduction import folded_shape, single_dims

_SYMMETRIC = frozenset({"symmetric"})


def _sort(name: str, *calls: str, **fields: Any) -> Op:
    # Comparisons per element: about log2 of a row, which no closed form over sizes gives.
    settings: dict[str, Any] = {
        "flops": lambda ins, attrs, out: 10 * prod(ins[0]),
        "passes": 8.0,
        "range": of_first,
        **fields,
    }
    return Op(name, Kind.SORT, tuple(spell(call) for call in calls), **settings)


def _sort_attrs(draw: Draw, ins: Shapes) -> Attrs | None:
    return draw.pick(dim=single_dims(ins[0]), descending=(False, True))


def _topk_attrs(draw: Draw, ins: Shapes) -> Attrs | None:
    attrs = draw.pick(dim=single_dims(ins[0]), largest=(True, True, False))
    if attrs is None:
        return None
    k = draw.pick(k=[k for k in (1, 2, 4, 8, 16, 32) if k < ins[0][attrs["dim"]]])
    return None if k is None else {**attrs, **k}


def _topk_out(ins: Shapes, attrs: Attrs) -> Shape:
    dim = attrs["dim"] % len(ins[0])
    return tuple(attrs["k"] if index == dim else size for index, size in enumerate(ins[0]))


def _kth_attrs(draw: Draw, ins: Shapes) -> Attrs | None:
    attrs = draw.pick(dim=single_dims(ins[0]), keepdim=(False, False, True))
    if attrs is None:
        return None
    k = draw.pick(k=[k for k in (2, 3, 5) if k < ins[0][attrs["dim"]]])
    return None if k is None else {**attrs, **k}


def _median_attrs(draw: Draw, ins: Shapes) -> Attrs | None:
    return draw.pick(dim=single_dims(ins[0]), keepdim=(False, False, True))


_INDEX = frozenset({"order_only", "shift_invariant", "scale_invariant", "jumps"})


def _bounds(draw: Draw, _ins: Shapes) -> Attrs | None:
    size = draw.size("num_boundaries", (16, 64, 256, 1024))
    right = draw.pick(right=(False, False, True))
    return None if size is None or right is None else {**right, **size}


def _ascending(shape: Shape) -> Operand:
    return Operand(shape, name="boundaries", can_join=False, draw="ascending")


OPS = (
    _sort(
        "topk_indices",
        "torch.topk({x}, {k}, dim={dim}{...})[1]",
        "{x}.topk({k}, dim={dim}{...}).indices",
        attrs=_topk_attrs,
        defaults={"largest": True},
        out=_topk_out,
        passes=4.0,
        range=NONNEGATIVE,
        out_dtype="int64",
        props=_INDEX,
    ),
    _sort(
        "bucketize",
        "torch.bucketize({x}, {y}{...})",
        attrs=_bounds,
        defaults={"right": False},
        operands=lambda draw, ins, attrs: (_ascending((attrs["num_boundaries"],)),),
        passes=1.0,
        range=NONNEGATIVE,
        out_dtype="int64",
        props=frozenset({"jumps"}),
    ),
    _sort(
        "searchsorted",
        "torch.searchsorted({y}, {x}{...})",
        attrs=_bounds,
        defaults={"right": False},
        operands=lambda draw, ins, attrs: (_ascending((*ins[0][:-1], attrs["num_boundaries"])),),
        passes=1.0,
        range=NONNEGATIVE,
        out_dtype="int64",
        props=frozenset({"jumps"}),
    ),
    _sort(
        "sort",
        "torch.sort({x}, dim={dim}{...})[0]",
        "{x}.sort(dim={dim}{...}).values",
        attrs=_sort_attrs,
        defaults={"descending": False},
        props=_SYMMETRIC | {"idempotent", "permutes"},
    ),
    _sort(
        "argsort",
        "torch.argsort({x}, dim={dim}{...}, stable=True)",
        attrs=_sort_attrs,
        defaults={"descending": False},
        range=NONNEGATIVE,
        out_dtype="int64",
        props=frozenset({"order_only", "shift_invariant", "scale_invariant", "jumps"}),
    ),
    _sort(
        "topk",
        "torch.topk({x}, {k}, dim={dim}{...})[0]",
        "{x}.topk({k}, dim={dim}{...}).values",
        attrs=_topk_attrs,
        defaults={"largest": True},
        out=_topk_out,
        passes=4.0,
        props=_SYMMETRIC,
    ),
    # The values repeat, but torch lists both under its nondeterministic kernels.
    _sort(
        "kthvalue",
        "torch.kthvalue({x}, {k}, dim={dim}{...})[0]",
        "{x}.kthvalue({k}, dim={dim}{...}).values",
        attrs=_kth_attrs,
        defaults={"keepdim": False},
        out=folded_shape,
        props=_SYMMETRIC,
        is_deterministic=False,
    ),
    _sort(
        "median",
        "torch.median({x}, dim={dim}{...})[0]",
        "{x}.median(dim={dim}{...}).values",
        attrs=_median_attrs,
        defaults={"keepdim": False},
        out=folded_shape,
        props=_SYMMETRIC,
        is_deterministic=False,
    ),
)
