"""Composites grow, stay legal when resized, run, and compute what their origins compute."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import black
import pytest
import torch
from composite_cases import Case, case_of, grown
from composite_classes import CLASSES
from composite_formulas import FORMULAS as OLDER
from composite_recurrences import RECURRENCES
from msgspec.structs import replace

from opsgen.child.context import LocalContext
from opsgen.errors import SampleError
from opsgen.jobs import probe
from opsgen.ops import CATALOGUE
from opsgen.recipe import SampleConfig
from opsgen.records import ProbeRequest, Task, digest
from opsgen.render import render_task
from opsgen.sampler import (
    COMPOSITES,
    Composite,
    Plan,
    composite_of,
    graph_hash,
    is_legal,
    num_ops,
    resolve,
)
from opsgen.sampler.composites import Builder

CONFIG = SampleConfig(target_ms=(1.2, 30.0), calibration="h200")
FORMULAS = {**OLDER, **RECURRENCES}
every_composite = pytest.mark.parametrize("name", COMPOSITES)


def tasks(num_cycles: int, seed: int = 3, config: SampleConfig = CONFIG) -> list[Task]:
    plan = Plan(seed, config)
    lines = [plan.line("transformers", n) for n in range(num_cycles * len(COMPOSITES))]
    return [render_task(line) for line in lines if line.sampled]


def run_source(task: Task, device: str) -> tuple[Any, list[torch.Tensor]]:
    space: dict[str, Any] = {}
    exec(compile(task.code, task.ops[0], "exec"), space)
    with torch.device(device):
        return space["Model"](*space["get_init_inputs"]()).eval(), space["get_inputs"]()


def test_there_are_enough_and_each_has_a_reference_and_an_origin() -> None:
    assert len(COMPOSITES) >= 40
    assert len({composite.family for composite in COMPOSITES.values()}) >= 6
    assert FORMULAS.keys() | CLASSES.keys() == COMPOSITES.keys()
    assert all(composite_of((name,)) is None for name in CATALOGUE)
    for name, composite in COMPOSITES.items():
        assert (name in CLASSES) == composite.origin.startswith("transformers."), name
        assert composite.license in (None, "Apache-2.0", "BSD-3-Clause")
        assert composite.license or composite.origin.startswith("arXiv ")


@every_composite
def test_composites_grow_for_nearly_all_seeds_and_are_legal(name: str) -> None:
    num_grown = 0
    for seed in range(25):
        try:
            graph, sizes = COMPOSITES[name].grow("float32", random.Random(seed))
        except SampleError:
            continue
        num_grown += 1
        assert is_legal(resolve(graph, sizes))
        used = {arg for node in graph.nodes for arg in node.args} | set(graph.outputs)
        assert used == set(range(len(graph.inputs) + len(graph.nodes)))
    assert num_grown >= 20


def agree(name: str, reference: Callable[[Case], torch.Tensor]) -> None:
    for seed in (1, 2):
        case = case_of(name, seed)
        out = case.output()
        with torch.no_grad():
            expected = reference(case)
        assert out.shape == expected.shape
        scale = expected.abs().mean().item()
        torch.testing.assert_close(out, expected, rtol=2e-4, atol=2e-5 * max(1.0, scale))


@every_composite
def test_twins_are_finite_and_not_constant(name: str) -> None:
    out = case_of(name, 3).output()
    assert out.isfinite().all()
    assert out.std() > 0


@pytest.mark.parametrize("name", FORMULAS)
def test_composites_compute_their_formula(name: str) -> None:
    agree(name, FORMULAS[name])


@pytest.mark.check
@pytest.mark.parametrize("name", CLASSES)
def test_composites_equal_their_public_class(name: str) -> None:
    pytest.importorskip("transformers", reason="compares with classes of transformers")
    agree(name, CLASSES[name])


def test_a_cycle_of_lines_has_every_composite_once_and_cycles_differ() -> None:
    plan, count = Plan(3, CONFIG), len(COMPOSITES)
    cycles = [[plan.sequence("transformers", c * count + n) for n in range(count)] for c in (0, 1)]
    for cycle in cycles:
        found = [composite_of(sequence) for sequence in cycle]
        assert {composite.name for composite in found if composite} == COMPOSITES.keys()
    assert cycles[0] != cycles[1]
    assert num_ops("transformers") == 1


def test_a_line_depends_on_seed_class_and_number_alone() -> None:
    other = Plan(3, CONFIG)
    other.line("transformers", 99)
    for number in (0, 7, 500):
        lines = [plan.line("transformers", number) for plan in (Plan(3, CONFIG), other)]
        assert len({digest(line.tries, render_task(line)) for line in lines if line.sampled}) == 1


@pytest.mark.parametrize("calibration", ["h200", "cpu"])
def test_nearly_every_line_gives_a_task_near_its_target(calibration: str) -> None:
    config = SampleConfig(target_ms=(1.2, 30.0), calibration=calibration)
    found = tasks(3, config=config)
    assert len(found) >= 0.97 * 3 * len(COMPOSITES)
    for task in found:
        assert task.estimate is not None
        assert 0.6 <= task.estimate.eager_ms <= 60.0
        assert task.level == 1
        assert len(task.ops) == 1
        assert task.origin is not None
    counts = Counter(task.graph_hash for task in found)
    assert len(counts) >= 1.5 * len(COMPOSITES)


def test_sources_run_on_meta_as_predicted_and_stand_as_black_would_write_them() -> None:
    for task in tasks(1, seed=5):
        model, inputs = run_source(task, "meta")
        output = model(*inputs)
        workload = task.workloads[0]
        assert [tuple(x.shape) for x in inputs] == [spec.shape for spec in workload.inputs]
        assert tuple(output.shape) == workload.outputs[0].shape, task.code
        assert str(output.dtype) == f"torch.{workload.outputs[0].dtype}"
        assert black.format_str(task.code, mode=black.Mode()) == task.code
        parameters = sum(parameter.numel() for parameter in model.parameters())
        moved = sum(x.numel() * x.element_size() for x in (*inputs, output)) + 4 * parameters
        assert task.estimate is not None
        assert task.estimate.traffic_bytes == moved


def test_half_precision_twins_run() -> None:
    config = SampleConfig(target_ms=(1.2, 30.0), calibration="h200", dtypes={"bfloat16": 1.0})
    found = tasks(1, config=config)
    assert len(found) >= 0.95 * len(COMPOSITES)
    for task in found:
        model, inputs = run_source(task, "meta")
        assert model(*inputs).dtype == torch.bfloat16


@pytest.fixture
def _one_thread() -> Iterator[None]:
    """Twins are too small to share out: waiting threads cost more than they bring."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.check
