"""Source rules over rows in one second of one core, reading the tree included.

Run: python tests/benchmarks/source_rules.py [FOLDER]... [--recipe FILE.toml] [--lines NUM]

Checks every `.py` file below the folders, or tasks sampled from a recipe where no folder is
given, and prints the rate, the share of it that parsing takes, and how many rows break which
rule. Seconds are those of the process: other load on the machine does not count.
"""

from __future__ import annotations

import argparse
import ast
import time
from collections import Counter
from pathlib import Path

from opsgen.recipe import read_recipe
from opsgen.render import render_task
from opsgen.sampler import Plan
from opsgen.source import check_source

PIPELINES = Path(__file__).parents[2] / "pipelines"
REPEATS = 3


def main() -> None:
    """Print the rate and the rules that are broken."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", nargs="*", type=Path, help="folders of tasks")
    parser.add_argument("--recipe", type=Path, default=PIPELINES / "ops6k.toml")
    parser.add_argument("--lines", type=int, default=1000, help="lines of the recipe's plan")
    args = parser.parse_args()
    codes = _read(args.folder) if args.folder else _sample(args.recipe, args.lines)
    for code in codes[:50]:
        check_source(code)
    checked_s = min(_seconds(codes, check_source) for _ in range(REPEATS))
    parsed_s = min(_seconds(codes, _parse) for _ in range(REPEATS))
    num_lines = sum(code.count("\n") + 1 for code in codes)
    print(
        f"{len(codes)} rows of {num_lines / len(codes):.0f} lines: {len(codes) / checked_s:.0f}/s"
    )
    print(f"of the time parsing takes {parsed_s / checked_s:.0%}")
    broken = Counter(rule for code in codes for rule in {f.rule for f in check_source(code)})
    for rule, count in broken.most_common():
        print(f"{count:6d} {rule}")
    print(f"{sum(not check_source(code) for code in codes):6d} without a fault")


def _read(folders: list[Path]) -> list[str]:
    return [path.read_text() for folder in folders for path in sorted(folder.rglob("*.py"))]


def _sample(path: Path, num_lines: int) -> list[str]:
    recipe = read_recipe(path)
    plan, want = Plan(recipe.seed, recipe.sample), recipe.release.want
    codes = []
    for data_source, number in want.items():
        for line in range(round(num_lines * number / sum(want.values()))):
            made = plan.line(data_source, line)
            if made.sampled is not None:
                codes.append(render_task(made).code)
    return codes


def _seconds(codes: list[str], run: object) -> float:
    assert callable(run)
    start_s = time.process_time()
    for code in codes:
        run(code)
    return time.process_time() - start_s


def _parse(code: str) -> object:
    try:
        return ast.parse(code)
    except (SyntaxError, ValueError):
        return None


if __name__ == "__main__":
    main()
