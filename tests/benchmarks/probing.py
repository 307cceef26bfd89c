"""Probes of sampled tasks in one second of one core.

Run: python tests/benchmarks/probing.py [NUM] [--recipe FILE.toml] [--want CLASS]...

Prints, for each class, how many whole probes one core does in a second of its time, and which
share of that goes into the trace. The table of legal graphs is enumerated and every cache of
the process is filled before the first task that counts. Other load does not count.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
import warnings
from pathlib import Path

import torch

from opsgen.child.context import LocalContext
from opsgen.jobs import probe
from opsgen.recipe import read_recipe
from opsgen.records import ProbeRequest, Task
from opsgen.render import render_task
from opsgen.sampler import Plan
from opsgen.verify import trace_code

NUM_WARM = 5


def main() -> None:
    """Print one row for each class."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("num", nargs="?", type=int, default=150, help="lines of each class")
    parser.add_argument("--recipe", type=Path, default=Path("pipelines/broad.toml"))
    parser.add_argument("--want", action="append", default=[], help="a class, such as torch#2")
    args = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    recipe = read_recipe(args.recipe)
    plan = Plan(recipe.seed, recipe.sample)
    print(f"{'class':14} {'tasks':>6} {'probes/s':>9} {'ms each':>8} {'of it trace':>12}")
    with tempfile.TemporaryDirectory() as folder:
        context = LocalContext("cpu", "cpu", Path(folder))
        for data_source in args.want or ["torch#2"]:
            lines = [plan.line(data_source, number) for number in range(args.num + NUM_WARM)]
            tasks = [render_task(line) for line in lines if line.sampled is not None]
            requests = [ProbeRequest(task=t, seed=recipe.seed) for t in tasks]
            for request in requests[:NUM_WARM]:
                probe.run(request, context)
            start_s = time.process_time()
            for request in requests[NUM_WARM:]:
                probe.run(request, context)
            seconds = time.process_time() - start_s
            num_probed = len(requests) - NUM_WARM
            traced = _trace_seconds(tasks[NUM_WARM:])
            print(
                f"{data_source:14} {num_probed:6d} {num_probed / seconds:9.1f} "
                f"{1e3 * seconds / num_probed:8.1f} {traced / seconds:12.0%}",
                flush=True,
            )


def _trace_seconds(tasks: list[Task]) -> float:
    start_s = time.process_time()
    for task in tasks:
        trace_code(task.code)
    return time.process_time() - start_s


if __name__ == "__main__":
    main()
