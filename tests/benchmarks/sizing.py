"""How well the cost model sizes a recipe's tasks: eager time aimed at against eager time measured.

Run: python tests/benchmarks/sizing.py RECIPE --num 300 --device cuda --out FILE.jsonl
     python tests/benchmarks/sizing.py --plot FILE.png --out FILE.jsonl

A device is not held for sampling if `--tasks TASKS.jsonl` names a file: tasks are read from
there, or sampled and written to it if there is none; with `--only-sample` that is all.

Tasks come in the order of the plan, classes in proportion to what the recipe wants. A line of
FILE.jsonl is written for each as it ends, and the same command goes on where it was cut. The
plot only reads the file, compressed by `xz` or not; it needs matplotlib, which the extra
`notebooks` brings.
"""

from __future__ import annotations

import argparse
import lzma
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from opsgen.errors import UsageError
from opsgen.fleet import Fleet, Journal, Ledger, Progress
from opsgen.recipe import FleetConfig, Recipe, read_recipe
from opsgen.records import (
    Attempt,
    CalibrateEvidence,
    CalibrateRequest,
    Graph,
    Record,
    Request,
    Task,
    decode_line,
    encode_line,
    end_of_whole_lines,
    read_lines,
)
from opsgen.render import render_task
from opsgen.run.calibrating import why_failed
from opsgen.sampler import Plan

MAX_S = 0.05
MAX_MISSES = 50


class Row(Record, frozen=True, kw_only=True):
    """One task, sized and measured."""

    task_id: str
    data_source: str
    stratum: str
    dtype: str
    is_gradient: bool
    ops: tuple[str, ...]
    graph: Graph
    sizes: dict[str, int]
    predicted_ms: float
    predicted_peak_bytes: int
    eager_ms: float | None = None
    peak_bytes: int | None = None
    input_bytes: int | None = None
    failure: str | None = None


def main() -> int:
    """Measure, or draw what was measured; print the table either way."""
    options = _options()
    try:
        if options.only_sample:
            print(f"{len(_tasks(options, _recipe(options)))} tasks")
            return 0
        out = Path(options.out)
        if options.recipe is not None:
            _run(options, out)
        rows = _read(out)
        if not rows:
            raise UsageError(f"{out}: there is nothing in it")
        recipe = _recipe(options) if options.recipe else None
    except UsageError as error:
        print(f"sizing: {error}", file=sys.stderr)
        return 2
    window = recipe.admit.runtime_window_ms if recipe else (1.05, 95.0)
    print_table(rows, window)
    if options.plot is not None:
        _plot(rows, Path(options.plot), window)
    return 0


def _read(path: Path) -> list[Row]:
    """Read measured rows, compressed ones too."""
    if path.suffix == ".xz":
        return [decode_line(line, Row) for line in lzma.open(path)]
    return list(read_lines(path, Row))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("recipe", nargs="?")
    parser.add_argument("--num", type=int, default=300)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--out")
    parser.add_argument("--tasks", metavar="TASKS.jsonl")
    parser.add_argument("--only-sample", action="store_true")
    parser.add_argument("--plot")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--minutes", type=float, default=8.0, help="begin no task after that")
    parser.add_argument("--children", type=int, default=4)
    options = parser.parse_args()
    if not (options.out or (options.only_sample and options.tasks and options.recipe)):
        parser.error("give --out FILE.jsonl, or a recipe with --tasks and --only-sample")
    return options


def _recipe(options: argparse.Namespace) -> Recipe:
    return read_recipe(Path(options.recipe), tuple(options.set))


def _run(options: argparse.Namespace, out: Path) -> None:
    recipe = _recipe(options)
    known = {row.task_id for row in read_lines(out, Row)}
    tasks = {task.task_id: task for task in _tasks(options, recipe) if task.task_id not in known}
    children = 1 if options.device == "cpu" else options.children
    out.touch()
    with (
        out.open("r+b") as file,
        Fleet(FleetConfig(children_per_device=children), options.device) as fleet,
        tempfile.TemporaryDirectory(prefix="opsgen-sizing-") as folder,
        Journal(Path(folder) / "journal.jsonl") as journal,
        Progress(len(tasks), "sizing") as bar,
    ):
        file.seek(end_of_whole_lines(out))
        file.truncate()
        ledger = Ledger()
        for attempt in fleet.run(_requests(tasks, recipe, options), journal):
            if ledger.add(attempt):
                row = _row(tasks[attempt.key], attempt)
                bar.update("failed" if row.failure else "ok")
                file.write(encode_line(row) + b"\n")
                file.flush()


def _tasks(options: argparse.Namespace, recipe: Recipe) -> list[Task]:
    """Return the tasks that were sampled before, or sample them now."""
    if options.tasks is None:
        return sample_tasks(recipe, options.num)
    path = Path(options.tasks)
    if not path.exists():
        lines = [encode_line(task) + b"\n" for task in sample_tasks(recipe, options.num)]
        path.write_bytes(b"".join(lines))
    return list(read_lines(path, Task))[: options.num]


def _requests(
    tasks: dict[str, Task], recipe: Recipe, options: argparse.Namespace
) -> Iterator[tuple[str, Request]]:
    give_up_s = time.monotonic() + 60 * options.minutes
    for key, task in tasks.items():
        if time.monotonic() > give_up_s:
            return
        yield (
            key,
            CalibrateRequest(code=task.code, device=options.device, max_s=MAX_S, seed=recipe.seed),
        )


