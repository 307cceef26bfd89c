"""Triviality algebra: combinations of ops that leave nothing to compute.

About 7 % of random op pairs leave one op dead or the output constant. The
rules below read the properties that catalogue entries declare (and that
tests hold them to) and catch these before anything runs; the probe's node
deletion is the net under them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from opsgen.ops import Attrs, Interval, Kind, Op, Shape


@dataclass(frozen=True, slots=True)
class Applied:
    """An op applied to a value, with what is known of the value.

    Attributes:
        op: The op.
        attrs: Its attributes.
        shape: Shape of its first input.
        interval: Values that its first input may hold.
        producer: What made its first input; None for a task input.
    """

    op: Op
    attrs: Attrs
    shape: Shape
    interval: Interval
    producer: Applied | None = None


def find_triviality(applied: Applied) -> str | None:
    """Return what makes `applied` or its producer pointless, or None."""
    op, interval = applied.op, applied.interval
    if any(interval.within(flat) for flat in op.flattens):
        return f"{op.name} maps all it would see to one value"
    fixes = op.fixes(applied.attrs) if callable(op.fixes) else op.fixes
    if fixes is not None and interval.within(fixes):
        return f"{op.name} would leave all it sees as it is"
    if applied.producer is None:
        return None
    for rule in _RULES:
        found = rule(applied.producer, applied)
        if found is not None:
            return found
    return None


def _repeated(first: Applied, second: Applied) -> str | None:
    if first.op.name != second.op.name or first.attrs != second.attrs:
        return None
    if "idempotent" in second.op.props:
        return f"{second.op.name} twice is once"
    if "involution" in second.op.props:
        return f"{second.op.name} twice is nothing"
    return None


# Function and inverse on the values that the pair meets, in both orders where both are exact.
_INVERSES = {
    ("exp", "log"),
    ("log", "exp"),
    ("expm1", "log1p"),
    ("log1p", "expm1"),
    ("tanh", "atanh"),
    ("atanh", "tanh"),
    ("sigmoid", "logit"),
    ("logit", "sigmoid"),
    ("sinh", "asinh"),
    ("asinh", "sinh"),
    ("sqrt", "square"),
    ("sin", "asin"),
    ("asin", "sin"),
    ("tan", "atan"),
    ("atan", "tan"),
    ("acos", "cos"),
    ("exp2", "log2"),
    ("log2", "exp2"),
    ("softmax", "log"),
    ("log_softmax", "exp"),
    ("erf", "erfinv"),
    ("erfinv", "erf"),
}


def _inverse(first: Applied, second: Applied) -> str | None:
    if (first.op.name, second.op.name) in _INVERSES:
        return f"{second.op.name} undoes or renames {first.op.name}"
    if first.op.name == "neg" and "even" in second.op.props:
        return f"{second.op.name} does not see the sign"
    return None


def _absorbed(first: Applied, second: Applied) -> str | None:
    for act, blind in (("shift", "shift_invariant"), ("scale", "scale_invariant")):
        if act in first.op.props and blind in second.op.props:
            return f"{second.op.name} absorbs {first.op.name}"
    return None


def folded_dims(applied: Applied) -> frozenset[int] | None:
    """Return the dims that an op folds or normalises, or None where they are not declared."""
    rank = len(applied.shape)
    dim = applied.attrs.get("dim")
    if dim is not None:
        dims = dim if isinstance(dim, tuple) else (dim,)
        return frozenset(d % rank for d in dims)
    if applied.op.name.startswith("instance_norm"):
        return frozenset(range(2, rank))
    return None


def _bias_absorbed(first: Applied, second: Applied) -> str | None:
    # A bias is constant along every dim but its own, so whatever is blind to shifts there
    # never sees it: the bias would be a dead parameter.
    if not first.attrs.get("bias") or "shift_invariant" not in second.op.props:
        return None
    dims = folded_dims(second)
    if dims is None:
        return None
    own = 1 if first.op.kind is Kind.CONVOLUTION else len(second.shape) - 1
    return None if own in dims else f"{second.op.name} absorbs the bias of {first.op.name}"


def _order_only(first: Applied, second: Applied) -> str | None:
    if "order_only" in second.op.props and "increasing" in first.op.props:
        return f"{second.op.name} sees only the order, which {first.op.name} keeps"
    return None


def _constant_fold(first: Applied, second: Applied) -> str | None:
    if second.op.kind is not Kind.REDUCTION:
        return None
    folded, seen = folded_dims(second), folded_dims(first)
    if folded is None or folded != seen:
        return None
    if second.op.name in ("sum", "mean"):
        for prop in ("sums_to_one", "zero_mean"):
            if prop in first.op.props:
                return f"{second.op.name} of {first.op.name} over one dim is constant"
    if first.op.kind is Kind.SORT and first.op.out_dtype == "float":
        return f"{second.op.name} does not see the order that {first.op.name} makes"
    if first.op.name in ("flip", "roll"):
        return f"{second.op.name} does not see the order that {first.op.name} makes"
    return None


_RULES: tuple[Callable[[Applied, Applied], str | None], ...] = (
    _repeated,
    _inverse,
    _absorbed,
    _bias_absorbed,
    _order_only,
    _constant_fold,
)
