"""The plan: one endless, seeded list of tasks for every quota class.

Line `j` of a class depends on the seed, the class and `j` alone, so that any
process can make any line and a release can be cut in plan order whoever
finished first. In class `torch#k` a schedule gives the line its fusion
stratum; the op sequence is the next of a keyed permutation of that stratum's
legal table, so that sequences do not repeat until a table is used up. Class
`transformers` goes through all composites in another order each cycle.
"""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass, field
from functools import lru_cache
from math import exp, log

from opsgen.errors import SampleError, UsageError
from opsgen.ops import CATALOGUE
from opsgen.ops.user import require_ops
from opsgen.recipe import SampleConfig
from opsgen.records import Estimate, Graph, Workload
from opsgen.sampler.composites import COMPOSITES, composite_of, sequence_of
from opsgen.sampler.cost import Calibration, check_benefit, estimate, load_calibration
from opsgen.sampler.growth import grow
from opsgen.sampler.identity import size_names
from opsgen.sampler.permutation import permute
from opsgen.sampler.resolution import input_specs, output_specs, resolve
from opsgen.sampler.sizing import check_memory, fit_sizes, smaller_sizes, twin_sizes
from opsgen.sampler.strata import STRATA, Cell, Schedule
from opsgen.sampler.table import Table

_NUM_TRIES = 24
_REACH = 0.9
_GOLDEN = 0.6180339887498949

TRANSFORMERS = "transformers"
"""The class whose tasks are composites."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """A graph with its workloads: the default, a smaller one, the tiny twin."""

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
        sampled: The graph; None if no try succeeded.
        tries: Reasons of the rejected tries, in order.
    """

    data_source: str
    number: int
    sequence: tuple[str, ...]
    sampled: Sampled | None
    tries: tuple[str, ...] = field(default=())


