"""How alike tasks are by chance, as a table and a plot of a table of fingerprints.

    python tests/tables/plot_null.py kernelbench --out data/contamination/kernelbench.png

Prints the bins in Markdown; with `--source FOLDER`, which holds the benchmark, also how many of its
tasks of two and more ops are still found when they get a line more. The points of the plot are sampled tasks that the table was not made
with: how near each is to the benchmark, whatever it calls. It needs matplotlib, which the extra
`notebooks` brings.
"""

from __future__ import annotations

import argparse
import ast
import logging
from pathlib import Path

from opsgen.source import foreign_task, read_tasks
from opsgen.source.chance import SEED, draw_tasks
from opsgen.source.fingerprints import NullBin, Table, fingerprint, load_table

Point = tuple[int, float]
_LAST = 600  # tokens at the right end of the plot


def main() -> None:
    """Print the table and write the plot."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("benchmark")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--source", type=Path, help="folder of the benchmark")
    parser.add_argument("--num", type=int, default=3000, help="sampled tasks shown")
    parser.add_argument("--seed", type=int, default=SEED + 1)
    options = parser.parse_args()
    table = load_table(options.benchmark)
    logging.info("%s", markdown(table.null))
    points = nearest_points(table, options.num, options.seed)
    above = sum(similarity > table.limit(num_tokens) for num_tokens, similarity in points)
    logging.info("%d of %d sampled tasks lie above their limit", above, len(points))
    if options.source is not None:
        found = [
            is_found(task.code, table) for task in read_tasks(options.source) if task.level > 1
        ]
        logging.info("%d of %d tasks with a line more lie above theirs", sum(found), len(found))
    plot(table, points, options.out)


def markdown(null: tuple[NullBin, ...]) -> str:
    """Return the bins as a table in Markdown."""
    lines = [
        "| tokens | pairs | median | 90 % | 99 % | 99.9 % | largest |",
        "|---|---|---|---|---|---|---|",
    ]
    tops = [str(each.min_tokens - 1) for each in null[1:]] + [""]
    for each, top in zip(null, tops, strict=True):
        span = f"{each.min_tokens}-{top}" if top else f"{each.min_tokens} and more"
        values = (each.median, each.q90, each.q99, each.q999, each.max)
        numbers = " | ".join(f"{value:.3f}" for value in values)
        lines.append(f"| {span} | {each.num_pairs:,} | {numbers} |")
    return "\n".join(lines)


def nearest_points(table: Table, num_tasks: int, seed: int) -> list[Point]:
    """Return the tokens of sampled tasks of two and more ops, and how near the nearest is."""
    points = []
    for task in draw_tasks(num_tasks, seed):
        if task.level > 1 or task.data_source == "transformers":
            row = fingerprint(task, None, "sampled")
            points.append((row.num_tokens, table.nearest(frozenset(row.shingles))[0]))
    return points


def is_found(code: str, table: Table) -> bool:
    """Return whether a task is above its limit when its forward begins with a line more."""
    tree = ast.parse(code)
    model = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Model")
    forward = next(n for n in model.body if isinstance(n, ast.FunctionDef) and n.name == "forward")
    name = forward.args.args[1].arg
    forward.body[:0] = ast.parse(f"{name} = {name}.contiguous()").body
    row = fingerprint(foreign_task(ast.unparse(tree), origin="padded"), None, "padded")
    return table.nearest(frozenset(row.shingles))[0] > table.limit(row.num_tokens)


def plot(table: Table, points: list[Point], path: Path) -> None:
    """Draw quantiles by length over the points."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.ticker import NullFormatter, StrMethodFormatter

    figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
    axes.scatter(
        *zip(*points, strict=True), s=4, color="0.7", label="sampled tasks", rasterized=True
    )
    edges = [max(each.min_tokens, 15) for each in table.null] + [_LAST]
    for name, label, color in (
        ("median", "median", "tab:blue"),
        ("q99", "99 %", "tab:green"),
        ("q999", "99.9 %: the limit", "tab:red"),
    ):
        values = [getattr(each, name) for each in table.null]
        axes.stairs(values, edges, baseline=None, color=color, linewidth=1.6, label=label)
    axes.axhline(0.9, color="0.4", linestyle=":", linewidth=1, label="0.9")
    own = [(row.num_tokens, 1.02) for row in table.rows]
    axes.scatter(
        *zip(*own, strict=True), s=12, marker="|", color="black", label="lengths of its tasks"
    )
    axes.set(xscale="log", xlim=(15, _LAST), ylim=(0, 1.05))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xticks([20, 30, 40, 50, 70, 100, 200, 400])
    axes.set_xlabel("tokens of Model in normalised form")
    axes.set_ylabel("Jaccard index to the nearest task")
    figure.legend(loc="outside right upper", fontsize=8)
    figure.savefig(path, dpi=130)


if __name__ == "__main__":
    main()
