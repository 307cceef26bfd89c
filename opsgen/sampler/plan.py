"""The plan: one endless, seeded list of tasks for every quota class.

Line `j` of a class depends on the seed, the class and `j` alone, so that any
process can make any line and a release can be cut in plan order whoever
finished first. In class `torch#k` a schedule gives the line its cell: its
fusion stratum, its topology, and whether it returns gradients. The op
sequence is the next of a keyed permutation of the legal table of that cell,
so that sequences do not repeat until a table is used up; where a sequence
gives no graph, one from the far end of the permutation takes its place. Class
`transformers` goes through all composites in another order each cycle.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import exp, log

from opsgen.errors import SampleError, UsageError
from opsgen.ops import CATALOGUE
from opsgen.ops.user import require_ops
from opsgen.recipe import SampleConfig
from opsgen.records import Estimate, Graph, Workload
from opsgen.sampler.composites import COMPOSITES, composite_of, sequence_of
from opsgen.sampler.cost import Calibration, check_benefit, estimate, load_calibration
from opsgen.sampler.draft import Style
from opsgen.sampler.growth import draft_of, finish
from opsgen.sampler.identity import size_names
from opsgen.sampler.permutation import permute
from opsgen.sampler.quotas import Quotas, half_share
from opsgen.sampler.resolution import Resolution, Resolver, input_specs, output_specs, resolve
from opsgen.sampler.sizing import (
    Limits,
    fit_sizes,
    held_out_sizes,
    longest_axis,
    reach_ms,
    smaller_sizes,
    twin_sizes,
)
from opsgen.sampler.strata import STRATA, Cell

_NUM_TRIES = 6  # at one sequence
_REACH = 0.9
_GOLDEN = 0.6180339887498949
_MAX_LENGTH = 8

TRANSFORMERS = "transformers"
"""The class whose tasks are composites."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """A graph with its workloads: the default, a smaller one, perhaps one held out, the twin."""

    graph: Graph
    workloads: tuple[Workload, ...]
    estimate: Estimate


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the plan: a sampled graph, or none, and what the tries at it met.

    Attributes:
        data_source: Quota class.
        number: Place in the class's list, from 0.
        sequence: Names of the ops, or `blocks.` and that of the composite.
        cell: What the schedule asked for.
        sampled: The graph; None if no try succeeded.
        tries: Reasons of the rejected tries, in order.
    """

    data_source: str
    number: int
    sequence: tuple[str, ...]
    cell: Cell
    sampled: Sampled | None
    tries: tuple[str, ...] = field(default=())


