"""Fusion strata: what a pair of ops would gain from being one kernel.

A pair is worth fusing if that spares a round trip of the intermediate through
memory; how the consumer reads it decides what a fused kernel looks like. A
task belongs to the stratum of the pair that opens it. Quotas over the strata
keep the mix from being what chance makes of the catalogue, where most pairs
are pointwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple

from opsgen.ops import CATALOGUE, Kind, Op

STRATA: dict[str, str] = {
    "epilogue": "contraction, then pointwise: applied while the tile is on the chip",
    "statistics": "contraction, then row statistics: needs the owner of the row",
    "prologue": "anything cheaper, then contraction: recompute or store",
    "chain": "contraction, then contraction: the intermediate stays on the chip",
    "row": "row statistics and pointwise in either order: one pass over the row",
    "window": "windows beside pointwise or statistics: halos",
    "layout": "moves and gathers beside anything that computes: index remapping",
    "scan": "scans and sorts beside pointwise or statistics: block scans",
    "other": "distances, transforms and what fits nowhere else",
    "pointwise": "pointwise on pointwise: compilers do it unasked",
}

ROLES: dict[str, tuple[Kind, ...]] = {
    "contraction": (Kind.CONVOLUTION, Kind.MATMUL, Kind.ATTENTION),
    "row": (Kind.REDUCTION, Kind.NORMALIZATION, Kind.SOFTMAX, Kind.LOSS),
    "pointwise": (Kind.POINTWISE, Kind.BINARY),
    "window": (Kind.POOLING, Kind.RESAMPLE),
    "layout": (Kind.LAYOUT, Kind.INDEX),
    "scan": (Kind.SCAN, Kind.SORT),
    "other": (Kind.DISTANCE, Kind.TRANSFORM),
}
"""What a kind is to a fused kernel: strata are pairs of roles."""

_CONTRACTIONS, _ROWS, _POINTWISE = ROLES["contraction"], ROLES["row"], ROLES["pointwise"]
# For pairs with no contraction behind a contraction: the rarer side names the stratum.
_BY_EITHER = tuple((role, ROLES[role]) for role in ("other", "scan", "window", "layout", "row"))

CYCLE = 1000  # lines after which a schedule repeats; quotas are exact over it
_NUM_FITS = 200
_GOLDEN = 0.6180339887498949


def role_of(op: Op) -> str:
    """Return what an op is to a fused kernel: one of `ROLES`."""
    return next(role for role, kinds in ROLES.items() if op.kind in kinds)


def stratum_of(first: Op, second: Op) -> str:
    """Return the stratum of a producer and the op that reads it."""
    if first.kind in _CONTRACTIONS:
        if second.kind in _CONTRACTIONS:
            return "chain"
        if second.kind in _POINTWISE:
            return "epilogue"
        if second.kind in _ROWS:
            return "statistics"
    elif second.kind in _CONTRACTIONS:
        return "prologue"
    for name, kinds in _BY_EITHER:
        if first.kind in kinds or second.kind in kinds:
            return name
    return "pointwise"


def stratum_of_sequence(names: tuple[str, ...]) -> str | None:
    """Return the stratum of a sequence of ops; None for a single one."""
    if len(names) < 2:
        return None
    return _stratum_of_names(names[0], names[1])


@cache
def _stratum_of_names(first: str, second: str) -> str:
    return stratum_of(CATALOGUE[first], CATALOGUE[second])


TOPOLOGIES: dict[str, str] = {
    "chain": "every op reads the one before it and nothing else",
    "inputs": "several task inputs meet: gates, residuals, second operands",
    "shared": "a value is read more than once: shared subexpressions",
    "outputs": "a chain that returns an intermediate beside its last value",
}


class Cell(NamedTuple):
    """What the plan decides of a line before it looks for a sequence.

    Attributes:
        stratum: Fusion stratum of the pair that opens it; None for single ops.
        topology: A name of `TOPOLOGIES`.
        is_gradient: The task returns gradients.
        is_half: Its dtype is shorter than float32.
        is_seen: Whether real code has its opening pair; None if that does not matter.
    """

    stratum: str | None
    topology: str = "chain"
    is_gradient: bool = False
    is_half: bool = False
    is_seen: bool | None = None

    @property
    def with_operands(self) -> bool:
        """Whether some op reads several tensors."""
        return self.topology in ("inputs", "shared")


def balance(
    rows: Mapping[str | None, float],
    columns: Mapping[Cell, float],
    is_possible: Callable[[Cell], bool],
) -> dict[Cell, float]:
    """Share lines out over strata and, within each, over kinds of tasks that it has.

    Iterative proportional fitting (Deming and Stephan, 1940): where a stratum lacks a kind
    of task, others make up for it, so that both kinds of shares hold as far as they can.

    Args:
        rows: Share of each stratum, relative.
        columns: Share of each kind of task, relative: cells whose stratum is ignored.
        is_possible: Whether any sequence belongs to a cell.
    """
    wanted_rows, wanted_columns = _normalised(rows), _normalised(columns)
    shares = {
        cell: row * column
        for stratum, row in wanted_rows.items()
        for kind, column in wanted_columns.items()
        if row * column > 0 and is_possible(cell := kind._replace(stratum=stratum))
    }
    for _ in range(_NUM_FITS):
        # Strata last: they hold exactly where the two disagree.
        shares = _fitted(shares, wanted_columns, lambda cell: cell._replace(stratum=None))
        shares = _fitted(shares, wanted_rows, lambda cell: cell.stratum)
    return shares


def _normalised(shares: Mapping[Any, float]) -> dict[Any, float]:
    total = sum(shares.values())
    return {name: share / total for name, share in shares.items()}


def _fitted(
    shares: dict[Cell, float], wanted: Mapping[Any, float], line_of: Callable[[Cell], Any]
) -> dict[Cell, float]:
    totals: dict[Any, float] = {}
    for cell, share in shares.items():
        totals[line_of(cell)] = totals.get(line_of(cell), 0.0) + share
    possible = sum(wanted[line] for line in totals)
    return {
        cell: share * wanted[line_of(cell)] / possible / totals[line_of(cell)]
        for cell, share in shares.items()
    }


class Schedule:
    """Which cell each line of a class belongs to, in proportion and evenly spread.

    Args:
        shares: Share of each cell, relative; cells without legal sequences left out.
    """

    def __init__(self, shares: Mapping[Cell, float]) -> None:
        self.counts = _apportion(shares)
        # The slots of a cell stand at equal distances, those of rare cells not all at once: any
        # stretch of lines is about as close to the shares as whole numbers allow.
        slots = [
            ((rank + (0.5 + place * _GOLDEN) % 1.0) / count, place, cell, rank)
            for place, (cell, count) in enumerate(self.counts.items())
            for rank in range(count)
        ]
        self._slots = [
            (cell, rank) for _, _, cell, rank in sorted(slots, key=lambda slot: slot[:2])
        ]

    def place(self, number: int) -> tuple[Cell, int]:
        """Return the cell of a line and its number within the cell."""
        cycle, position = divmod(number, len(self._slots))
        cell, rank = self._slots[position]
        return cell, cycle * self.counts[cell] + rank


def _apportion(shares: Mapping[Cell, float]) -> dict[Cell, int]:
    """Split a cycle by largest remainders."""
    total = sum(shares.values())
    exact = {cell: CYCLE * share / total for cell, share in shares.items() if share > 0}
    counts = {cell: int(part) for cell, part in exact.items()}
    left = CYCLE - sum(counts.values())
    by_remainder = sorted(exact, key=lambda cell: (counts[cell] - exact[cell], str(cell)))
    for cell in by_remainder[:left]:
        counts[cell] += 1
    return {cell: count for cell, count in counts.items() if count}
