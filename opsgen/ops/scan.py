"""Running folds along a dim.

Scans of one-dimensional tensors are left out: on a GPU they look back at other
blocks in an order that varies, so float sums are not bitwise repeatable.
"""

from __future__ import annotations

import math
from math import prod
from typing import Any

from opsgen.ops.dims import Shape
from opsgen.ops.entry import Attrs, Draw, Kind, Op, Shapes, spell
from opsgen.ops.intervals import (
    NONNEGATIVE,
    SIGNED_EXPONENT,
    Interval,
    minus,
    of_first,
    of_sum,
    of_weighted_sum,
    plus,
    times,
)
from opsgen.ops.reduction import folded_terms, single_dims

# Running products of more factors leave the range of a float32 at either end.
_MAX_FACTORS = 64


def _along(draw: Draw, ins: Shapes) -> Attrs | None:
    return draw.pick(dim=single_dims(ins[0]))


def _short(draw: Draw, ins: Shapes) -> Attrs | None:
    dims = [dim for dim in single_dims(ins[0]) if folded_terms(ins, {"dim": dim}) <= _MAX_FACTORS]
    return draw.pick(dim=dims)


def _shorter(ins: Shapes, attrs: Attrs) -> Shape:
    """One element fewer along the dim."""
    dim = attrs["dim"] % len(ins[0])
    return tuple(size - 1 if index == dim else size for index, size in enumerate(ins[0]))


def _slopes(ranges: tuple[Interval, ...], attrs: Attrs) -> Interval:
    difference = plus(ranges[0], minus(ranges[0]))
    return times(difference, Interval(0.0, 1.0 / attrs["spacing"]))


def _scan(name: str, *calls: str, **fields: Any) -> Op:
    texts = calls or (f"torch.{name}({{x}}, dim={{dim}})", f"{{x}}.{name}(dim={{dim}})")
    settings: dict[str, Any] = {
        "attrs": _along,
        "terms": folded_terms,
        "passes": 1.5,
        "ranks": (2, 3, 4),
        **fields,
    }
    return Op(name, Kind.SCAN, tuple(spell(text) for text in texts), **settings)


OPS = (
    _scan("cumsum", range=of_sum, props=frozenset({"odd"})),
    _scan("cumprod", attrs=_short, domain=Interval(0.5, 1.5), range=NONNEGATIVE),
    _scan(
        "cummax",
        "torch.cummax({x}, dim={dim})[0]",
        "{x}.cummax(dim={dim}).values",
        terms=lambda ins, attrs: 1,
        range=of_first,
        props=frozenset({"idempotent"}),
    ),
    _scan(
        "cummin",
        "torch.cummin({x}, dim={dim})[0]",
        "{x}.cummin(dim={dim}).values",
        terms=lambda ins, attrs: 1,
        range=of_first,
        props=frozenset({"idempotent"}),
    ),
    _scan(
        "logcumsumexp",
        range=lambda ranges, attrs: Interval(ranges[0].low, math.inf),
    ),
    _scan(
        "cumulative_trapezoid",
        "torch.cumulative_trapezoid({x}, dim={dim})",
        out=_shorter,
        passes=6.0,
        range=of_weighted_sum,
        props=frozenset({"odd"}),
    ),
    _scan(
        "gradient",
        "torch.gradient({x}, spacing={spacing}, dim={dim})[0]",
        attrs=lambda draw, ins: draw.pick(dim=single_dims(ins[0]), spacing=(1.0, 0.5, 2.0)),
        terms=lambda ins, attrs: 2,
        flops=lambda ins, attrs, out: 2 * prod(out),
        passes=4.0,
        range=_slopes,
        props=frozenset({"odd", "shift_invariant"}),
    ),
    _scan(
        "vander",
        "torch.linalg.vander({x}, N={num_powers})",
        ranks=(2, 3),
        attrs=lambda draw, ins: draw.pick(num_powers=(3, 4)) if ins[0][-1] > 1 else None,
        domain=SIGNED_EXPONENT,
        out=lambda ins, attrs: (*ins[0], attrs["num_powers"]),
        terms=lambda ins, attrs: 1,
        flops=lambda ins, attrs, out: prod(out),
        passes=4.0,
        range=Interval(-1000.0, 1000.0),
        is_full_precision=True,
    ),
    _scan(
        "cummax_indices",
        "torch.cummax({x}, dim={dim})[1]",
        "{x}.cummax(dim={dim}).indices",
        terms=lambda ins, attrs: 1,
        range=NONNEGATIVE,
        out_dtype="int64",
        props=frozenset({"order_only", "shift_invariant", "scale_invariant", "jumps"}),
    ),
    _scan(
        "diff",
        "torch.diff({x}, dim={dim})",
        "{x}.diff(dim={dim})",
        out=_shorter,
        terms=lambda ins, attrs: 2,
        flops=lambda ins, attrs, out: prod(out),
        range=lambda ranges, attrs: plus(ranges[0], minus(ranges[0])),
        props=frozenset({"odd", "shift_invariant"}),
    ),
)
