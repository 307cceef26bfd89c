"""How fast a core reads what a task is: its form, its families, its nearness to a benchmark.

    python tests/benchmarks/identity.py [--num 2000]

Times are of the processor, so that other load counts little.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

from opsgen.source.chance import draw_tasks
from opsgen.source.contamination import find_overlap
from opsgen.source.families import Families
from opsgen.source.normalise import source_hash


def main() -> None:
    """Print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--num", type=int, default=2000)
    codes = [task.code for task in draw_tasks(parser.parse_args().num)]
    families = Families()
    find_overlap(codes[0], None, ("kernelbench",))  # loads the table
    for name, act in (
        ("source_hash", source_hash),
        ("Families.add", families.add),
        ("find_overlap", lambda code: find_overlap(code, None, ("kernelbench",))),
    ):
        print(f"{name}: {rate(act, codes):.0f} tasks/s")
    begin_s = time.process_time()
    families.family_of(codes[0])
    print(f"linking {len(families)} tasks: {time.process_time() - begin_s:.2f} s")


def rate(act: Callable[[str], object], codes: list[str]) -> float:
    """Return calls per second of processor time, each on code that was not read before."""
    texts = [f"{code}# {number}\n" for number, code in enumerate(codes)]
    begin_s = time.process_time()
    for text in texts:
        act(text)
    return len(texts) / (time.process_time() - begin_s)


if __name__ == "__main__":
    main()
