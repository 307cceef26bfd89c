"""The recipes that ship: the replica's numbers, and what broad promises beyond it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from opsgen.recipe import Recipe, read_recipe
from opsgen.sampler import Line, Plan, num_ops

PIPELINES = Path(__file__).parents[3] / "pipelines"
REPLICA = {
    "torch#1": 204,
    "torch#2": 5026,
    "torch#3": 456,
    "torch#4": 168,
    "torch#5": 72,
    "transformers": 74,
}
PROGRAM = """
import hashlib, sys
from pathlib import Path
from opsgen.recipe import read_recipe
from opsgen.records import encode_line
from opsgen.render import render_task
from opsgen.sampler import Plan

recipe, state = read_recipe(Path(sys.argv[1])), hashlib.sha256()
plan, order = Plan(recipe.seed, recipe.sample), eval(sys.argv[2])
made = {}
for number in order:
    for name in ("torch#1", "torch#2", "transformers"):
        line = plan.line(name, number)
        made[name, number] = encode_line(render_task(line)) if line.sampled else b""
for place in sorted(place for place in made if place[1] < 25):
    state.update(made[place])
print(state.hexdigest())
"""


def shipped(name: str) -> Recipe:
    return read_recipe(PIPELINES / f"{name}.toml")


def test_the_replica_has_the_originals_numbers() -> None:
    recipe = shipped("ops6k")
    assert recipe.release.want == REPLICA
    assert sum(REPLICA.values()) == 6000
    assert recipe.sample.min_axis == 512
    assert recipe.sample.dtypes == {"float32": 1.0}
    assert (recipe.sample.dags, recipe.sample.gradients) == (0.0, 0.0)


def test_broad_reaches_from_one_op_to_eight() -> None:
    wanted = shipped("broad").release.want
    assert {num_ops(name) for name in wanted} == set(range(1, 9))


def test_the_replicas_sequences_hardly_repeat() -> None:
    plan = Plan(shipped("ops6k").seed, shipped("ops6k").sample)
    sequences = [
        plan.sequence(name, number) for name, count in REPLICA.items() for number in range(count)
    ]
    assert len(set(sequences)) >= 5000


@pytest.mark.check
@pytest.mark.parametrize("name", ["ops6k", "broad"])
def test_the_same_bytes_whoever_makes_them_in_whatever_order(name: str) -> None:
    found = set()
    for hash_seed, order in (("0", "range(25)"), ("77", "[*range(400, 410), *range(24, -1, -1)]")):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(PIPELINES / f"{name}.toml"), order],
            check=True,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
        )
        found.add(done.stdout)
    assert len(found) == 1


def shares_of(lines: list[Line]) -> dict[str, float]:
    """Return the shares that broad promises, of tasks that are no composites."""
    counts: Counter[str] = Counter()
    for line in lines:
        assert line.sampled is not None
        graph = line.sampled.graph
        reads = [arg for node in graph.nodes for arg in node.args]
        is_gradient = graph.grad_output is not None
        is_dag = len(set(reads)) < len(reads) or len(graph.outputs) > 1
        counts["gradients"] += is_gradient
        counts["not chains"] += is_dag or len(graph.inputs) - is_gradient > 1
        counts[graph.dtype] += 1
        if line.cell.stratum is not None:
            counts[line.cell.stratum] += 1
            counts["in strata"] += 1
    strata = {name: counts[name] / counts["in strata"] for name in shipped("broad").sample.strata}
    others = ("gradients", "not chains", "float32", "bfloat16", "float16")
    return {**strata, **{name: counts[name] / len(lines) for name in others}}


@pytest.mark.slow
def test_broads_quotas_hold_within_one_per_cent(record_property: pytest.FixtureRequest) -> None:
    recipe = shipped("broad")
    plan = Plan(recipe.seed, recipe.sample)
    drawn = [
        plan.line(name, number)
        for name, count in recipe.release.want.items()
        if name != "transformers"
        for number in range(count)
    ]
    lines = [line for line in drawn if line.sampled]
    found = shares_of(lines)
    strata = recipe.sample.strata
    wanted = {name: share / sum(strata.values()) for name, share in strata.items()}
    wanted |= {**recipe.sample.dtypes, "gradients": recipe.sample.gradients}
    wanted["not chains"] = (1 - recipe.sample.gradients) * recipe.sample.dags
    told = {name: (round(found[name], 4), round(share, 4)) for name, share in wanted.items()}
    record_property("found and wanted", f"{len(lines)} of {len(drawn)}: {told}")  # type: ignore[operator]
    assert all(abs(found[name] - share) <= 0.01 for name, share in wanted.items()), told
