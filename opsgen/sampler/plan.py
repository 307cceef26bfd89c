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
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import exp, log
from typing import Any

from opsgen.errors import SampleError, UsageError
from opsgen.ops import CATALOGUE
from opsgen.ops.user import require_ops
from opsgen.recipe import SampleConfig
from opsgen.records import Estimate, Graph, Workload
from opsgen.sampler.composites import COMPOSITES, composite_of, sequence_of
from opsgen.sampler.cost import Calibration, check_benefit, estimate, load_calibration
from opsgen.sampler.growth import Style, draft_of, finish
from opsgen.sampler.identity import size_names
from opsgen.sampler.permutation import permute
from opsgen.sampler.resolution import input_specs, output_specs, resolve
from opsgen.sampler.sizing import (
    Limits,
    fit_sizes,
    held_out_sizes,
    longest_axis,
    reach_ms,
    smaller_sizes,
    twin_sizes,
)
from opsgen.sampler.strata import STRATA, Cell, Schedule, balance
from opsgen.sampler.table import Contents, Table

_NUM_TRIES = 6  # at one sequence
_NUM_RESERVES = 7
_REACH = 0.9
_MIN_HALF = 0.4
_GOLDEN = 0.6180339887498949
_MAX_LENGTH = 8
_DAGS = ("inputs", "shared", "outputs")

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
        self._schedules: dict[int, Schedule] = {}
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
            is_half = (number * _GOLDEN) % 1.0 < _half_share(self.config)
            return Cell(None, is_half=is_half), iter((sequence, sequence))
        length = num_ops(data_source)
        schedule = self._schedule(length)
        cell, rank = schedule.place(number)
        offset, num_sharing = _turn(length, cell, tuple(schedule.counts))
        contents = _contents(length, cell)
        key = f"{self.seed}:{data_source}:{contents}"
        return cell, _draws(_table(contents), rank * num_sharing + offset, key)

    def _schedule(self, length: int) -> Schedule:
        """Share the lines of a class out over strata, topologies and gradient tasks."""
        if length not in self._schedules:
            single = {None: 1.0}
            rows: Mapping[Any, float] = single if length == 1 else self.config.strata
            shares = balance(
                rows,
                _kinds(self.config, length),
                lambda cell: _is_possible(length, cell),
            )
            if not shares:
                raise UsageError(
                    f"[sample]: no sequence of {length} ops is of the kinds it asks for"
                )
            self._schedules[length] = Schedule(shares)
        return self._schedules[length]

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
            config.memory_gib * 2**30, config.input_gib * 2**30, floors, config.odd_sizes
        )
        sizes = self._fit(graph, first, limits, rng)
        if longest_axis(graph, sizes) < config.min_axis:
            raise SampleError(f"size: no axis of an input reaches {config.min_axis}")
        if composite is None:
            check_benefit(graph, sizes, self.calibration)
        every = {"default": sizes, "smaller": smaller_sizes(graph, sizes)}
        if config.held_out:
            every["held_out"] = held_out_sizes(sizes, lambda: self._fit(graph, first, limits, rng))
        every["twin"] = twin_sizes(graph, sizes)
        workloads = tuple(workload(graph, each, role) for role, each in every.items())
        return Sampled(graph, workloads, estimate(graph, sizes, self.calibration))

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
        self, graph: Graph, first: dict[str, int], limits: Limits, rng: random.Random
    ) -> dict[str, int]:
        low, high = self.config.target_ms
        high = min(high, _REACH * reach_ms(graph, first, self.calibration, limits))
        if high <= low:
            raise SampleError("size: the shortest target is out of reach")
        target_ms = low * exp(rng.random() * log(high / low))
        sizes = fit_sizes(graph, first, target_ms, self.calibration, limits, rng)
        return {name: sizes[name] for name in size_names(graph)}