@pytest.mark.usefixtures("_one_thread")
def test_no_part_of_a_composite_is_dead_and_no_lazy_answer_passes(tmp_path: Path) -> None:
    context = LocalContext("cpu", "cpu", tmp_path)
    for task in tasks(1, seed=7):
        seen = probe.run(ProbeRequest(task=task, seed=3), context)
        assert seen.failure is None, task.code
        assert seen.num_nonfinite == 0
        assert seen.observed == seen.predicted
        assert seen.effects
        assert [effect for effect in seen.effects if effect.margin <= 1] == [], task.code
        assert min(answer.margin for answer in seen.answers) > 10, task.code


def test_modules_keep_the_names_that_readers_know() -> None:
    graph, _ = grown("swiglu", 1)
    labels = [node.label for node in graph.nodes if node.op == "linear"]
    assert labels == ["gate_proj", "up_proj", "down_proj"]
    unnamed = replace(graph, nodes=tuple(replace(node, label=None) for node in graph.nodes))
    assert graph_hash(unnamed) == graph_hash(graph)


def test_recipes_are_held_to_the_catalogue() -> None:
    def build(**given: object) -> Callable[[Builder], object]:
        return lambda b: b.apply("softmax", b.tokens(), **given)

    def wrong_operand(b: Builder) -> object:
        x = b.tokens()
        return b.apply("add", x, b.input("y", 3), meets="same")

    def grow(recipe: Callable[[Builder], object]) -> None:
        Composite("probe", "norm", "arXiv", None, recipe).grow("float32", random.Random(0))

    grow(build(dim=-1))
    for recipe in (build(dim=0), wrong_operand):
        with pytest.raises(SampleError):
            grow(recipe)
    with pytest.raises(AssertionError, match="no choice of"):
        grow(build(dim=-1, axis=1))