class Plan:
    """All lines of all classes that a seed and a `[sample]` section give.

    Raises:
        UsageError: The section names an unknown calibration, stratum or dtype.
    """

    def __init__(self, seed: int, config: SampleConfig) -> None:
        require_ops(config.user_ops)
        self.seed = seed
        self.config = config
        self.calibration: Calibration = load_calibration(config.calibration)
        self._quotas: dict[int, Quotas] = {}
        _check_shares("strata", config.strata, tuple(STRATA))
        _check_shares("dtypes", config.dtypes, ("float32", "bfloat16", "float16"))

    def line(self, data_source: str, number: int) -> Line:
        """Make one line; the same for every process, machine and order of calls.

        Raises:
            UsageError: There is no such class.
        """
        cell, sequences = self._candidates(data_source, number)
        dtype = self._dtype(number, cell)
        tries: list[str] = []
        primary: tuple[str, ...] | None = None
        for sequence in sequences:
            is_again = primary is not None and composite_of(sequence) is not None
            if is_again and "float32" in self.config.dtypes:
                dtype = "float32"  # not all composites bear less
            primary = primary or sequence
            if dtype != "float32" and not _has_half(sequence):
                tries.append(f"dtype: an op has no {dtype} kernel everywhere")
                continue
            for _ in range(_NUM_TRIES):
                rng = self._rng(data_source, number, len(tries))
                try:
                    sampled = self._sample(sequence, cell, dtype, rng)
                except SampleError as error:
                    tries.append(error.reason)
                else:
                    return Line(data_source, number, sequence, cell, sampled, tuple(tries))
        return Line(data_source, number, primary or (), cell, None, tuple(tries))

    def sequence(self, data_source: str, number: int) -> tuple[str, ...]:
        """Return the op sequence that a line tries first, or what stands for its composite."""
        return next(self._candidates(data_source, number)[1])

    def cell(self, data_source: str, number: int) -> Cell:
        """Return what the schedule asks of a line."""
        return self._candidates(data_source, number)[0]

    def _candidates(self, data_source: str, number: int) -> tuple[Cell, Iterator[tuple[str, ...]]]:
        if data_source == TRANSFORMERS:
            names = tuple(COMPOSITES)
            cycle, place = divmod(number, len(names))
            key = f"{self.seed}:{data_source}:{cycle}"
            # Composites are few: one that gives no graph is tried again.
            sequence = sequence_of(names[permute(place, len(names), key)])
            is_half = (number * _GOLDEN) % 1.0 < half_share(self.config)
            return Cell(None, is_half=is_half), iter((sequence,) * 4)
        length = num_ops(data_source)
        if length not in self._quotas:
            self._quotas[length] = Quotas(self.config, length)
        return self._quotas[length].candidates(number, f"{self.seed}:{data_source}")

    def _dtype(self, number: int, cell: Cell) -> str:
        """Spread the dtypes of a cell evenly: a golden-ratio sequence against their shares."""
        shares = {
            dtype: share
            for dtype, share in self.config.dtypes.items()
            if (dtype != "float32") == cell.is_half
        }
        position = (number * _GOLDEN**2) % 1.0 * sum(shares.values())
        for dtype, share in shares.items():
            position -= share
            if position < 0:
                return dtype
        return next(iter(shares))

    def _rng(self, data_source: str, number: int, attempt: int) -> random.Random:
        text = f"{self.seed}:{data_source}:{number}:{attempt}".encode()
        return random.Random(hashlib.blake2b(text, digest_size=16).digest())

    def _sample(
        self, sequence: tuple[str, ...], cell: Cell, dtype: str, rng: random.Random
    ) -> Sampled:
        config = self.config
        composite = composite_of(sequence)
        floors: dict[str, int] = {}
        if composite is not None:
            graph, first = composite.grow(dtype, rng)
        else:
            draft = draft_of(sequence, dtype, rng, self._style(cell))
            graph, first, floors = finish(draft), draft.draw.sizes, draft.floors
        limits = Limits(
            least_ms=config.target_ms[0],
            memory_bytes=config.memory_gib * 2**30,
            input_bytes=config.input_gib * 2**30,
            floors=floors,
            has_odd_sizes=config.odd_sizes,
        )
        resolver = Resolver(graph)
        sizes = self._fit(resolver, first, limits, rng)
        if longest_axis(graph, sizes) < config.min_axis:
            raise SampleError(f"size: no axis of an input reaches {config.min_axis}")
        resolution = resolver(sizes)
        if composite is None:
            check_benefit(graph, resolution, self.calibration)
        every = {"default": sizes, "smaller": smaller_sizes(resolver, sizes)}
        if config.held_out:
            every["held_out"] = held_out_sizes(
                sizes, lambda: self._fit(resolver, first, limits, rng)
            )
        every["twin"] = twin_sizes(resolver, sizes)
        workloads = tuple(
            workload(graph, each, role, resolver(each)) for role, each in every.items()
        )
        return Sampled(graph, workloads, estimate(graph, resolution, self.calibration))

    def _style(self, cell: Cell) -> Style:
        return Style(
            topology=cell.topology,
            is_gradient=cell.is_gradient,
            values=self.config.values,
            layouts=self.config.layouts,
            has_odd_sizes=self.config.odd_sizes,
            min_axis=self.config.min_axis,
        )

    def _fit(
        self, resolver: Resolver, first: dict[str, int], limits: Limits, rng: random.Random
    ) -> dict[str, int]:
        low, high = self.config.target_ms
        high = min(high, _REACH * reach_ms(resolver, first, self.calibration, limits))
        if high <= low:
            raise SampleError("size: the shortest target is out of reach")
        target_ms = low * exp(rng.random() * log(high / low))
        sizes = fit_sizes(resolver, first, target_ms, self.calibration, limits, rng)
        return {name: sizes[name] for name in size_names(resolver.graph)}


def _check_shares(key: str, shares: dict[str, float], known: tuple[str, ...]) -> None:
    strange = sorted(set(shares) - set(known))
    if strange:
        raise UsageError(f"sample.{key}: {strange[0]!r} is none of {', '.join(known)}")
    if not sum(shares.values()) > 0:
        raise UsageError(f"sample.{key}: the shares add up to nothing")


def _has_half(sequence: tuple[str, ...]) -> bool:
    return not any(CATALOGUE[name].is_full_precision for name in sequence if name in CATALOGUE)


def workload(
    graph: Graph,
    sizes: dict[str, int],
    role: str = "default",
    resolution: Resolution | None = None,
) -> Workload:
    """Describe a graph under an assignment of sizes.

    Args:
        graph: The graph.
        sizes: Its sizes.
        role: As in `Workload.role`.
        resolution: The graph under these sizes, if it is known already.
    """
    resolution = resolution or resolve(graph, sizes)
    return Workload(
        sizes=sizes,
        inputs=input_specs(graph, resolution),
        outputs=output_specs(graph, resolution),
        role=role,
    )


def num_ops(data_source: str) -> int:
    """Return the number of ops of a class's tasks; a composite counts as one.

    Raises:
        UsageError: The class is neither `transformers` nor `torch#k` with k from 1 to 8.
    """
    if data_source == TRANSFORMERS:
        return 1
    head, _, tail = data_source.partition("#")
    if head != "torch" or tail not in {str(number) for number in range(1, _MAX_LENGTH + 1)}:
        raise UsageError(
            f"release.want: {data_source!r} is no class; "
            f"write torch#1 to torch#{_MAX_LENGTH} or transformers"
        )
    return int(tail)