def _check_shares(key: str, shares: dict[str, float], known: tuple[str, ...]) -> None:
    strange = sorted(set(shares) - set(known))
    if strange:
        raise UsageError(f"sample.{key}: {strange[0]!r} is none of {', '.join(known)}")
    if not sum(shares.values()) > 0:
        raise UsageError(f"sample.{key}: the shares add up to nothing")


def _half_share(config: SampleConfig) -> float:
    half = sum(share for dtype, share in config.dtypes.items() if dtype != "float32")
    return half / sum(config.dtypes.values())


def _kinds(config: SampleConfig, length: int) -> dict[Cell, float]:
    """Return the share of each kind of task that a recipe asks for, whatever the stratum."""
    # A single op has nothing to share and nothing to return beside its value.
    dags = ("inputs",) if length == 1 else _DAGS
    forward = 1.0 - config.gradients
    kinds = {
        Cell(None, "chain", is_gradient=True): config.gradients,
        Cell(None, "chain"): forward * (1.0 - config.dags),
        **{Cell(None, topology): forward * config.dags / len(dags) for topology in dags},
    }
    if config.prior and length > 1:
        gradients = {cell: share for cell, share in kinds.items() if cell.is_gradient}
        kinds = _split(kinds, config.prior, lambda cell, has: cell._replace(is_seen=has))
        kinds = {cell: kinds[cell] for cell in kinds if not cell.is_gradient} | gradients
    kinds = _split(kinds, _half_share(config), lambda cell, has: cell._replace(is_half=has))
    return {cell: share for cell, share in kinds.items() if share > 0}


def _split(
    kinds: dict[Cell, float], share: float, mark: Callable[[Cell, bool], Cell]
) -> dict[Cell, float]:
    """Divide kinds of tasks into those that have a trait, by its share, and those that do not."""
    return {
        mark(cell, has): whole * (share if has else 1.0 - share)
        for cell, whole in kinds.items()
        for has in (True, False)
    }


def _is_possible(length: int, cell: Cell) -> bool:
    """Whether enough sequences belong to a cell.

    Half precision shares the table of float32, so that sequences do not repeat between
    them: where too few of its sequences bear it, nearly every line would need a reserve.
    """
    contents = _contents(length, cell)
    size = _table(contents).size
    if not cell.is_half:
        return size > 0
    return _table(replace(contents, is_half=True)).size > _MIN_HALF * size


def _contents(length: int, cell: Cell) -> Contents:
    return Contents(
        length, cell.with_operands, cell.stratum, cell.is_gradient, is_seen=cell.is_seen
    )


@lru_cache(maxsize=4096)
def _turn(length: int, cell: Cell, cells: tuple[Cell, ...]) -> tuple[int, int]:
    """Return whose turn a cell's is among those that share its table, and how many they are."""
    contents = _contents(length, cell)
    sharing = [each for each in cells if _contents(length, each) == contents]
    return sharing.index(cell), len(sharing)


def _draws(table: Table, place: int, key: str) -> Iterator[tuple[str, ...]]:
    """Yield the sequence at a place of the permuted table, then its reserves, from the far end."""
    cycle, place = divmod(place, table.size)
    yield table.sequence(permute(place, table.size, f"{key}:{cycle}"))
    for reserve in range(_NUM_RESERVES):
        far = table.size - 1 - (_NUM_RESERVES * place + reserve) % table.size
        yield table.sequence(permute(far, table.size, f"{key}:{cycle}"))


def _has_half(sequence: tuple[str, ...]) -> bool:
    return not any(CATALOGUE[name].is_full_precision for name in sequence if name in CATALOGUE)


def workload(graph: Graph, sizes: dict[str, int], role: str = "default") -> Workload:
    """Describe a graph under an assignment of sizes; `role` is as in `Workload.role`."""
    resolution = resolve(graph, sizes)
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


@lru_cache(maxsize=512)
def _table(contents: Contents) -> Table:
    return Table(contents)
