"""The dataset card: YAML for the Hub's viewer and loaders, then one screen for people.

Everything in it is read off the rows, the manifest, the row records and the
table of criteria; there is no text about numbers that could go stale.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from opsgen.admit import CRITERIA, Criterion, Funnel
from opsgen.recipe import write_recipe
from opsgen.records import Environment, Graph, decode_line
from opsgen.release.building import Rows
from opsgen.release.columns import describe_columns
from opsgen.release.manifest import Manifest
from opsgen.release.rows import CONFIGS, TaskRow
from opsgen.sampler.strata import STRATA

_SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))
_MAX_CODE_LINES = 40
_UNCHECKED = {
    "uncontaminated": "Overlap with benchmarks such as KernelBench is not checked.",
    "ops_true": "`ops` is what the generator composed; recorded calls are not compared with it.",
}


def write_card(rows: Rows, manifest: Manifest) -> str:
    """Return the card of a release as Markdown with its YAML block in front."""
    sections = [
        _yaml(manifest),
        _summary(rows, manifest),
        _snippet(),
        _example(rows),
        _funnel(manifest.funnel, len(rows.tasks)),
        _strata(rows),
        _protocol(),
        _environments(manifest.environments),
        _limits(rows),
        _recipe(manifest),
        _columns(),
    ]
    return "\n\n".join(section.strip() for section in sections) + "\n"


def _yaml(manifest: Manifest) -> str:
    num_tasks = sum(manifest.num_released.values())
    size = next((name for limit, name in _SIZES if num_tasks < limit), "n>1M")
    lines = [
        "---",
        f"pretty_name: {json.dumps(manifest.name)}",
        "license: apache-2.0",
        "task_categories:",
        "- text-generation",
        "tags: [code, pytorch, triton, cuda, gpu-kernels, operator-fusion, synthetic]",
        f"size_categories:\n- {size}",
        "configs:",
    ]
    for config in CONFIGS:
        files = [entry for entry in manifest.files if entry.config == config]
        if files:
            lines.append(f"- config_name: {config}")
            lines += ["  default: true"] if config == "tasks" else []
            lines.append("  data_files:")
        for entry in files:
            lines += [f"  - split: {entry.split}", f"    path: {entry.path}"]
    return "\n".join([*lines, "---"])


def _summary(rows: Rows, manifest: Manifest) -> str:
    num_families = len({row.family for row in rows.tasks})
    classes = ", ".join(f"{count} {name}" for name, count in manifest.num_released.items())
    splits = ", ".join(
        f"{entry.num_rows} {entry.split}" for entry in manifest.files if entry.config == "tasks"
    )
    environments = "; ".join(
        f"{one.device_name}, torch {one.torch}" for one in manifest.environments.values()
    )
    return f"""# {manifest.name}

Operator-fusion tasks for teaching models to write GPU kernels: PyTorch modules that were sampled
as graphs of ops, run, certified and timed by opsgen.

**{len(rows.tasks)} tasks** ({classes}) in {num_families} families, split by family ({splits}).
Baselines in eager and `torch.compile` on {environments}.
Every line that was sampled and not admitted is in `rejected`, with the reason and what shows it."""


def _snippet() -> str:
    return """```python
from datasets import load_dataset
tasks = load_dataset("PATH_OR_REPO", "tasks", split="train")
baselines = load_dataset("PATH_OR_REPO", "measurements", split="train")  # joins on task_id
```

