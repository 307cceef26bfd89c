"""How alike tasks are by chance: the null distribution behind the limits of contamination.

Unrelated are tasks that call another set of ops. Sampled ones, which share
nothing with a benchmark but ops and the KernelBench form, are held against
it, and the benchmark's own against each other, which share an author too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from opsgen.recipe import SampleConfig
from opsgen.records import Task
from opsgen.render import render_task
from opsgen.sampler import Plan
from opsgen.source.fingerprints import Fingerprint, NullBin, form_shingles, make_table
from opsgen.source.normalise import Form, read_form

EDGES = (0, 20, 25, 30, 35, 40, 50, 70, 100, 200)
"""Fewest tokens of each bin; an op is some ten of them."""
SHARES = {
    "torch#1": 0.1,
    "torch#2": 0.4,
    "torch#3": 0.2,
    "torch#4": 0.1,
    "torch#5": 0.1,
    "transformers": 0.1,
}
"""Shares of the classes among the sampled tasks: more long ones than a release has, since
lengths have limits of their own."""
SEED = 20260817

Pair = tuple[int, float]
"""Tokens of a task, and how alike it is to the nearest unrelated one."""


def draw_tasks(num_tasks: int, seed: int = SEED) -> Iterator[Task]:
    """Yield sampled tasks: chains of one to five ops and composites in float32.

    Lines of the plan that have no graph are left out, so that somewhat fewer may come.
    """
    config = SampleConfig(
        dags=0.0, values=0.05, min_axis=512, target_ms=(1.2, 30.0), calibration="h200"
    )
    plan = Plan(seed, config)
    for data_source, share in SHARES.items():
        for number in range(round(share * num_tasks)):
            line = plan.line(data_source, number)
            if line.sampled is not None:
                yield render_task(line)


def null_pairs(
    rows: Sequence[Fingerprint], codes: Mapping[str, str], tasks: Iterable[Task]
) -> list[Pair]:
    """Return pairs of unrelated tasks: each task, and of the rows the nearest unrelated one.

    Args:
        rows: A table's.
        codes: Sources of the rows by their names.
        tasks: Sampled tasks, compared with the rows; the rows are compared among themselves.
    """
    table = make_table(rows)
    forms = [read_form(codes[row.name]) for row in table.rows]
    ops = [frozenset(form.words) for form in forms]

    def pair(form: Form) -> Pair | None:
        own = frozenset(form.words)
        similarity, row = table.nearest(form_shingles(form), lambda row: ops[row] == own)
        return None if row < 0 else (len(form.model_tokens), similarity)

    every = [*forms, *(read_form(task.code) for task in tasks)]
    return [found for form in every if (found := pair(form)) is not None]


def null_bins(pairs: Iterable[Pair]) -> tuple[NullBin, ...]:
    """Return the quantiles of pairs by length; bins without pairs are left out."""
    bins: dict[int, list[float]] = {edge: [] for edge in EDGES}
    for num_tokens, similarity in pairs:
        bins[max(edge for edge in EDGES if edge <= num_tokens)].append(similarity)
    return tuple(_bin(edge, sorted(values)) for edge, values in bins.items() if values)


def _bin(edge: int, values: list[float]) -> NullBin:
    def quantile(share: float) -> float:
        return values[math.ceil(share * len(values)) - 1]

    return NullBin(
        min_tokens=edge,
        num_pairs=len(values),
        median=quantile(0.5),
        q90=quantile(0.9),
        q99=quantile(0.99),
        q999=quantile(0.999),
        max=values[-1],
    )
