"""Growth of one graph from a sequence of ops.

Shapes are concrete and symbolic at once (`opsgen.ops.Dim`), every edge is
checked against numeric domains and the triviality algebra, and a dead end
raises `SampleError` with the reason that the sampler counts.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import msgspec

from opsgen.errors import SampleError
from opsgen.ops import (
    CATALOGUE,
    Attrs,
    Dim,
    Draw,
    Interval,
    Kind,
    Op,
    Operand,
    expression,
    same_shape,
)
from opsgen.ops.counting import is_view
from opsgen.ops.entry import no_params
from opsgen.ops.gradients import is_curved, repeats_backward
from opsgen.ops.intervals import SIGNED_UNIT
from opsgen.records import Graph, Node
from opsgen.sampler.algebra import Applied, find_triviality
from opsgen.sampler.choices import RandomDraw
from opsgen.sampler.draft import PLAIN, Draft, Style, Value, add_first_input, add_input

# Ops that are within a few per cent of their input where that is small.
_NEARLY_STRAIGHT = frozenset(
    {
        "asin", "asinh", "atan", "atanh", "erf", "expm1", "log1p", "sin", "sinh", "softsign",
        "tan", "tanh",
    }
)  # fmt: skip
_JOIN_SHARE = 0.6  # of the operands for which an earlier value would do


def grow(
    sequence: Sequence[str], dtype: str, rng: random.Random, style: Style = PLAIN
) -> tuple[Graph, dict[str, int]]:
    """Grow a graph whose nodes apply the ops of `sequence` in order.

    Args:
        sequence: Names of catalogue ops.
        dtype: Working dtype of floating tensors.
        rng: Source of every choice.
        style: What else is asked of it.

    Returns:
        The graph and first values of its sizes, which sizing then scales.

    Raises:
        SampleError: A dead end; draw again with another generator.
    """
    draft = draft_of(sequence, dtype, rng, style)
    return finish(draft), draft.draw.sizes


def draft_of(sequence: Sequence[str], dtype: str, rng: random.Random, style: Style) -> Draft:
    """Grow a graph as `grow` does, and return it with all that is known of it: see `finish`.

    Raises:
        SampleError: A dead end; draw again with another generator.
    """
    can_transpose = not any(CATALOGUE[name].needs_contiguous for name in sequence)
    draft = Draft(RandomDraw(rng, style.has_odd_sizes), dtype, style, can_transpose)
    current = add_first_input(draft, tuple(sequence))
    for place, name in enumerate(sequence):
        draft.is_last_curve = not any(is_curved(CATALOGUE[each]) for each in sequence[place + 1 :])
        current = _apply(draft, CATALOGUE[name], current)
    _check_topology(draft)
    return draft


def _check_topology(draft: Draft) -> None:
    reads = [arg for _, args, _, _ in draft.nodes for arg in args]
    if draft.style.topology == "shared" and len(set(reads)) == len(reads):
        raise SampleError("topology: no value could be shared")


def _apply(draft: Draft, op: Op, current: int) -> int:
    attrs, operands = choose(draft, op, current, draft.draw)
    return append(draft, op, attrs, (current, *[_operand(draft, o, current) for o in operands]))


def choose(draft: Draft, op: Op, current: int, draw: Draw) -> tuple[Attrs, tuple[Operand, ...]]:
    """Choose attributes of an op on a value, and say which operands it then needs.

    Raises:
        SampleError: The op takes no such value, or would be pointless on it.
    """
    value = draft.values[current]
    _check_edge(op, value)
    if op.is_full_precision and draft.dtype != "float32":
        raise SampleError(f"dtype: {op.name} has no {draft.dtype} kernel everywhere")
    attrs = op.attrs(draw, (value.shape,))
    operands = None if attrs is None else op.operands(draw, (value.shape,), attrs)
    if attrs is None or operands is None:
        raise SampleError(f"attributes: {op.name} has none for this shape")
    trivial = find_triviality(_applied(op, attrs, value))
    if trivial is not None:
        raise SampleError(f"trivial: {trivial}")
    is_small = value.interval.within(SIGNED_UNIT) and value.source[0] == "node"
    if draft.dtype != "float32" and is_small and op.name in _NEARLY_STRAIGHT:
        raise SampleError(f"trivial: {op.name} of small values drowns in {draft.dtype}'s rounding")
    if draft.style.is_gradient:
        _check_gradient(draft, op, attrs)
    return attrs, operands


def _check_gradient(draft: Draft, op: Op, attrs: Attrs) -> None:
    if not repeats_backward(op, attrs):
        raise SampleError(f"gradient: that of {op.name} does not repeat on a GPU")
    has_bias = attrs.get("bias") or attrs.get("affine") or op.kind is Kind.ATTENTION
    if draft.is_last_curve and has_bias and op.params is not no_params:
        raise SampleError(f"gradient: it does not depend on the bias of {op.name}")


def _applied(op: Op, attrs: Attrs, value: Value) -> Applied:
    return Applied(op, attrs, value.shape, value.interval, value.applied)


def append(draft: Draft, op: Op, attrs: Attrs, args: tuple[int, ...]) -> int:
    """Add a node and return the number of its value.

    Raises:
        SampleError: It would return an empty tensor.
    """
    value = draft.values[args[0]]
    if op.high is not None:
        number = value.source[1]
        high = expression(op.high((value.shape,), attrs))
        draft.inputs[number] = msgspec.structs.replace(draft.inputs[number], high=high)
    out = op.out(tuple(draft.values[arg].shape for arg in args), attrs)
    if min(out, default=1) < 1:
        raise SampleError(f"shape: {op.name} would return an empty tensor")
    ranges = tuple(draft.values[arg].interval for arg in args)
    interval = op.range if isinstance(op.range, Interval) else op.range(ranges, attrs)
    if op.out_dtype == "float" and interval.low == interval.high:
        raise SampleError(f"trivial: {op.name} would make one value of all it sees")
    spelling = int(draft.draw.rng.random() * len(op.spellings))
    draft.nodes.append((op, args, attrs, spelling))
    source = ("node", len(draft.nodes) - 1)
    applied = _applied(op, attrs, value)
    draft.values.append(Value(out, interval, op.out_dtype, source, applied))
    return len(draft.values) - 1


def _check_edge(op: Op, value: Value) -> None:
    if value.dtype != op.in_dtype:
        raise SampleError(f"dtype: {op.name} reads {op.in_dtype}, not {value.dtype}")
    if len(value.shape) not in op.ranks:
        raise SampleError(f"rank: {op.name} takes none of rank {len(value.shape)}")
    if op.in_dtype == "float" and not value.interval.within(op.domain):
        raise SampleError(f"domain: {op.name} does not accept all it would see")


def _operand(draft: Draft, operand: Operand, current: int) -> int:
    if draft.style.topology == "inputs":
        return add_input(draft, operand)
    joins = [
        index
        for index, value in enumerate(draft.values)
        if operand.can_join
        and operand.draw is None
        and index != current
        and value.dtype == operand.dtype == "float"
        and value.interval.within(operand.domain)
        and same_shape(value.shape, operand.shape)
    ]
    must_join = draft.style.topology == "shared"
    if joins and (must_join or draft.draw.rng.random() < _JOIN_SHARE):
        return joins[int(draft.draw.rng.random() * len(joins))]
    return add_input(draft, operand)


def finish(draft: Draft) -> Graph:
    """Return the graph: inputs first and nodes behind them, sizes parted from attributes."""
    last = len(draft.values) - 1
    returned = [last]
    if draft.style.topology == "outputs":
        returned = [_second_output(draft), last]
    if draft.style.is_gradient:
        add_input(draft, Operand(draft.values[last].shape, name="grad_output", draw="normal"))
    ids = [
        number if what == "input" else len(draft.inputs) + number
        for what, number in (value.source for value in draft.values)
    ]
    nodes = tuple(
        Node(
            op=op.name,
            args=tuple(ids[arg] for arg in args),
            attrs={key: item for key, item in attrs.items() if not isinstance(item, Dim)},
            sizes={key: expression(item) for key, item in attrs.items() if isinstance(item, Dim)},
            spelling=spelling,
            label=draft.labels.get(number),
        )
        for number, (op, args, attrs, spelling) in enumerate(draft.nodes)
    )
    return Graph(
        dtype=draft.dtype,
        inputs=tuple(draft.inputs),
        nodes=nodes,
        outputs=tuple(ids[value] for value in returned),
        grad_output=len(draft.inputs) - 1 if draft.style.is_gradient else None,
    )


def _is_view(draft: Draft, value: Value) -> bool:
    return is_view(draft.nodes[value.source[1]][0])


def _second_output(draft: Draft) -> int:
    """Choose what a graph returns beside its last value: what an op made that others read."""
    made = [
        place
        for place, value in enumerate(draft.values[:-1])
        if value.source[0] == "node" and value.dtype == "float" and not _is_view(draft, value)
    ]
    if not made:
        raise SampleError("topology: there is nothing to return beside the last value")
    return made[int(draft.draw.rng.random() * len(made))]