class Plan:
    """All lines of all classes that a seed and a `[sample]` section give.

    Raises:
        UsageError: The section names an unknown calibration or dtype.
    """

    def __init__(self, seed: int, config: SampleConfig) -> None:
        require_ops(config.user_ops)
        self.seed = seed
        self.config = config
        self.calibration: Calibration = load_calibration(config.calibration)
        self._schedules: dict[int, Schedule] = {}
        strange = sorted(set(config.strata) - set(STRATA))
        if strange or not sum(config.strata.values()) > 0:
            raise UsageError(
                f"sample.strata: {strange[0]!r} is none of {', '.join(STRATA)}"
                if strange
                else "sample.strata: the shares add up to nothing"
            )
        unknown = sorted(set(config.dtypes) - {"float32", "bfloat16", "float16"})
        if unknown or not sum(config.dtypes.values()) > 0:
            raise UsageError(
                f"sample.dtypes: {unknown[0]!r} is none of float32, bfloat16, float16"
                if unknown
                else "sample.dtypes: the shares add up to nothing"
            )

    def line(self, data_source: str, number: int) -> Line:
        """Make one line; the same for every process, machine and order of calls.

        Raises:
            UsageError: There is no such class.
        """
        sequence = self.sequence(data_source, number)
        dtype = self._dtype(number, sequence)
        tries: list[str] = []
        for attempt in range(_NUM_TRIES):
            rng = self._rng(data_source, number, attempt)
            try:
                sampled = self._sample(sequence, dtype, rng, attempt)
            except SampleError as error:
                tries.append(error.reason)
            else:
                return Line(data_source, number, sequence, sampled, tuple(tries))
        return Line(data_source, number, sequence, None, tuple(tries))

    def sequence(self, data_source: str, number: int) -> tuple[str, ...]:
        """Return the op sequence of a line, or what stands for its composite."""
        if data_source == TRANSFORMERS:
            names = tuple(COMPOSITES)
            cycle, place = divmod(number, len(names))
            key = f"{self.seed}:{data_source}:{cycle}"
            return sequence_of(names[permute(place, len(names), key)])
        length = num_ops(data_source)
        cell, index = self._schedule(length).place(number)
        table = _table(length, cell)
        cycle, place = divmod(index, table.size)
        key = f"{self.seed}:{data_source}:{cell}:{cycle}"
        return table.sequence(permute(place, table.size, key))

    def _schedule(self, length: int) -> Schedule:
        """Share the lines of a class out over strata, and within each over chains and DAGs."""
        if length not in self._schedules:
            strata: dict[str | None, float] = {None: 1.0}
            if length > 1:
                strata = dict(self.config.strata.items())
            shares: dict[Cell, float] = {}
            for stratum, share in strata.items():
                parts = {True: self.config.dags, False: 1.0 - self.config.dags}
                legal = {
                    is_dag: part
                    for is_dag, part in parts.items()
                    if part > 0 and _table(length, (stratum, is_dag)).size
                }
                # Where a stratum has no chains, or nothing but chains, its share stays its own.
                for is_dag, part in legal.items():
                    shares[stratum, is_dag] = share * part / sum(legal.values())
            self._schedules[length] = Schedule(shares)
        return self._schedules[length]

    def _dtype(self, number: int, sequence: tuple[str, ...]) -> str:
        """Spread dtypes evenly over the lines: a golden-ratio sequence against their shares.

        A line whose ops lack half-precision kernels falls back to float32 if the recipe has it.
        """
        shares = self.config.dtypes
        ops = [CATALOGUE[name] for name in sequence if name in CATALOGUE]
        if "float32" in shares and any(op.is_full_precision for op in ops):
            return "float32"
        position = (number * _GOLDEN) % 1.0 * sum(shares.values())
        for dtype, share in shares.items():
            position -= share
            if position < 0:
                return dtype
        return next(iter(shares))

    def _rng(self, data_source: str, number: int, attempt: int) -> random.Random:
        text = f"{self.seed}:{data_source}:{number}:{attempt}".encode()
        return random.Random(hashlib.blake2b(text, digest_size=16).digest())

    def _sample(
        self, sequence: tuple[str, ...], dtype: str, rng: random.Random, attempt: int
    ) -> Sampled:
        composite = composite_of(sequence)
        graph, first = composite.grow(dtype, rng) if composite else grow(sequence, dtype, rng)
        low, high = self.config.target_ms
        # Long targets are out of reach where memory ends first: later tries aim lower.
        reach = log(high / low) * _REACH**attempt
        target_ms = low * exp(rng.random() * reach)
        sizes = fit_sizes(graph, first, target_ms, self.calibration, rng)
        sizes = {name: sizes[name] for name in size_names(graph)}
        check_memory(graph, sizes, self.config.memory_gib * 2**30)
        if composite is None:
            check_benefit(graph, sizes, self.calibration)
        every = (sizes, smaller_sizes(graph, sizes), twin_sizes(graph, sizes))
        workloads = tuple(workload(graph, each) for each in every)
        return Sampled(graph, workloads, estimate(graph, sizes, self.calibration))


def workload(graph: Graph, sizes: dict[str, int]) -> Workload:
    """Describe a graph under an assignment of sizes."""
    resolution = resolve(graph, sizes)
    return Workload(
        sizes=sizes,
        inputs=input_specs(graph, resolution),
        outputs=output_specs(graph, resolution),
    )


def num_ops(data_source: str) -> int:
    """Return the number of ops of a class's tasks; a composite counts as one.

    Raises:
        UsageError: The class is neither `transformers` nor `torch#k` with k from 1 to 5.
    """
    if data_source == TRANSFORMERS:
        return 1
    head, _, tail = data_source.partition("#")
    if head != "torch" or tail not in {"1", "2", "3", "4", "5"}:
        raise UsageError(
            f"release.want: {data_source!r} is no class; write torch#1 to torch#5 or transformers"
        )
    return int(tail)


@lru_cache(maxsize=256)
def _table(length: int, cell: Cell) -> Table:
    stratum, with_operands = cell
    return Table(length, with_operands=with_operands, stratum=stratum)
