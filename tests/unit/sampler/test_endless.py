"""A million lines need no more memory than ten thousand; what each tenth took is noted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SHIPPED = Path(__file__).parents[3] / "pipelines" / "ops6k.toml"
# Classes in the replica's proportions, so that all of its tables are there at once.
PROGRAM = """
import json, sys, time
from pathlib import Path
from opsgen.recipe import read_recipe
from opsgen.render import render_task
from opsgen.sampler import Plan

def peak_gib():
    # Not by getrusage, whose figure begins with the peak of whoever started this process.
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 2**20


recipe, num_lines, num_parts = read_recipe(Path(sys.argv[1])), int(sys.argv[2]), 10
wanted = recipe.release.want
plan = Plan(recipe.seed, recipe.sample)
for name in wanted:
    plan.line(name, 0)
total, seconds, peaks, num_tasks = sum(wanted.values()), [], [], 0
for part in range(num_parts):
    start_s = time.process_time()
    for name, count in wanted.items():
        share = num_lines * count // total // num_parts
        for number in range(part * share, (part + 1) * share):
            line = plan.line(name, number)
            num_tasks += line.sampled is not None and bool(render_task(line).code)
    seconds.append(time.process_time() - start_s)
    peaks.append(peak_gib())
print(json.dumps({"seconds": seconds, "peak_gib": peaks, "num_tasks": num_tasks}))
"""


def realise(num_lines: int) -> dict[str, list[float]]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(SHIPPED), str(num_lines)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def hold(told: dict[str, list[float]], num_lines: int) -> None:
    assert told["num_tasks"] >= 0.98 * num_lines  # type: ignore[operator]
    assert max(told["peak_gib"]) < 1.0


@pytest.mark.check
def test_ten_thousand_lines(record_property: pytest.FixtureRequest) -> None:
    told = realise(10_000)
    record_property("of ten thousand lines", json.dumps(told))  # type: ignore[operator]
    hold(told, 10_000)


@pytest.mark.slow
def test_a_million_lines(record_property: pytest.FixtureRequest) -> None:
    told = realise(1_000_000)
    record_property("of a million lines", json.dumps(told))  # type: ignore[operator]
    hold(told, 1_000_000)
    # What is kept is kept early: the last tenths add next to nothing.
    assert told["peak_gib"][-1] - told["peak_gib"][4] < 0.1
