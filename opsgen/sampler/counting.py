"""How many ordered pairs of ops the sampler can open a task with."""

from __future__ import annotations

from opsgen.sampler.strata import STRATA
from opsgen.sampler.table import Contents, Table


def count_pairs() -> dict[str, int]:
    """Count the legal ordered pairs of each fusion stratum, by going through the whole table."""
    return {
        stratum: sum(
            Table(Contents(2, with_operands=with_operands, stratum=stratum)).size
            for with_operands in (False, True)
        )
        for stratum in STRATA
    }
