"""Rendered source runs, gives the predicted shapes, and stands as black would write it."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Any

import black
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from opsgen.recipe import SampleConfig
from opsgen.records import Task
from opsgen.render import render_source, render_tapped, render_task
from opsgen.render.lines import fit_line, split_elements
from opsgen.sampler import Plan

CONFIGS = {
    "cpu": SampleConfig(target_ms=(0.5, 20.0), dags=0.4),
    "h200": SampleConfig(
        dags=0.4, calibration="h200", dtypes={"float32": 1.0, "bfloat16": 1.0, "float16": 1.0}
    ),
    "broad": SampleConfig(
        dags=0.6,
        gradients=0.2,
        values=0.6,
        layouts=0.4,
        odd_sizes=True,
        held_out=True,
        calibration="h200",
        dtypes={"float32": 1.0, "bfloat16": 1.0},
    ),
}
PLANS = {name: Plan(23, config) for name, config in CONFIGS.items()}


def task_at(plan: str, data_source: str, number: int) -> Task | None:
    line = PLANS[plan].line(data_source, number)
    return render_task(line) if line.sampled else None


def leaves(output: Any) -> tuple[torch.Tensor, ...]:
    return output if isinstance(output, tuple) else (output,)


def specs(tensors: Iterable[torch.Tensor]) -> list[tuple[tuple[int, ...], str]]:
    return [(tuple(x.shape), str(x.dtype).removeprefix("torch.")) for x in tensors]


def run_source(code: str) -> dict[str, Any]:
    namespace: dict[str, Any] = {}
    exec(compile(code, "task", "exec"), namespace)
    return namespace


places = st.tuples(
    st.sampled_from(sorted(PLANS)),
    st.sampled_from(["torch#1", "torch#2", "torch#3"]),
    st.integers(min_value=0, max_value=10**6),
)


@given(places)
@settings(max_examples=40)
def test_source_on_meta_gives_the_predicted_outputs(place: tuple[str, str, int]) -> None:
    task = task_at(*place)
    if task is None:
        return
    namespace = run_source(task.code)
    workload = task.workloads[0]
    with torch.device("meta"):
        model = namespace["Model"](*namespace["get_init_inputs"]()).eval()
        inputs = namespace["get_inputs"]()
        outputs = leaves(model(*inputs))
    assert specs(inputs) == [(spec.shape, spec.dtype) for spec in workload.inputs]
    assert [_layout(x) for x in inputs if x.ndim > 1 and min(x.shape) > 1] == [
        spec.layout for spec in workload.inputs if len(spec.shape) > 1 and min(spec.shape) > 1
    ]
    assert specs(outputs) == [(spec.shape, spec.dtype) for spec in workload.outputs]
    assert task.estimate is not None
    num_parameters = sum(parameter.numel() for parameter in model.parameters())
    item = torch.tensor([], dtype=getattr(torch, task.graph.dtype)).element_size()  # type: ignore[union-attr]
    moved = sum(x.numel() * x.element_size() for x in (*inputs, *outputs)) + num_parameters * item
    # Outputs of another type than the graph's are counted in the graph's own.
    is_other = any(output.dtype in (torch.int64, torch.bool) for output in outputs)
    assert is_other or task.estimate.traffic_bytes == moved


def _layout(tensor: torch.Tensor) -> str:
    """Name the order in memory of a tensor without axes of length 1."""
    if tensor.is_contiguous():
        return "contiguous"
    if tensor.transpose(-2, -1).is_contiguous():
        return "transposed"
    assert tensor.movedim(1, -1).is_contiguous()
    return "channels_last"


@given(places)
def test_source_is_as_black_would_write_it(place: tuple[str, str, int]) -> None:
    task = task_at(*place)
    if task is not None:
        assert black.format_str(task.code, mode=black.Mode()) == task.code


@given(places)
def test_source_is_self_contained(place: tuple[str, str, int]) -> None:
    task = task_at(*place)
    if task is None:
        return
    tree = ast.parse(task.code)
    defined = {node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    assert defined == {"Model", "get_inputs", "get_init_inputs"}
    assert "seed" not in task.code
    assert "device" not in task.code
    init = next(
        n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == "__init__"
    )
    used = {n.id for n in ast.walk(init) if isinstance(n, ast.Name)}
    assert {arg.arg for arg in init.args.args[1:]} <= used
    sizes = {t.id for n in tree.body if isinstance(n, ast.Assign) for t in n.targets}  # type: ignore[attr-defined]
    assert sizes == set(task.workloads[0].sizes)


@given(places)
def test_twins_run_and_taps_see_every_node(place: tuple[str, str, int]) -> None:
    task = task_at(*place)
    if task is None or task.graph is None:
        return
    sizes = task.workloads[-1].sizes
    plain = run_source(render_source(task.graph, sizes))
    tapped = run_source(render_tapped(task.graph, sizes))
    seen: list[tuple[int, int]] = []

    def tap(value: int, result: torch.Tensor, args: tuple[torch.Tensor, ...]) -> torch.Tensor:
        seen.append((value, len(args)))
        return result

    tapped["tap"] = tap
    model = plain["Model"](*plain["get_init_inputs"]()).eval()
    twin = tapped["Model"](*tapped["get_init_inputs"]()).eval()
    twin.load_state_dict(model.state_dict(), strict=True)
    inputs = plain["get_inputs"]()
    with torch.no_grad():
        outputs, others = leaves(model(*inputs)), leaves(twin(*inputs))
    # A gradient is computed in two ways, which may run other kernels.
    tolerance = 0.0 if task.graph.grad_output is None else 0.02
    for output, other in zip(outputs, others, strict=True):
        torch.testing.assert_close(output, other, rtol=tolerance, atol=tolerance, equal_nan=True)
    predicted = task.workloads[-1].outputs
    assert specs(outputs) == [(spec.shape, spec.dtype) for spec in predicted]
    first = len(task.graph.inputs)
    assert seen == [(first + i, len(node.args)) for i, node in enumerate(task.graph.nodes)]


@pytest.mark.check
def test_a_thousand_tasks_run_on_meta() -> None:
    num_tasks = 0
    for number in range(1000):
        task = task_at("h200", "torch#2", number)
        if task is None:
            continue
        namespace = run_source(task.code)
        with torch.device("meta"):
            model = namespace["Model"](*namespace["get_init_inputs"]()).eval()
            outputs = leaves(model(*namespace["get_inputs"]()))
        predicted = task.workloads[0].outputs
        assert specs(outputs) == [(spec.shape, spec.dtype) for spec in predicted], task.code
        num_tasks += 1
    assert num_tasks >= 900


names = st.sampled_from(
    ["x", "height", "a_rather_long_name", 'mode="reflect"', "(1, 2)", "f(a, b)"]
)


@given(
    st.lists(names, min_size=1, max_size=16),
    st.sampled_from(["        return F.pad(", "    y = g["]),
)
def test_long_lines_split_as_black_splits_them(elements: list[str], head: str) -> None:
    line = f"{head}{', '.join(elements)}{')' if '(' in head else ']'}"
    if "[" in head:
        line = line.replace('mode="reflect"', "mode")
    body = "\n".join(fit_line(line))
    source = f"def f():\n{body}\n" if "    y" in head else f"class C:\n    def f():\n{body}\n"
    assert black.format_str(source, mode=black.Mode()) == source
    assert split_elements(", ".join(elements)) == elements
