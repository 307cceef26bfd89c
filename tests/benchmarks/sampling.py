"""Tasks sampled, sized and rendered in one second, in one process.

Run: python tests/benchmarks/sampling.py [NUM]
"""

from __future__ import annotations

import sys
import time

from opsgen.recipe import SampleConfig
from opsgen.render import render_task
from opsgen.sampler import Plan

CASES = (
    ("cpu targets", SampleConfig(target_ms=(0.5, 20.0), calibration="cpu")),
    ("h200 targets", SampleConfig(target_ms=(1.2, 30.0), calibration="h200")),
)


def main() -> None:
    """Print the rate of each class and calibration."""
    num_lines = int(sys.argv[1]) if len(sys.argv) > 1 else 5000
    print(f"{'':14} {'class':12} {'lines':>6} {'tasks':>6} {'tasks/s':>8}")
    for title, config in CASES:
        plan = Plan(1, config)
        for data_source in ("torch#1", "torch#2", "torch#3", "transformers"):
            plan.line(data_source, 0)  # the legal table is enumerated once
            start_s = time.perf_counter()
            lines = (plan.line(data_source, number) for number in range(num_lines))
            num_tasks = sum(bool(render_task(line).code) for line in lines if line.sampled)
            rate = num_tasks / (time.perf_counter() - start_s)
            print(f"{title:14} {data_source:12} {num_lines:6d} {num_tasks:6d} {rate:8.0f}")


if __name__ == "__main__":
    main()
