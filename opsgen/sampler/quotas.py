"""Quotas: what a recipe's shares make of one class, and which sequences its lines try.

The shares of strata, topologies, gradient tasks and half precision are
balanced into cells; a schedule gives every line its cell; the cell's table,
permuted by a key, gives the sequences.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from opsgen.errors import UsageError
from opsgen.recipe import SampleConfig
from opsgen.sampler.permutation import permute
from opsgen.sampler.strata import Cell, Schedule, balance
from opsgen.sampler.table import Contents, Paths, Table

_NUM_RESERVES = 11
_MIN_HALF = 0.4
_DAGS = ("inputs", "shared", "outputs")


class Quotas:
    """The cells of all lines of one class.

    Args:
        config: The recipe's shares.
        length: Number of ops of the class's tasks.

    Raises:
        UsageError: No sequence is of a kind that the recipe asks for.
    """

    def __init__(self, config: SampleConfig, length: int) -> None:
        self._length = length
        strata: Mapping[Any, float] = config.strata
        shares = balance(
            {None: 1.0} if length == 1 else strata,
            _kinds(config, length),
            lambda cell: _is_possible(length, cell),
        )
        if not shares:
            raise UsageError(f"[sample]: no sequence of {length} ops is of the kinds it asks for")
        self._schedule = Schedule(_with_prior(shares, config.prior, length))
        # Cells that share a table take turns at it, so that no sequence comes twice. What can
        # share a value has a table of its own, a part of that of several inputs.
        sharing: dict[Contents, list[Cell]] = {}
        for cell in self._schedule.counts:
            sharing.setdefault(_contents(length, cell), []).append(cell)
        self._turns = {
            cell: (turn, len(cells))
            for cells in sharing.values()
            for turn, cell in enumerate(cells)
        }

    def candidates(self, number: int, key: str) -> tuple[Cell, Iterator[tuple[str, ...]]]:
        """Return the cell of a line and the sequences to try for it, the line's own first.

        Args:
            number: The line.
            key: Names the permutations.
        """
        cell, rank = self._schedule.place(number)
        turn, num_turns = self._turns[cell]
        contents = _contents(self._length, cell)
        return cell, _draws(_table(contents), rank * num_turns + turn, f"{key}:{contents}")


def half_share(config: SampleConfig) -> float:
    """Return the share of tasks in a dtype shorter than float32."""
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
    # Gradients of half precision are mostly rounding: they are float32's where it is asked for.
    half = half_share(config)
    of_gradients = 1.0 if half == 1.0 else 0.0
    of_others = min(1.0, half / forward) if forward and half < 1.0 else half
    halved: dict[Cell, float] = {}
    for cell, share in kinds.items():
        part = of_gradients if cell.is_gradient else of_others
        halved[cell._replace(is_half=True)] = share * part
        halved[cell._replace(is_half=False)] = share * (1.0 - part)
    return {cell: share for cell, share in halved.items() if share > 0}


def _with_prior(shares: dict[Cell, float], prior: float, length: int) -> dict[Cell, float]:
    """Divide cells into pairs of real code and others, where a cell has both."""
    if not prior or length < 2:
        return shares
    divided: dict[Cell, float] = {}
    for cell, share in shares.items():
        parts = {True: prior, False: 1.0 - prior}
        possible = {
            is_seen: part
            for is_seen, part in parts.items()
            if part > 0 and _is_possible(length, cell._replace(is_seen=is_seen))
        }
        if cell.is_gradient or not possible:
            divided[cell] = share
            continue
        for is_seen, part in possible.items():
            divided[cell._replace(is_seen=is_seen)] = share * part / sum(possible.values())
    return divided


def _is_possible(length: int, cell: Cell) -> bool:
    """Whether enough sequences belong to a cell.

    Half precision shares the table of float32, so that sequences do not repeat between
    them: where too few of its sequences bear it, nearly every line would need a reserve.
    """
    size = _table(_contents(length, cell)).size
    if not cell.is_half or not size:
        return size > 0
    opening = min(length, 2)
    num_halves = _table(_contents(opening, cell, is_half=True)).size
    return num_halves > _MIN_HALF * _table(_contents(opening, cell)).size


def _contents(length: int, cell: Cell, *, is_half: bool = False) -> Contents:
    paths = Paths(cell.with_operands, cell.is_gradient, is_half, cell.topology == "shared")
    return Contents(length, cell.stratum, cell.is_seen, paths)


def _draws(table: Table, place: int, key: str) -> Iterator[tuple[str, ...]]:
    """Yield the sequence at a place of the permuted table, then its reserves, from the far end."""
    cycle, place = divmod(place, table.size)
    yield table.sequence(permute(place, table.size, f"{key}:{cycle}"))
    for reserve in range(_NUM_RESERVES):
        far = table.size - 1 - (_NUM_RESERVES * place + reserve) % table.size
        yield table.sequence(permute(far, table.size, f"{key}:{cycle}"))


@lru_cache(maxsize=512)
def _table(contents: Contents) -> Table:
    return Table(contents)
