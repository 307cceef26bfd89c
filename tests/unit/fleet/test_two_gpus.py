"""Two GPUs in one host: a worker, a lease and cores for each, and work for both."""

from __future__ import annotations

import os
import subprocess
import sys
import types
from collections.abc import Iterator
from itertools import combinations, pairwise
from pathlib import Path
from typing import cast

import pytest
from distributed import Client, LocalCluster
from fleet_runs import client_of, noop_requests, settle_all
from hypothesis import given
from hypothesis import strategies as st

from opsgen.fleet import Fleet, Journal
from opsgen.fleet.roster import Roster
from opsgen.recipe import FleetConfig
from opsgen.records import Attempt, NoopEvidence

UUIDS = ("GPU-11111111-aaaa", "GPU-22222222-bbbb")
CHILDREN = 2

# What is asked of NVML before a context exists: a host that has two GPUs and does not say which
# cores are next to them. The environment carries it to workers and children.
_NVML = f"""
UUIDS = {UUIDS!r}

class NVMLError(Exception):
    pass

def nvmlInit(): pass
def nvmlShutdown(): pass
def nvmlSystemGetDriverVersion(): return "570.1"
def nvmlDeviceGetCount(): return len(UUIDS)
def nvmlDeviceGetHandleByIndex(index): return index
def nvmlDeviceGetUUID(handle): return UUIDS[handle]
def nvmlDeviceGetName(handle): return "Fake GPU"
def nvmlDeviceGetHandleByUUID(uuid): raise NVMLError("no more than its name")
"""


CONFIG = FleetConfig(
    children_per_device=CHILDREN, deadlines_s={"start": 60.0, "noop": 20.0}, timing_cores=1
)


@pytest.fixture(name="nvml", scope="module")
def _nvml(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("nvml")
    (folder / "pynvml.py").write_text(_NVML)
    fake = types.ModuleType("pynvml")
    exec(_NVML, fake.__dict__)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "pynvml", fake)
        patch.syspath_prepend(
            folder
        )  # Workers get the path of this process, children the variable.
        search_path = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
        patch.setenv("PYTHONPATH", os.pathsep.join(search_path))
        patch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        yield folder


@pytest.fixture(name="fleet", scope="module")
def _fleet(nvml: Path) -> Iterator[Fleet]:
    with Fleet(CONFIG, "cuda") as fleet:
        yield fleet


@pytest.fixture(name="attempts", scope="module")
def _attempts(fleet: Fleet, tmp_path_factory: pytest.TempPathFactory) -> list[Attempt]:
    behaviours = dict.fromkeys(range(24), "lease:0.1")
    with Journal(tmp_path_factory.mktemp("run") / "journal.jsonl") as journal:
        attempts = list(fleet.run(noop_requests(behaviours, 24), journal))
    assert all(end.evidence is not None for end in settle_all(attempts).values())
    return attempts


def _slots() -> list[tuple[str, int, tuple[int, ...]]]:
    """Return GPU, process and cores of each child of this worker."""
    from opsgen.fleet.worker import _SLOTS

    children = [slot.child for slot in _SLOTS.values()]
    return [
        (
            child.config.device_id,
            child.pid,
            (*child.config.timing_cores, *child.config.other_cores),
        )
        for child in children
    ]


def children_of(fleet: Fleet) -> dict[str, list[tuple[str, int, tuple[int, ...]]]]:
    found: dict[str, list[tuple[str, int, tuple[int, ...]]]] = client_of(fleet).run(_slots)
    return found


def test_each_worker_has_a_gpu_of_its_own(fleet: Fleet, attempts: list[Attempt]) -> None:
    assert fleet.num_devices == len(UUIDS)
    assert fleet.num_slots == CHILDREN * len(UUIDS)
    workers = children_of(fleet)
    gpus = [{gpu for gpu, _, _ in children} for children in workers.values()]
    assert sorted(gpus, key=str) == [{uuid} for uuid in UUIDS]
    pids = set()
    for children in workers.values():
        for gpu, pid, _ in children:
            environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            assert f"CUDA_VISIBLE_DEVICES={gpu}".encode() in environment
            pids.add(pid)
    assert {attempt.pid for attempt in attempts} <= pids


def test_each_gpu_has_cores_of_its_own(fleet: Fleet, attempts: list[Attempt]) -> None:
    host = os.sched_getaffinity(0)
    shares: dict[str, set[int]] = {}
    for children in children_of(fleet).values():
        for gpu, pid, cores in children:
            assert shares.setdefault(gpu, set(cores)) == set(cores)
            assert os.sched_getaffinity(pid) <= (set(cores) or host)
    if len(host) >= len(UUIDS):
        assert all(shares.values())
    assert set().union(*shares.values()) <= host
    for one, other in combinations(shares.values(), 2):
        assert not one & other


