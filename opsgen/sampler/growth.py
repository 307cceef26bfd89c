"""Growth of one graph from a sequence of ops.

Shapes are concrete and symbolic at once (`opsgen.ops.Dim`), every edge is
checked against numeric domains and the triviality algebra, and a dead end
raises `SampleError` with the reason that the sampler counts.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from opsgen.errors import SampleError
from opsgen.ops import (
    CATALOGUE,
    DRAWS,
    Attrs,
    Dim,
    Draw,
    Interval,
    Op,
    Operand,
    Shape,
    draws_within,
    expression,
    same_shape,
)
from opsgen.records import Graph, Input, Node
from opsgen.sampler.algebra import Applied, find_triviality
from opsgen.sampler.choices import RandomDraw
from opsgen.sampler.table import feasible_ranks

# Names of a task input's dims by layout and rank.
_DIM_NAMES: dict[str, dict[int, tuple[str, ...]]] = {
    "features": {
        1: ("features",),
        2: ("batch_size", "features"),
        3: ("batch_size", "seq_len", "features"),
        4: ("batch_size", "num_heads", "seq_len", "head_dim"),
    },
    "tokens": {2: ("batch_size", "seq_len")},
    "channels": {
        3: ("batch_size", "channels", "length"),
        4: ("batch_size", "channels", "height", "width"),
        5: ("batch_size", "channels", "depth", "height", "width"),
    },
}

# First values of sizes, before sizing scales batches, lengths and images to the target time.
_FIRST_VALUES: dict[str, tuple[int, ...]] = {
    "batch_size": (2, 4, 8, 16),
    "features": (64, 96, 128, 256, 384, 512, 768, 1024, 2048),
    "channels": (8, 16, 24, 32, 48, 64, 96, 128, 256),
    "seq_len": (32, 64, 128, 256, 512),
    "num_heads": (4, 8, 12, 16),
    "head_dim": (32, 64, 128),
    "length": (64, 128, 256, 512, 1024),
    "depth": (8, 12, 16),
    "height": (14, 16, 28, 32, 56, 64),
    "width": (14, 16, 28, 32, 56, 64),
}

_JOIN_SHARE = 0.6  # of the operands for which an earlier value would do
_BROADEST_SHARE = 0.8  # of the inputs drawn from the broadest distribution that is legal


@dataclass(slots=True)
class Value:
    """A tensor of the graph that grows, with what is known of it."""

    shape: Shape
    interval: Interval
    dtype: str
    source: tuple[str, int]  # ("input" or "node", its number)
    applied: Applied | None = None  # how a node made it


@dataclass(slots=True)
class Draft:
    """A graph that grows: values are numbered in the order in which they came."""

    draw: RandomDraw
    dtype: str
    values: list[Value] = field(default_factory=list)
    inputs: list[Input] = field(default_factory=list)
    nodes: list[tuple[Op, tuple[int, ...], Attrs, int]] = field(default_factory=list)
    labels: dict[int, str] = field(default_factory=dict)  # of some nodes, by their number


def grow(sequence: Sequence[str], dtype: str, rng: random.Random) -> tuple[Graph, dict[str, int]]:
    """Grow a graph whose nodes apply the ops of `sequence` in order.

    Args:
        sequence: Names of catalogue ops.
        dtype: Working dtype of floating tensors.
        rng: Source of every choice.

    Returns:
        The graph and first values of its sizes, which sizing then scales.

    Raises:
        SampleError: A dead end; draw again with another generator.
    """
    draft = Draft(RandomDraw(rng), dtype)
    current = _add_first_input(draft, tuple(sequence))
    for name in sequence:
        current = _apply(draft, CATALOGUE[name], current)
    return finish(draft), draft.draw.sizes


def _add_first_input(draft: Draft, sequence: tuple[str, ...]) -> int:
    rng = draft.draw.rng
    ranks = feasible_ranks(sequence)
    if not ranks:
        raise SampleError("rank: none suits the whole sequence")
    rank = ranks[int(rng.random() * len(ranks))]
    names = _DIM_NAMES[_layout(sequence, rank, rng)][rank]
    shape = tuple(
        draft.draw.name_size(
            name, _FIRST_VALUES[name][int(rng.random() * len(_FIRST_VALUES[name]))]
        )
        for name in names
    )
    first = CATALOGUE[sequence[0]]
    return add_input(draft, Operand(shape, first.domain, first.in_dtype, name="x"))


def _layout(sequence: tuple[str, ...], rank: int, rng: random.Random) -> str:
    """Choose what the dims of the first input mean: the first op that minds decides."""
    if CATALOGUE[sequence[0]].in_dtype == "int64" and rank in _DIM_NAMES["tokens"]:
        return "tokens"
    layouts = [name for name in ("features", "channels") if rank in _DIM_NAMES[name]]
    wanted = next((CATALOGUE[n].layout for n in sequence if CATALOGUE[n].layout != "any"), None)
    return wanted if wanted in layouts else layouts[int(rng.random() * len(layouts))]


def add_input(draft: Draft, operand: Operand) -> int:
    """Add a task input that may serve as `operand` and return the number of its value."""
    name, dtype = _draw_for(draft, operand)
    taken = {known.name for known in draft.inputs}
    unique, number = operand.name, 2
    while unique in taken:
        unique, number = f"{operand.name}{number}", number + 1
    draft.inputs.append(
        Input(
            name=unique,
            dims=tuple(expression(size) for size in operand.shape),
            dtype=dtype,
            draw=name,
            high=None if operand.high is None else expression(operand.high),
        )
    )
    source = ("input", len(draft.inputs) - 1)
    draft.values.append(Value(operand.shape, DRAWS[name].range, operand.dtype, source))
    return len(draft.values) - 1


def _draw_for(draft: Draft, operand: Operand) -> tuple[str, str]:
    if operand.draw is not None:
        return operand.draw, draft.dtype
    if operand.dtype != "float":
        return ("mask", "bool") if operand.dtype == "bool" else ("index", "int64")
    names = draws_within(operand.domain)
    if not names:
        raise SampleError("domain: no input draw lies within it")
    is_broadest = draft.draw.rng.random() < _BROADEST_SHARE
    return (names[0] if is_broadest else draft.draw.rng.choice(names)), draft.dtype


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
    return attrs, operands


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
    if joins and draft.draw.rng.random() < _JOIN_SHARE:
        return joins[int(draft.draw.rng.random() * len(joins))]
    return add_input(draft, operand)


def finish(draft: Draft) -> Graph:
    """Return the graph: inputs numbered first and nodes behind them, sizes parted from attributes."""
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
    last = len(draft.inputs) + len(nodes) - 1
    return Graph(dtype=draft.dtype, inputs=tuple(draft.inputs), nodes=nodes, outputs=(last,))