def sample_tasks(recipe: Recipe, num: int) -> list[Task]:
    """Sample the first tasks of each class in proportion, classes mixed."""
    plan = Plan(recipe.seed, recipe.sample)
    by_class = []
    for data_source, count in share_out(recipe.release.want, num).items():
        tasks: list[Task] = []
        number = 0
        while len(tasks) < count and number < count + MAX_MISSES:
            line = plan.line(data_source, number)
            number += 1
            if line.sampled is not None:
                tasks.append(render_task(line))
        if len(tasks) < count:
            raise UsageError(f"{data_source}: only {len(tasks)} of {number} lines have a graph")
        by_class += [((place + 0.5) / count, task) for place, task in enumerate(tasks)]
    return [task for _, task in sorted(by_class, key=lambda each: each[0])]


def share_out(want: dict[str, int], num: int) -> dict[str, int]:
    """Split `num` over classes by largest remainders, at least one for each that is wanted."""
    total = sum(want.values())
    exact = {name: num * count / total for name, count in want.items() if count}
    counts = {name: max(1, int(share)) for name, share in exact.items()}
    for name in sorted(exact, key=lambda each: counts[each] - exact[each]):
        if sum(counts.values()) >= num:
            break
        counts[name] += 1
    return counts


def _row(task: Task, attempt: Attempt) -> Row:
    assert task.graph is not None
    assert task.estimate is not None
    evidence = attempt.evidence
    failure = why_failed(attempt)
    measured: dict[str, Any] = {}
    if isinstance(evidence, CalibrateEvidence) and failure is None:
        measured = {
            "eager_ms": evidence.eager_ms,
            "peak_bytes": evidence.peak_bytes,
            "input_bytes": evidence.input_bytes,
        }
    return Row(
        task_id=task.task_id,
        data_source=task.data_source,
        stratum=task.stratum or "single",
        dtype=task.graph.dtype,
        is_gradient=task.graph.grad_output is not None,
        ops=tuple(node.op for node in task.graph.nodes),
        graph=task.graph,
        sizes=task.workloads[0].sizes,
        predicted_ms=task.estimate.eager_ms,
        predicted_peak_bytes=task.estimate.peak_bytes,
        failure=failure,
        **measured,
    )


def print_table(rows: list[Row], window: tuple[float, float]) -> None:
    """Print for each stratum and some other groups how many are inside, and how far off."""
    low, high = window
    print(f"{'group':16} {'n':>5} {'failed':>6} {'inside':>7} {'m/p':>6} {'p10':>6} {'p90':>6}")
    groups: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda each: (each.stratum, each.dtype, each.data_source)):
        groups.setdefault(row.stratum, []).append(row)
    for row in rows:
        groups.setdefault(f"  {row.data_source}", []).append(row)
    for row in rows:
        groups.setdefault(f"  {row.dtype}", []).append(row)
        if row.is_gradient:
            groups.setdefault("  gradients", []).append(row)
    groups["all"] = rows
    for name, group in groups.items():
        times = [(row.eager_ms, row.predicted_ms) for row in group if row.eager_ms is not None]
        failed = len(group) - len(times)
        if not times:
            print(f"{name:16} {len(group):5d} {failed:6d}")
            continue
        inside = sum(low <= eager_ms <= high for eager_ms, _ in times) / len(times)
        ratios = [eager_ms / predicted_ms for eager_ms, predicted_ms in times]
        tenths = quantiles(ratios, n=10, method="inclusive") if len(ratios) > 1 else ratios * 9
        figures = (median(ratios), tenths[0], tenths[-1])
        print(
            f"{name:16} {len(group):5d} {failed:6d} {inside:7.1%} "
            + " ".join(f"{figure:6.2f}" for figure in figures)
        )
    peaks = [
        row.peak_bytes / row.predicted_peak_bytes for row in rows if row.peak_bytes is not None
    ]
    if len(peaks) > 1:
        tenths = quantiles(peaks, n=10, method="inclusive")
        print(f"peak memory, m/p: {median(peaks):.2f}, p10 {tenths[0]:.2f}, p90 {tenths[-1]:.2f}")


def _plot(rows: list[Row], path: Path, window: tuple[float, float]) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    strata = sorted({row.stratum for row in rows})
    columns = min(4, len(strata))
    num_rows = -(-len(strata) // columns)
    figure, axes = plt.subplots(
        num_rows,
        columns,
        figsize=(3 * columns, 3 * num_rows),
        sharex=True,
        sharey=True,
        squeeze=False,
    )
    measured = [row for row in rows if row.eager_ms is not None]
    ends = [min(row.predicted_ms for row in measured), max(row.predicted_ms for row in measured)]
    for axis, name in zip(axes.flat, strata, strict=False):
        for dtype in sorted({row.dtype for row in measured}):
            chosen = [row for row in measured if row.stratum == name and row.dtype == dtype]
            axis.scatter(
                [row.predicted_ms for row in chosen],
                [row.eager_ms for row in chosen],
                s=8,
                alpha=0.6,
                label=dtype,
            )
        axis.plot(ends, ends, color="black", linewidth=0.8)
        axis.axhspan(*window, color="tab:green", alpha=0.08)
        axis.set(title=name, xscale="log", yscale="log")
    for axis in axes.flat[len(strata) :]:
        axis.set_visible(False)
    axes.flat[0].legend(fontsize="small")
    for axis in (axes.flat[0].xaxis, axes.flat[0].yaxis):  # shared by all
        axis.set_major_locator(LogLocator(base=10, subs=(1, 3)))
        axis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axis.set_minor_formatter(NullFormatter())
    figure.supxlabel("predicted eager ms")
    figure.supylabel("measured eager ms")
    figure.tight_layout()
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    sys.exit(main())
