"""A graph that grows: its values so far, and the task inputs that are added to it."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from opsgen.errors import SampleError
from opsgen.ops import (
    CATALOGUE,
    DRAWS,
    Attrs,
    Interval,
    Op,
    Operand,
    Shape,
    draws_within,
    expression,
)
from opsgen.records import Input
from opsgen.sampler.algebra import Applied
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

# Widths that no kernel author would choose, and models have all the same.
_ODD_VALUES: dict[str, tuple[int, ...]] = {
    "features": (33, 50, 77, 100, 129, 200, 300, 333, 500, 1000, 1021, 1280),
    "channels": (3, 5, 12, 20, 36, 40, 72, 100, 144),
    "seq_len": (49, 77, 100, 197, 257, 384),
    "num_heads": (3, 6, 10, 14),
    "head_dim": (40, 72, 80, 96),
}
_ODD_SHARE = 0.5  # of the first values where a recipe asks for odd sizes
_LAYOUT_RANKS = {"transposed": (2, 3, 4, 5), "channels_last": (4, 5)}


@dataclass(frozen=True, slots=True)
class Style:
    """What a recipe asks of a graph beside its ops.

    Attributes:
        topology: A name of `opsgen.sampler.strata.TOPOLOGIES`, or `any`.
        is_gradient: The task returns gradients.
        values: Share of the floating inputs not drawn from the usual distribution.
        layouts: Share of the inputs with another order in memory.
        has_odd_sizes: Widths need not be round.
        min_axis: Some axis of an input is at least as long.
    """

    topology: str = "any"
    is_gradient: bool = False
    values: float = 0.2
    layouts: float = 0.0
    has_odd_sizes: bool = False
    min_axis: int = 1


PLAIN = Style()


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
    style: Style = PLAIN
    can_transpose: bool = True  # whether all ops take inputs in any order in memory
    is_last_curve: bool = False  # no later op's derivative depends on where it is taken
    floors: dict[str, int] = field(default_factory=dict)  # of sizes that must stay long
    values: list[Value] = field(default_factory=list)
    inputs: list[Input] = field(default_factory=list)
    nodes: list[tuple[Op, tuple[int, ...], Attrs, int]] = field(default_factory=list)
    labels: dict[int, str] = field(default_factory=dict)  # of some nodes, by their number


def add_first_input(draft: Draft, sequence: tuple[str, ...]) -> int:
    """Add the input that the first op of a sequence reads and return the number of its value.

    Raises:
        SampleError: No rank suits the whole sequence.
    """
    rng = draft.draw.rng
    ranks = feasible_ranks(sequence)
    if not ranks:
        raise SampleError("rank: none suits the whole sequence")
    rank = ranks[int(rng.random() * len(ranks))]
    names = _DIM_NAMES[_layout(sequence, rank, rng)][rank]
    long = int(rng.random() * len(names)) if draft.style.min_axis > 1 else None
    shape = tuple(
        draft.draw.name_size(name, _first_value(draft, name, is_long=place == long))
        for place, name in enumerate(names)
    )
    if long is not None:
        draft.floors[str(expression(shape[long]))] = draft.style.min_axis
    first = CATALOGUE[sequence[0]]
    return add_input(draft, Operand(shape, first.domain, first.in_dtype, name="x"))


def _first_value(draft: Draft, name: str, *, is_long: bool) -> int:
    rng = draft.draw.rng
    values = _FIRST_VALUES[name]
    if draft.style.has_odd_sizes and name in _ODD_VALUES and rng.random() < _ODD_SHARE:
        values = _ODD_VALUES[name]
    if is_long:
        least = draft.style.min_axis
        values = tuple(value for value in values if value >= least) or (least,)
    return values[int(rng.random() * len(values))]


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
            layout=_memory_layout(draft, operand),
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
    # On positive numbers alone many derivatives are constant.
    share = 0.0 if draft.style.is_gradient else draft.style.values
    is_other = len(names) > 1 and draft.draw.rng.random() < share
    return (draft.draw.rng.choice(names[1:]) if is_other else names[0]), draft.dtype


def _memory_layout(draft: Draft, operand: Operand) -> str:
    # What a draw puts in order along the last dim would not be in order in memory.
    if not draft.can_transpose or operand.draw is not None or operand.dtype != "float":
        return "contiguous"
    if not draft.style.layouts or draft.draw.rng.random() >= draft.style.layouts:
        return "contiguous"
    names = [name for name, ranks in _LAYOUT_RANKS.items() if len(operand.shape) in ranks]
    return draft.draw.rng.choice(names) if names else "contiguous"
