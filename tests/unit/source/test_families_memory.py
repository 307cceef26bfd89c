"""A collection of 300,000 rows: families in memory that grows with distinct tasks only."""

from __future__ import annotations

import multiprocessing
import random
import re
import resource
import time
from collections.abc import Iterator

import pytest
from disguises import add_identity

from opsgen.source.chance import draw_tasks
from opsgen.source.families import Families

NUM_DISTINCT = 3000
NUM_ROWS = 300_000
_SIZE = re.compile(r"^(\w+ = )\d+$", re.MULTILINE)
_INPUT = re.compile(r"\bx\b")


def rows(num_rows: int) -> Iterator[tuple[int, str]]:
    """Yield planted near-duplicates: the number of the task and a text that no other row has."""
    rng = random.Random(7)
    tasks = [task for task in draw_tasks(2 * NUM_DISTINCT) if task.level in (2, 3)]
    # Of two tasks of one sampled family either may stand for both.
    codes = list({task.family: task.code for task in tasks}.values())[:NUM_DISTINCT]
    assert len(codes) == NUM_DISTINCT
    for row in range(num_rows):
        number = row % NUM_DISTINCT
        code = codes[number]
        if row // NUM_DISTINCT % 5 == 4:
            code = add_identity(code)
        code = _INPUT.sub(f"x{rng.randrange(10**6)}", code)
        yield number, _SIZE.sub(lambda found: found[1] + str(rng.randrange(2, 10**6)), code)


def group(num_rows: int, answers: multiprocessing.SimpleQueue[tuple[object, ...]]) -> None:
    """Put the time, the peak and what came out of grouping some rows; for a process of its own."""
    begin_s = time.process_time()
    families, shapes = Families(), {}
    for number, code in rows(num_rows):
        shapes.setdefault(number, set()).add(families.add(code))
    names = [{families.family(shape) for shape in each} for each in shapes.values()]
    num_split = sum(len(each) > 1 for each in names)
    num_families = len(set().union(*names))
    cpu_s = time.process_time() - begin_s
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    answers.put((num_split, num_families, len(families), cpu_s, peak_mib))


@pytest.mark.slow
def test_memory_grows_with_distinct_tasks_only(record_property) -> None:
    context = multiprocessing.get_context("spawn")
    answers = context.SimpleQueue()
    peaks = {}
    for num_rows in (NUM_ROWS // 10, NUM_ROWS):
        process = context.Process(target=group, args=(num_rows, answers))
        process.start()
        process.join()
        assert process.exitcode == 0
        num_split, num_families, num_shapes, cpu_s, peaks[num_rows] = answers.get()
        told = f"{num_families} families, {num_shapes} kept, {cpu_s:.0f} s of a core, peak {peaks[num_rows]:.0f} MiB"
        record_property(f"{num_rows} rows of {NUM_DISTINCT} tasks", told)
        assert num_split == 0
        assert NUM_DISTINCT * 0.9 < num_families <= NUM_DISTINCT
        assert num_shapes <= 2 * NUM_DISTINCT
    assert peaks[NUM_ROWS] < peaks[NUM_ROWS // 10] + 8
