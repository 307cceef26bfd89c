"""Five hundred compiles in recycled children: memory stays bounded."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from itertools import count, islice
from pathlib import Path

import psutil
import pytest

from opsgen.fleet import Fleet, Journal
from opsgen.recipe import FleetConfig, SampleConfig
from opsgen.records import MeasureEvidence, MeasureRequest
from opsgen.render import render_task
from opsgen.sampler import Plan

NUM_TASKS = 500
RECYCLE_AFTER = 100
MAX_CHILD_BYTES = 2 << 30


class MemoryWatch:
    """Remembers the largest resident memory that any child reached."""

    def __init__(self) -> None:
        self.peak_bytes = 0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> MemoryWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._is_over.wait(0.5):
            for process in psutil.Process().children(recursive=True):
                try:
                    if "opsgen.child" in process.cmdline():
                        self.peak_bytes = max(self.peak_bytes, process.memory_info().rss)
                except psutil.Error:
                    continue


def requests() -> Iterator[tuple[str, MeasureRequest]]:
    plan = Plan(31, SampleConfig(target_ms=(0.05, 0.5)))
    for number in count():
        line = plan.line("torch#2", number)
        if line.sampled:
            task = render_task(line)
            yield (
                task.task_id,
                MeasureRequest(
                    task=task,
                    device="cpu",
                    modes=("eager", "compile"),
                    max_s_per_mode=0.001,
                    seed=1,
                ),
            )


@pytest.mark.slow
def test_memory_is_bounded_over_five_hundred_compiles(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    config = FleetConfig(children_per_device=2, recycle_after=RECYCLE_AFTER)
    with (
        Fleet(config, "cpu") as fleet,
        Journal(tmp_path / "journal.jsonl") as journal,
        MemoryWatch() as watch,
    ):
        attempts = list(fleet.run(islice(requests(), NUM_TASKS), journal))
    assert len(attempts) == NUM_TASKS
    assert all(isinstance(attempt.evidence, MeasureEvidence) for attempt in attempts)
    tasks_by_child: dict[int, int] = {}
    for attempt in attempts:
        tasks_by_child[attempt.pid] = tasks_by_child.get(attempt.pid, 0) + 1
    record_property("peak of a child, MiB", watch.peak_bytes >> 20)
    record_property("tasks by child", sorted(tasks_by_child.values()))
    assert max(tasks_by_child.values()) == RECYCLE_AFTER
    assert watch.peak_bytes < MAX_CHILD_BYTES
