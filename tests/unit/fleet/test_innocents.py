"""Crashing jobs take no innocent with them, which Dask's own throttling would let them do."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from distributed import Client, LocalCluster, as_completed
from fleet_runs import CONFIG, noop_requests, settle_all

from opsgen.fleet import Fleet, Journal

NUM_JOBS = 400
KILLERS = {37: "segfault", 190: "abort", 311: "exit:0"}


@pytest.mark.check
def test_three_killers_among_four_hundred(tmp_path: Path) -> None:
    with Fleet(CONFIG, "cpu") as fleet, Journal(tmp_path / "journal.jsonl") as journal:
        attempts = list(fleet.run(noop_requests(KILLERS, NUM_JOBS), journal))
    settled = settle_all(attempts)
    assert len(settled) == NUM_JOBS
    guilty = {key: end.fault.reason for key, end in settled.items() if end.fault is not None}
    assert guilty == {f"k{number}": "crash" for number in KILLERS}
    # Each killer is asked twice and everybody else once.
    assert len(attempts) == NUM_JOBS + len(KILLERS)


def _work(is_killer: bool) -> bool:
    if is_killer:
        os.kill(os.getpid(), signal.SIGSEGV)
    return True


@pytest.mark.slow
def test_resources_would_lose_innocents(
    record_property: Callable[[str, object], None],
) -> None:
    """The negative control: plain Dask tasks, throttled by `resources=` as is usual for GPUs.

    Restricted tasks are never queued by the scheduler: all are assigned to workers
    at once, so each dying worker makes all of its share suspect. That is why the
    fleet throttles by a window of its own and runs no task in a worker.
    """
    with (
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            resources={"GPU": 1},
            dashboard_address=None,
            silence_logs=50,
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        futures = {
            client.submit(_work, number in KILLERS, key=f"work-{number}", resources={"GPU": 1}): (
                number
            )
            for number in range(NUM_JOBS)
        }
        lost = {
            futures[future]
            for future in as_completed(list(futures), loop=client.loop, raise_errors=False)
            if future.status == "error"
        }
    innocents = lost - KILLERS.keys()
    record_property("innocents lost", f"{len(innocents)} of {NUM_JOBS - len(KILLERS)}")
    # How many depends on what was assigned when the killers struck; ours lose none at all.
    assert len(innocents) > NUM_JOBS // 10
