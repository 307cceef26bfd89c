"""A device that only fails stops the run or loses its work to the others."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest
from distributed import LocalCluster
from fleet_runs import CONFIG, NUM_CHILDREN, client_of, noop_requests, settle_all

from opsgen.errors import MeasureError
from opsgen.fleet import Fleet, Journal

pytestmark = pytest.mark.check

NUM_JOBS = 120


def _break(dask_worker: object) -> str:
    """Take away the folder that children are started in, as a lost disk would."""
    folder = Path(dask_worker.local_directory)  # type: ignore[attr-defined]
    shutil.rmtree(folder)
    return str(folder)


def _mend(dask_worker: object) -> None:
    Path(dask_worker.local_directory).mkdir()  # type: ignore[attr-defined]


def test_the_only_device_ends_the_run(tmp_path: Path) -> None:
    with Fleet(CONFIG, "cpu") as fleet, Journal(tmp_path / "journal.jsonl") as journal:
        client_of(fleet).run(_break)
        with pytest.raises(MeasureError, match="no device of the fleet works") as raised:
            list(fleet.run(noop_requests({}, NUM_JOBS), journal))
        assert "\n" not in str(raised.value)
        first = list(journal.attempts())
        # Three tasks to see it, and what the other slots were at: not six attempts a task.
        assert 3 <= len(first) <= 3 + NUM_CHILDREN
        client_of(fleet).run(_mend)
        list(fleet.run(noop_requests({}, NUM_JOBS), journal, history=first))
        settled = settle_all(journal.attempts())
    assert len(settled) == NUM_JOBS
    assert all(end.evidence is not None for end in settled.values())


def test_the_work_goes_elsewhere_and_comes_back(tmp_path: Path) -> None:
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=2, dashboard_address=None, silence_logs=50
        ) as cluster,
        Fleet(CONFIG, "cpu", scheduler=cluster.scheduler_address) as fleet,
        Journal(tmp_path / "journal.jsonl") as journal,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr("opsgen.fleet.roster._FIRST_REST_S", 0.2)
        client = client_of(fleet)
        sick = sorted(client.nthreads())[0]
        client.run(_break, workers=[sick])
        behaviours = dict.fromkeys(range(NUM_JOBS), "sleep:0.02")
        attempts = []
        for attempt in fleet.run(noop_requests(behaviours, NUM_JOBS), journal):
            attempts.append(attempt)
            if len(attempts) == NUM_JOBS // 2:
                client.run(_mend, workers=[sick])
        well_pids = set(client.run(_children, workers=[sick])[sick])
    settled = settle_all(attempts)
    assert len(settled) == NUM_JOBS
    assert all(end.evidence is not None for end in settled.values())
    faults = Counter(attempt.fault.reason for attempt in attempts if attempt.fault is not None)
    assert set(faults) == {"infrastructure"}
    assert faults.total() <= 3 + 2
    assert well_pids & {attempt.pid for attempt in attempts}


def _children() -> list[int]:
    from opsgen.fleet.worker import _SLOTS

    return [slot.child.pid for slot in _SLOTS.values()]
