"""What `opsgen calibrate` measures: single ops at a few sizes and choices of attributes.

The draws depend on a seed and on rough speeds of the kind of device alone, never
on the calibration tables that come out of them.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from dataclasses import dataclass
from math import exp, log

from opsgen.errors import SampleError
from opsgen.ops import BLOCK_OPS, CATALOGUE, Kind, Op
from opsgen.records import Graph
from opsgen.sampler.calibration import Calibration
from opsgen.sampler.draft import PLAIN, Style
from opsgen.sampler.growth import grow
from opsgen.sampler.identity import size_names
from opsgen.sampler.resolution import Resolver
from opsgen.sampler.sizing import Limits, fit_sizes

_NUM_TRIES = 16
_LOWER = 0.75  # of the target, after a try that did not reach it
_LIMITS = Limits(least_ms=0.0, memory_bytes=12 * 2**30, input_bytes=12 * 2**30)
_NUM_OF_KIND = 4  # ops of each kind that are measured in float16, backward and strided too
_HALF = ("bfloat16", "float16")
_CONTRACTIONS = (Kind.MATMUL, Kind.CONVOLUTION, Kind.ATTENTION)

ROUGH: dict[str, Calibration] = {
    "cpu": Calibration(
        name="rough-cpu",
        source="a guess",
        launch_ms=0.01,
        bandwidth_gb_s={"default": 8.0, "scan": 1.5, "sort": 1.0, "transform": 2.0},
        rate_gflop_s={
            "float32": {"default": 4.0, "matmul": 50.0, "convolution": 40.0, "attention": 30.0},
            "bfloat16": {"default": 1.0, "matmul": 5.0, "convolution": 5.0, "attention": 5.0},
            "float16": {"default": 1.0, "matmul": 5.0, "convolution": 5.0, "attention": 5.0},
        },
    ),
    "cuda": Calibration(
        name="rough-cuda",
        source="a guess",
        launch_ms=0.005,
        bandwidth_gb_s={"default": 3000.0, "scan": 600.0, "sort": 200.0, "transform": 800.0},
        rate_gflop_s={
            "float32": {"default": 2e4, "matmul": 4e4, "convolution": 2e4, "attention": 2e4},
            "bfloat16": {"default": 2e4, "matmul": 4e5, "convolution": 1e5, "attention": 2e5},
            "float16": {"default": 2e4, "matmul": 4e5, "convolution": 1e5, "attention": 2e5},
        },
    ),
}
"""Where draws of sizes start from, and what stays where a fit has no points."""

TARGETS_MS = {"cpu": (0.5, 6.0), "cuda": (0.6, 12.0)}
"""Least and largest eager time that draws aim at."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One op to measure.

    Attributes:
        key: Op, dtype and number: the same draw in every run.
        graph: The graph of the op.
        sizes: Its sizes.
    """

    key: str
    graph: Graph
    sizes: dict[str, int]


def calibration_ops() -> tuple[Op, ...]:
    """Return the ops that tasks of the plan can hold."""
    return tuple(
        op
        for name, op in CATALOGUE.items()
        if op.is_deterministic and name not in BLOCK_OPS and op.ranks
    )


def draw_trials(device: str, num_sizes: int, seed: int) -> Iterator[Trial]:
    """Draw every op at every size, so that any beginning of the list covers what it can.

    All ops come once in float32 and in bfloat16, then some of every kind with their backward
    and on inputs in another order in memory, then the further sizes, some in float16 too.

    Args:
        device: `cpu` or `cuda`.
        num_sizes: Sizes of each op in float32, spread log-uniformly over `TARGETS_MS`.
        seed: Seed of attributes and sizes.
    """
    ops = calibration_ops()
    floats = [op for op in ops if op.in_dtype == op.out_dtype == "float"]
    half = tuple(op for op in ops if not op.is_full_precision)
    halves = {"bfloat16": half, "float16": _some(half, whole=_CONTRACTIONS)}
    backward = _some(tuple(op for op in floats if op.is_backward_deterministic))
    strided = _some(tuple(op for op in floats if not op.needs_contiguous))
    # The middle size first: it says most where nothing else follows.
    order = sorted(range(num_sizes), key=lambda number: abs(2 * number - num_sizes + 1))
    for turn, number in enumerate(order):
        share = (number + 0.5) / num_sizes
        chosen = [(op.name, "float32", PLAIN) for op in ops]
        if turn < len(_HALF):
            chosen += [(op.name, _HALF[turn], PLAIN) for op in halves[_HALF[turn]]]
        if turn == 0:
            chosen += [(op.name, "float32", Style(is_gradient=True)) for op in backward]
            chosen += [(op.name, "float32", Style(layouts=1.0)) for op in strided]
        for name, dtype, style in chosen:
            trial = _draw(name, dtype, style, share, (device, seed))
            if trial is not None:
                yield trial


def _some(ops: tuple[Op, ...], whole: tuple[Kind, ...] = ()) -> list[Op]:
    """Return a few ops of each kind, and all of the kinds in `whole`."""
    chosen = []
    for kind in Kind:
        group = [op for op in ops if op.kind is kind]
        step = 1 if kind in whole else max(1, len(group) // _NUM_OF_KIND)
        chosen += group[::step]
    return chosen


def _label(style: Style) -> str:
    return "backward/" if style.is_gradient else "strided/" if style.layouts else ""


def _draw(
    name: str, dtype: str, style: Style, share: float, where: tuple[str, int]
) -> Trial | None:
    """Draw one op near the share of the way from the least to the largest target."""
    device, seed = where
    key = f"{name}/{dtype}/{_label(style)}{share:.3f}"
    low, high = TARGETS_MS[device]
    target_ms = low * exp(share * log(high / low))
    for attempt in range(_NUM_TRIES):
        text = f"{seed}:{key}:{attempt}".encode()
        rng = random.Random(hashlib.blake2b(text, digest_size=16).digest())
        try:
            graph, first = grow((name,), dtype, rng, style)
            aim_ms = target_ms * _LOWER**attempt
            sizes = fit_sizes(Resolver(graph), first, aim_ms, ROUGH[device], _LIMITS, rng)
        except SampleError:
            continue
        return Trial(key, graph, {size: sizes[size] for size in size_names(graph)})
    return None
