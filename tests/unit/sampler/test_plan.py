"""The plan is endless, seeded and order-free, and its quotas hold."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from opsgen.errors import UsageError
from opsgen.ops import CATALOGUE
from opsgen.recipe import SampleConfig
from opsgen.records import digest
from opsgen.render import render_task
from opsgen.sampler import Line, Plan, Resolution, is_legal, num_ops, resolve
from opsgen.sampler.cost import predict_ms
from opsgen.sampler.permutation import permute
from opsgen.sampler.strata import CYCLE, stratum_of_sequence

CONFIG = SampleConfig(target_ms=(0.5, 20.0))
CLASSES = st.sampled_from(["torch#1", "torch#2", "torch#3", "torch#5"])
NUMBERS = st.integers(min_value=0, max_value=10**6)
SEEDS = st.integers(min_value=0, max_value=2**63)


def _key(line: Line) -> str:
    return digest(line.sequence, line.tries, render_task(line) if line.sampled else None)


@given(SEEDS, CLASSES, NUMBERS)
def test_a_line_depends_on_seed_class_and_number_alone(
    seed: int, data_source: str, number: int
) -> None:
    plan, other = Plan(seed, CONFIG), Plan(seed, CONFIG)
    other.line("torch#2", number + 1)
    assert _key(plan.line(data_source, number)) == _key(other.line(data_source, number))
    assert len(plan.line(data_source, number).sequence) == num_ops(data_source)


@given(CLASSES, NUMBERS)
def test_sampled_graphs_are_legal_sized_and_connected(data_source: str, number: int) -> None:
    plan = Plan(7, CONFIG)
    line = plan.line(data_source, number)
    if line.sampled is None:
        assert line.tries
        return
    graph, default = line.sampled.graph, line.sampled.workloads[0]
    for workload in line.sampled.workloads:
        resolution = resolve(graph, workload.sizes)
        assert is_legal(resolution)
        shapes = resolution.shapes
        assert workload.inputs == tuple(
            type(spec)(shape=shape, dtype=spec.dtype)
            for spec, shape in zip(workload.inputs, shapes, strict=False)
        )
    low, high = CONFIG.target_ms
    assert 0.5 * low <= line.sampled.estimate.eager_ms <= 2.0 * high
    assert line.sampled.estimate.peak_bytes <= CONFIG.memory_gib * 2**30
    used = {arg for node in graph.nodes for arg in node.args} | set(graph.outputs)
    assert used == set(range(len(graph.inputs) + len(graph.nodes)))
    assert all(max(node.args) < len(graph.inputs) + i for i, node in enumerate(graph.nodes))
    assert prod(default.outputs[0].shape) >= 1


@given(CLASSES, NUMBERS)
def test_workloads_shrink(data_source: str, number: int) -> None:
    plan = Plan(11, CONFIG)
    sampled = plan.line(data_source, number).sampled
    if sampled is None:
        return
    times = [
        predict_ms(sampled.graph, resolve(sampled.graph, each.sizes), plan.calibration)
        for each in sampled.workloads
    ]
    assert times[0] > times[1]
    assert times[0] > times[2]


def test_lines_keep_the_shares_of_dags_dtypes_and_strata() -> None:
    shares = {"epilogue": 3.0, "row": 1.0}
    config = SampleConfig(
        dags=0.3, strata=shares, dtypes={"float32": 3.0, "bfloat16": 1.0}, calibration="h200"
    )
    plan = Plan(3, config)
    sequences = [plan.sequence("torch#2", number) for number in range(1000)]
    dags = [names for names in sequences if any(CATALOGUE[name].has_operands for name in names)]
    assert len(dags) == 200  # the third third returns several values of a chain
    strata = Counter(stratum_of_sequence(names) for names in sequences)
    assert strata == {"epilogue": 750, "row": 250}
    early = Counter(stratum_of_sequence(names) for names in sequences[:40])
    assert abs(early["row"] - 10) <= 1
    lines = [plan.line("torch#2", number) for number in range(200)]
    halves = [line for line in lines if line.sampled and line.sampled.graph.dtype == "bfloat16"]
    assert 40 <= len(halves) <= 55


def test_default_strata_are_exact_over_a_cycle_and_pointwise_pairs_are_rare() -> None:
    plan = Plan(4, SampleConfig(dags=0.0))
    sequences = [plan.sequence("torch#2", number) for number in range(CYCLE)]
    strata = Counter(stratum_of_sequence(names) for names in sequences)
    for name, share in plan.config.strata.items():
        assert abs(strata[name] - CYCLE * share) <= 20, name
    assert strata["pointwise"] <= 0.05 * CYCLE


def test_fusing_would_spare_something() -> None:
    config = SampleConfig(dags=0.3, calibration="h200")
    plan = Plan(8, config)
    for number in range(150):
        sampled = plan.line("torch#2", number).sampled
        if sampled is None:
            continue
        resolution = resolve(sampled.graph, sampled.workloads[0].sizes)
        reads = [sum(map(prod, node.ins)) * node.op.passes for node in resolution.nodes]
        writes = [prod(node.out) for node in resolution.nodes]
        weights = [node.op.params(node.ins, node.attrs) for node in resolution.nodes]
        moved = sum(reads) + sum(writes) + sum(weights)
        times = [
            predict_ms(
                sampled.graph,
                Resolution(resolution.shapes, (node,)),
                plan.calibration,
            )
            for node in resolution.nodes
        ]
        num_reads = resolution.nodes[1].args.count(len(sampled.graph.inputs))
        spared = writes[0] * (1 + num_reads)
        assert spared >= 0.05 * moved or min(times) >= 0.03 * sum(times)


def test_op_sequences_do_not_repeat_and_seeds_differ() -> None:
    plan = Plan(5, CONFIG)
    first = [plan.sequence("torch#2", number) for number in range(6000)]
    assert len(set(first)) >= 5400  # the smallest strata use their tables up
    chains = Plan(5, replace(CONFIG, dags=0.0))
    assert len({chains.sequence("torch#2", number) for number in range(6000)}) >= 5000
    assert first[:50] != [Plan(6, CONFIG).sequence("torch#2", number) for number in range(50)]


def test_nearly_every_line_gives_a_task() -> None:
    plan = Plan(1, CONFIG)
    lines = [plan.line("torch#2", number) for number in range(600)]
    assert sum(line.sampled is not None for line in lines) >= 590


@given(st.integers(min_value=1, max_value=5000), st.text(max_size=8))
def test_permute_is_a_permutation(size: int, key: str) -> None:
    places = range(size) if size < 64 else range(0, size, size // 64)
    images = [permute(place, size, key) for place in places]
    assert len(set(images)) == len(images)
    assert all(0 <= image < size for image in images)


def test_permute_refuses_what_lies_outside() -> None:
    with pytest.raises(ValueError, match="outside"):
        permute(3, 3, "key")


@pytest.mark.parametrize("name", ["torch#0", "torch#x", "torch", "jax#2", "torch#06"])
def test_unknown_classes_are_named(name: str) -> None:
    with pytest.raises(UsageError, match=r"release\.want"):
        num_ops(name)


@pytest.mark.check
def test_other_processes_and_hash_seeds_give_the_same_bytes() -> None:
    code = (
        "from opsgen.recipe import SampleConfig\n"
        "from opsgen.records import encode_line\n"
        "from opsgen.render import render_task\n"
        "from opsgen.sampler import Plan\n"
        "import hashlib\n"
        "plan = Plan(9, SampleConfig(target_ms=(0.5, 20.0)))\n"
        "state = hashlib.sha256()\n"
        "for number in ORDER:\n"
        "    line = plan.line('torch#3', number)\n"
        "    if number < 40 and line.sampled: state.update(encode_line(render_task(line)))\n"
        "print(state.hexdigest())\n"
    )
    found = set()
    for hash_seed, order in (("0", "range(40)"), ("77", "[*range(900, 950), *range(40)]")):
        done = subprocess.run(
            [sys.executable, "-c", code.replace("ORDER", order)],
            check=True,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
        )
        found.add(done.stdout)
    assert len(found) == 1
