"""How many ordered pairs of ops the sampler can open a task with.

A table wants every rank at which an op may follow another; to count, one rank
is enough, and the whole catalogue takes seconds. A test holds the two equal.
"""

from __future__ import annotations

from opsgen.ops import CATALOGUE, Attrs
from opsgen.ops.intervals import REAL
from opsgen.sampler.algebra import Applied, find_triviality
from opsgen.sampler.pairs import is_degenerate
from opsgen.sampler.strata import STRATA, stratum_of
from opsgen.sampler.table import _TYPICAL, _applications, _attrs_by_rank, start_names


def count_pairs() -> dict[str, int]:
    """Count the legal ordered pairs of each fusion stratum."""
    names = start_names()
    attrs_by_rank = {name: _attrs_by_rank(name) for name in names}
    counts = dict.fromkeys(STRATA, 0)
    for first in names:
        producer = CATALOGUE[first]
        if producer.out_dtype != "float":
            continue
        made = [
            Applied(producer, known.attrs, _TYPICAL[known.rank_in], REAL)
            for known in _applications(first)
        ]
        for second in names:
            if not is_degenerate(first, second) and _may_follow(
                made, second, attrs_by_rank[second]
            ):
                counts[stratum_of(producer, CATALOGUE[second])] += 1
    return counts


def _may_follow(made: list[Applied], name: str, attrs_by_rank: dict[int, list[Attrs]]) -> bool:
    op = CATALOGUE[name]
    if op.in_dtype != "float":
        return False
    for before, known in zip(made, _applications(made[0].op.name), strict=True):
        if not known.interval_out.within(op.domain):
            continue
        for attrs in attrs_by_rank.get(known.rank_out, ()):
            applied = Applied(op, attrs, known.shape_out, known.interval_out, before)
            if find_triviality(applied) is None:
                return True
    return False
