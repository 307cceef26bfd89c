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


# Ops that bend at fixed places around zero.
_CLAMPS = frozenset({"clamp", "clamp_max", "clamp_min", "hardtanh", "relu6", "softshrink"})


def _has_one_sign(interval: Interval) -> bool:
    return interval.low >= 0.0 or interval.high <= 0.0


def find_triviality(applied: Applied) -> str | None:
    """Return what makes `applied` or its producer pointless, or None."""
    op, interval = applied.op, applied.interval
    if op.flattens and any(interval.within(flat) for flat in op.flattens):
        return f"{op.name} maps all it would see to one value"
    if op.name in _CLAMPS and applied.producer is not None and _has_one_sign(interval):
        return f"{op.name} of values of one sign is far from where it bends, or does nothing else"
    fixes = op.fixes(applied.attrs) if callable(op.fixes) else op.fixes
    if fixes is not None and interval.within(fixes):
        return f"{op.name} would leave all it sees as it is"
    if applied.producer is None or not _may_be_pointless(op):
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


def _undone(first: Applied, second: Applied) -> str | None:
    if first.op.name in second.op.undoes:
        shared = first.attrs.keys() & second.attrs.keys()
        if all(first.attrs[key] == second.attrs[key] for key in shared):
            return f"{second.op.name} undoes {first.op.name}"
    if (first.op.name, second.op.name) in _RENAMES:
        return f"{second.op.name} after {first.op.name} is one op of another name"
    if first.op.name == "neg" and "even" in second.op.props:
        return f"{second.op.name} does not see the sign"
    return None


# Pairs that amount to a single op, from an exhaustive comparison of unary pairs.
_RENAMES = {("softmax", "log"), ("log_softmax", "exp"), ("exp", "log1p"), ("square", "sqrt")}


def _absorbed(first: Applied, second: Applied) -> str | None:
    for act, blind in (("shift", "shift_invariant"), ("scale", "scale_invariant")):
        if act in first.op.props and blind in second.op.props:
            return f"{second.op.name} absorbs {first.op.name}"
    # A bias is constant along every dim but its own, so whatever is blind to shifts there
    # never sees it: the bias would be a dead parameter.
    if first.attrs.get("bias") and "shift_invariant" in second.op.props:
        own = 1 if first.op.kind is Kind.CONVOLUTION else len(second.shape) - 1
        if own not in _dims(second):
            return f"{second.op.name} absorbs the bias of {first.op.name}"
    return None


def _unordered(first: Applied, second: Applied) -> str | None:
    if "order_only" in second.op.props:
        if "increasing" in first.op.props:
            return f"{second.op.name} sees only the order, which {first.op.name} keeps"
        if "keeps_order" in first.op.props and _dims(first) == _dims(second):
            return f"{second.op.name} sees only the order, which {first.op.name} keeps"
    moves = first.op.props & {"permutes", "keeps_order"} and first.op.kind in _MOVING
    if moves and "symmetric" in second.op.props and _dims(first) <= _dims(second):
        return f"{second.op.name} does not see the order that {first.op.name} makes"
    return None


_MOVING = (Kind.LAYOUT, Kind.SORT)

# What a fold over the same dims makes of an output that is standardised there.
_CONSTANTS = {
    "sums_to_one": ("sum", "mean"),
    "zero_mean": ("sum", "mean"),
    "unit_variance": ("var", "std"),
    "unit_norm": ("norm",),
}


_FOLDS = frozenset(name for folds in _CONSTANTS.values() for name in folds)


def _constant(first: Applied, second: Applied) -> str | None:
    if second.op.name not in _FOLDS:  # nearly all pairs end here
        return None
    is_affine = first.attrs.get("affine") or first.attrs.get("elementwise_affine")
    if is_affine or _dims(first) != _dims(second):
        return None
    for prop, folds in _CONSTANTS.items():
        if prop in first.op.props and second.op.name in folds:
            return f"{second.op.name} of {first.op.name} over the same dims is constant"
    return None


def _unjudgeable(first: Applied, second: Applied) -> str | None:
    if "jumps" not in second.op.props:
        return None
    maker: Applied | None = first
    while maker is not None and _is_exact(maker.op):
        maker = maker.producer
    if maker is None:
        return None
    return f"{second.op.name} jumps on the rounding errors of {maker.op.name}"


def _is_exact(op: Op) -> bool:
    """Whether any two kernels of an op agree to the bit, in any precision: it only selects."""
    return op.kind in _EXACT_KINDS or op.name in _EXACT


_EXACT_KINDS = (Kind.LAYOUT, Kind.INDEX, Kind.SORT)
_EXACT = frozenset(
    {
        "abs", "adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d", "amax", "amin",
        "clamp", "clamp_max", "clamp_min", "clamp_tensor", "cummax", "cummin", "hardtanh",
        "max_pool1d", "max_pool2d", "max_pool3d", "maximum", "minimum", "masked_fill", "median",
        "neg", "relu", "relu6", "threshold", "where",
    }
)  # fmt: skip


def _may_be_pointless(op: Op) -> bool:
    """Whether some rule looks for anything that this op, as the one that reads, has at all."""
    return bool(op.undoes) or op.name in _SECONDS or not _NOTICED.isdisjoint(op.props)


_SECONDS = _FOLDS | {second for _, second in _RENAMES}
_NOTICED = frozenset(
    {
        "even",
        "idempotent",
        "involution",
        "jumps",
        "order_only",
        "scale_invariant",
        "shift_invariant",
        "symmetric",
    }
)


def _dims(applied: Applied) -> frozenset[int]:
    """Return the dims that an op's properties speak of."""
    return frozenset(applied.op.folds((applied.shape,), applied.attrs))


_RULES: tuple[Callable[[Applied, Applied], str | None], ...] = (
    _repeated,
    _undone,
    _absorbed,
    _unordered,
    _constant,
    _unjudgeable,
)