def test_each_gpu_has_a_lease_of_its_own(fleet: Fleet, attempts: list[Attempt]) -> None:
    gpu_of = {pid: gpu for children in children_of(fleet).values() for gpu, pid, _ in children}
    spans: dict[str, list[tuple[float, float]]] = {}
    for attempt in attempts:
        assert isinstance(attempt.evidence, NoopEvidence)
        metrics = attempt.evidence.metrics
        spans.setdefault(gpu_of[attempt.pid], []).append((metrics["begin_s"], metrics["end_s"]))
    assert spans.keys() == set(UUIDS)
    for held in spans.values():
        held.sort()
        assert all(one[1] <= other[0] for one, other in pairwise(held))
    # Two children that never held at the same time would share one lease.
    first, second = spans.values()
    assert any(one[0] < other[1] and other[0] < one[1] for one in first for other in second)


def test_all_slots_of_both_are_at_work(fleet: Fleet, tmp_path: Path) -> None:
    behaviours = dict.fromkeys(range(16), "sleep:0.3")
    with Journal(tmp_path / "journal.jsonl") as journal:
        attempts = list(fleet.run(noop_requests(behaviours, 16), journal))
    begins = [attempt.started_s for attempt in attempts]
    at_once = [
        sum(a.started_s <= begin_s < a.started_s + a.wall_s for a in attempts) for begin_s in begins
    ]
    assert max(at_once) == CHILDREN * len(UUIDS)


def test_a_lost_worker_comes_back_to_its_gpu(fleet: Fleet, tmp_path: Path) -> None:
    client = client_of(fleet)
    victim = client.run(os.getpid).popitem()[1]
    behaviours = dict.fromkeys(range(40), "sleep:0.1")
    with Journal(tmp_path / "journal.jsonl") as journal:
        for number, _ in enumerate(fleet.run(noop_requests(behaviours, 40), journal)):
            if number == 4:
                os.kill(victim, 9)
        settled = settle_all(journal.attempts())
    assert len(settled) == 40
    assert all(end.evidence is not None for end in settled.values())
    client.wait_for_workers(len(UUIDS), timeout=60)
    with Journal(tmp_path / "later.jsonl") as journal:
        list(fleet.run(noop_requests(dict.fromkeys(range(16), "sleep:0.2"), 16), journal))
    gpus = {gpu for children in children_of(fleet).values() for gpu, _, _ in children}
    assert gpus == set(UUIDS)


def _num_gpus_of_dask() -> int:
    from distributed.diagnostics import nvml

    return int(nvml.device_get_count())


def test_dask_leaves_gpus_alone(fleet: Fleet) -> None:
    assert set(client_of(fleet).run(_num_gpus_of_dask).values()) == {0}


@pytest.mark.check
def test_a_host_joins_with_both(nvml: Path, tmp_path: Path) -> None:
    with LocalCluster(n_workers=0, dashboard_address=None, silence_logs=50) as cluster:
        address = str(cluster.scheduler_address)
        command = [sys.executable, "-m", "opsgen", "worker", address, "--device", "cuda"]
        search_path = os.pathsep.join([str(nvml), *sys.path])
        environment = {**os.environ, "PYTHONPATH": search_path, "TMPDIR": str(tmp_path)}
        host = subprocess.Popen([*command, "--children", "1"], env=environment)
        try:
            with Fleet(CONFIG, "cuda", address) as fleet:
                client_of(fleet).wait_for_workers(len(UUIDS), timeout=60)
                assert fleet.num_devices == len(UUIDS)
                with Journal(tmp_path / "journal.jsonl") as journal:
                    jobs = noop_requests(dict.fromkeys(range(8), "sleep:0.2"), 8)
                    attempts = list(fleet.run(jobs, journal))
                assert all(attempt.evidence is not None for attempt in attempts)
                children = [one for found in children_of(fleet).values() for one in found]
        finally:
            host.terminate()
            host.wait(timeout=30)
    assert sorted(gpu for gpu, _, _ in children) == sorted(UUIDS)
    assert {attempt.pid for attempt in attempts} == {pid for _, pid, _ in children}


class FakeClient:
    """A scheduler's client that knows its workers' threads and no more."""

    status = "running"

    def __init__(self, slots: dict[str, int]) -> None:
        self.slots = slots

    def nthreads(self) -> dict[str, int]:
        return self.slots


@given(slots=st.lists(st.integers(1, 20), min_size=2, max_size=8), data=st.data())
def test_the_window_fills_all_that_work(slots: list[int], data: st.DataObject) -> None:
    workers = {f"tcp://{number}": num for number, num in enumerate(slots)}
    roster = Roster(cast("Client", FakeClient(workers)))
    assert roster.choice() is None
    assert sum(slots) < roster.window <= max(sum(slots) + 1, 1.25 * sum(slots))
    # One of several that is sick gets nothing, and what the others need stays in flight.
    sick = data.draw(st.sampled_from(sorted(workers)))
    roster.refuse(sick, "the canary's result is wrong")
    left = sum(slots) - workers[sick]
    assert left < roster.window <= max(left + 1, 1.25 * left)
    assert set(roster.choice() or ()) == workers.keys() - {sick}
    roster.accept(sick)
    assert roster.choice() is None
    assert roster.window > sum(slots)