`columns=["ops", "data_source", "code"]` gives the three columns of CUDA-Agent-Ops-6K. The code is
executed by whoever uses it: run it in a sandbox."""


def _example(rows: Rows) -> str:
    if not rows.tasks:
        return ""
    fusions = [row for row in rows.tasks if row.level > 1] or list(rows.tasks)
    row = min(fusions, key=lambda row: (len(row.code), row.task_id))
    lines = row.code.strip().splitlines()
    if len(lines) > _MAX_CODE_LINES:
        lines = [*lines[:_MAX_CODE_LINES], "..."]
    medians = {one.mode: one.median_ms for one in rows.measurements if one.task_id == row.task_id}
    facts = _facts(row, medians)
    return "\n".join(["## One row", "", "```python", *lines, "```", "", *_table(facts)])


def _facts(row: TaskRow, medians: Mapping[str, float]) -> list[Sequence[str]]:
    facts = [
        ("ops", f"`{row.ops}`"),
        ("data_source", f"`{row.data_source}`"),
        ("task_id", f"`{row.task_id}`"),
        *(
            (f"{mode}: median_ms", f"{median:.4g}")
            for mode, median in sorted(medians.items())[::-1]
        ),
        ("tolerances", ", ".join(f"{value:.3g}" for value in row.tolerances)),
        ("trivial_margin", f"{_times(row.trivial_margin)} ({row.trivial_answer})"),
    ]
    if row.live_margin is not None:
        facts.append(("live_margin", f"{_times(row.live_margin)} ({row.live_part})"))
    return [("column", "value"), *facts]


def _times(margin: float) -> str:
    return f"{margin:,.0f} x" if margin >= 100.0 else f"{margin:.3g} x"


def _funnel(funnel: Funnel, num_released: int) -> str:
    def share(count: int) -> str:
        return f"{count / funnel.sampled:.1%}" if funnel.sampled else ""

    lines: list[Sequence[str]] = [("", "tasks", "share"), ("sampled", str(funnel.sampled), "")]
    for title, counts in (("rejected", funnel.rejected), ("deferred", funnel.deferred)):
        lines += [
            (f"{title}: `{entry.reason}`", str(entry.count), share(entry.count)) for entry in counts
        ]
    lines.append(("admitted", str(funnel.admitted), share(funnel.admitted)))
    lines.append(("**released**", f"**{num_released}**", share(num_released)))
    text = (
        "A task's reason is its first failing criterion. Admitted tasks that are not released lie "
        "behind the cut: a class takes its first ones in plan order."
    )
    return "\n".join(["## From sampled to released", "", *_table(lines), "", text])


def _strata(rows: Rows) -> str:
    """Count the tasks by fusion stratum, and those that are more than a forward pass of values."""
    counts = Counter(row.stratum for row in rows.tasks)
    lines: list[Sequence[str]] = [("stratum", "tasks", "share", "its first two ops")]
    for name, meaning in STRATA.items():
        if counts[name]:
            share = f"{counts[name] / len(rows.tasks):.1%}"
            lines.append((f"`{name}`", str(counts[name]), share, meaning))
    lines.append(("none", str(counts[None]), f"{counts[None] / max(1, len(rows.tasks)):.1%}", ""))
    parts = ["## Fusion strata", "", *_table(lines)]
    graphs = [decode_line(row.graph, Graph) for row in rows.tasks if row.graph]
    if not graphs:
        return "\n".join(parts)
    gradients = sum(graph.grad_output is not None for graph in graphs)
    several = sum(len(graph.outputs) > 1 for graph in graphs)
    strided = sum(any(one.layout != "contiguous" for one in graph.inputs) for graph in graphs)
    dtypes = Counter(row.dtype for row in rows.tasks if row.dtype).most_common()
    text = (
        f"{gradients} tasks return gradients, {several} several tensors; {strided} read inputs "
        f"that are not contiguous. Dtypes: {', '.join(f'{n} {count}' for n, count in dtypes)}."
    )
    return "\n".join([*parts, "", text])


def _columns() -> str:
    parts = [
        "## Columns",
        "",
        "`rejected` has one split, called `train` because viewers expect it.",
    ]
    for config, kind in CONFIGS.items():
        lines: list[Sequence[str]] = [("column", "type", "meaning")]
        for column in describe_columns(kind):
            name = f"list of {column.type}" if column.is_list else column.type
            lines.append(
                (f"`{column.name}`", name + ("?" if column.is_nullable else ""), column.meaning)
            )
        parts += ["", f"### {config}", "", *_table(lines)]
    return "\n".join(parts)


def _environments(environments: Mapping[str, Environment]) -> str:
    lines: list[Sequence[str]] = [("id", "device", "software", "threads")]
    for name, one in environments.items():
        versions = {"torch": one.torch, "triton": one.triton, "CUDA": one.cuda}
        versions |= {"driver": one.driver, "Python": one.python, "compiler": one.compiler}
        software = ", ".join(f"{what} {value}" for what, value in versions.items() if value)
        lines.append((f"`{name}`", one.device_name, software, str(one.num_threads)))
    return "\n".join(["## Where it was measured", "", *_table(lines)])


def _protocol() -> str:
    lines: list[Sequence[str]] = [("criterion", "holds when")]
    lines += [(f"`{row.name}`", _meaning(row)) for row in CRITERIA]
    text = (
        "Parameters and buffers are redrawn from seeds, and eval mode is meant. The CPU twin is "
        "the task at tiny sizes. Thresholds are in the recipe; evidence of rejected tasks is kept, "
        "so other thresholds need no new measurement."
    )
    return "\n".join(["## What was checked", "", text, "", *_table(lines)])


def _meaning(row: Criterion) -> str:
    readings = (("", row.plan), ("CPU: ", row.probe), ("device: ", row.measure))
    found = [(where, _first_line(read)) for where, read in readings if read is not None]
    if len(found) == 1:
        return found[0][1]
    return "; ".join(f"{where}{meaning}" for where, meaning in found)


def _first_line(function: Callable[..., object]) -> str:
    line = (function.__doc__ or "").strip().partition("\n")[0]
    return line.removeprefix("Hold when ").rstrip(".")


def _recipe(manifest: Manifest) -> str:
    text = (
        "`opsgen run recipe.toml` regenerates the release. Hash of the tasks as values, whatever "
        f"the files: `{manifest.tasks_hash}`."
    )
    lines = ["## Recipe", "", text, "", "```toml", write_recipe(manifest.recipe).strip(), "```"]
    return "\n".join(lines)


def _limits(rows: Rows) -> str:
    names = {row.name for row in CRITERIA}
    lines = [text for name, text in _UNCHECKED.items() if name not in names]
    if any(row.is_advisory for row in rows.measurements):
        lines.insert(0, "Timings on a CPU are advisory: the host's clock, moved by other load.")
    if any(row.is_tolerance_assumed for row in rows.tasks):
        lines.append("Some tolerances are assumed (`is_tolerance_assumed`).")
    lines.append("A baseline belongs to its machine and its torch: compare within one environment.")
    return "\n".join(["## Known limits", "", *(f"- {line}" for line in lines)])


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    head, *body = ([cell.replace("|", "\\|") for cell in row] for row in rows)
    lines = [head, ["---"] * len(head), *body]
    return [f"| {' | '.join(line)} |" for line in lines]
