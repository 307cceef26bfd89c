"""What is rendered is what was sampled: inputs, outputs and calls of whole plans on `meta`."""

from __future__ import annotations

import gc
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Iterable

import pytest
import torch
from torch import Tensor

from opsgen.records import Task, TensorSpec
from opsgen.verify import describe_calls, record_calls

RECIPES = ("ops6k", "broad")


def disagreement(task: Task) -> str | None:
    """How a task's code, executed as it stands, differs from what the task says of it."""
    space: dict = {}
    try:
        exec(compile(task.code, "task", "exec"), space)
        with torch.device("meta"):
            model = space["Model"](*space["get_init_inputs"]()).eval()
            inputs = space["get_inputs"]()
            recording = record_calls(model, inputs)
    except Exception as error:  # noqa: BLE001 - whatever generated code raises is a finding
        where = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {error} ({where.name}, line {where.lineno})"[:300]
    output = recording.output
    outputs = output if isinstance(output, tuple) else (output,)
    workload = task.workloads[0]
    return (
        tensors_differ("input", inputs, workload.inputs, with_layout=True)
        or tensors_differ("output", outputs, workload.outputs, with_layout=False)
        or describe_calls(task, recording)
    )


def tensors_differ(
    what: str, tensors: Iterable[Tensor], specs: tuple[TensorSpec, ...], *, with_layout: bool
) -> str | None:
    seen = [(tuple(tensor.shape), str(tensor.dtype)) for tensor in tensors]
    told = [(spec.shape, f"torch.{spec.dtype}") for spec in specs]
    if seen != told:
        return f"{what}s are {seen}, not {told}"
    for tensor, spec in zip(tensors, specs, strict=True) if with_layout else ():
        if not has_layout(tensor, spec.layout):
            return f"{what} of strides {tensor.stride()} is not {spec.layout}"
    return None


def has_layout(tensor: Tensor, layout: str) -> bool:
    if layout == "transposed":
        return tensor.transpose(-2, -1).is_contiguous()
    if layout == "channels_last":
        kind = torch.channels_last if tensor.dim() == 4 else torch.channels_last_3d
        return tensor.is_contiguous(memory_format=kind)
    return tensor.is_contiguous()


def by_op(failures: list[tuple[Task, str]]) -> str:
    """One paragraph for each op that most failures have in common, with an example."""
    groups: dict[str, list[tuple[Task, str]]] = defaultdict(list)
    counts = Counter(node.op for task, _ in failures for node in task.graph.nodes)
    for task, witness in failures:
        groups[max((node.op for node in task.graph.nodes), key=counts.__getitem__)].append(
            (task, witness)
        )
    return "\n\n".join(
        f"{op}: {len(found)} tasks, such as {found[0][0].data_source} line {found[0][0].line}\n"
        f"{found[0][1]}\n{found[0][0].code}"
        for op, found in sorted(groups.items(), key=lambda group: -len(group[1]))
    )


def hold_plan(tasks: Iterable[Task | None], record_property) -> None:
    failures: list[tuple[Task, str]] = []
    num_tasks = num_lines = 0
    start_s = time.perf_counter()
    for num_lines, task in enumerate(tasks, 1):
        witness = None if task is None else disagreement(task)
        num_tasks += task is not None
        if task is not None and witness is not None:
            failures.append((task, witness))
        if num_lines % 500 == 0:
            gc.collect()
    rate = num_tasks / (time.perf_counter() - start_s)
    record_property("tasks", f"{num_tasks} of {num_lines} lines, {rate:.0f}/s")
    assert num_tasks >= 0.9 * num_lines
    if failures:
        pytest.fail(f"{len(failures)} of {num_tasks} tasks\n{by_op(failures)}", pytrace=False)


@pytest.mark.parametrize("name", RECIPES)
def test_a_plan_is_what_it_says(planned, shipped, name, record_property) -> None:
    recipe = shipped(name, "torch#1", "torch#2", "transformers")
    hold_plan(planned(recipe, 150), record_property)


@pytest.mark.check
@pytest.mark.parametrize("name", RECIPES)
def test_all_classes_of_a_plan_are_what_they_say(planned, shipped, name, record_property) -> None:
    hold_plan(planned(shipped(name), 600), record_property)


@pytest.mark.slow
@pytest.mark.parametrize("name", RECIPES)
def test_ten_thousand_lines_are_what_they_say(planned, shipped, name, record_property) -> None:
    hold_plan(planned(shipped(name), 10_000), record_property)
