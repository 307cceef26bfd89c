"""A fleet finishes everything once, whatever its jobs do, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from distributed import LocalCluster
from fleet_runs import (
    CONFIG,
    NUM_CHILDREN,
    client_of,
    descendants,
    is_alive,
    noop_requests,
    settle_all,
)

from opsgen.child import DeviceLease
from opsgen.errors import MeasureError, UsageError
from opsgen.fleet import Fleet, Journal
from opsgen.recipe import FleetConfig
from opsgen.records import Attempt, NoopEvidence, NoopRequest, Request, read_lines


@pytest.fixture(name="fleet", scope="module")
def _fleet() -> Iterator[Fleet]:
    before = set(descendants())
    with Fleet(CONFIG, "cpu") as fleet:
        yield fleet
        begin_s = time.monotonic()
    assert time.monotonic() - begin_s < 5.0
    assert set(descendants()) - before == set()


def test_faults_touch_nobody_else(fleet: Fleet, tmp_path: Path) -> None:
    workers = client_of(fleet).run(os.getpid)
    faults = {
        3: ("segfault", "crash"),
        9: ("exit", "crash"),
        15: ("raise", "raised"),
        21: ("hang", "timeout:noop"),
        27: ("gpu_oom", "gpu_oom"),
        33: ("measure_error", "infrastructure"),
        39: ("base_exception", "raised"),
        45: ("sigstop", "timeout:noop"),
        51: ("cuda_sticky", "cuda_sticky"),
    }
    behaviours = {number: behaviour for number, (behaviour, _) in faults.items()}
    behaviours[5] = f"crash_once:{tmp_path / 'marker'}"
    with Journal(tmp_path / "journal.jsonl") as journal:
        attempts = list(fleet.run(noop_requests(behaviours, 60), journal))
    assert repr(list(read_lines(journal.path, Attempt))) == repr(attempts)
    settled = settle_all(attempts)
    assert len(settled) == 60
    reasons = {key: end.fault.reason for key, end in settled.items() if end.fault is not None}
    assert reasons == {f"k{number}": reason for number, (_, reason) in faults.items()}
    assert settled["k5"].num_attempts == 2
    assert client_of(fleet).run(os.getpid) == workers


def test_a_second_attempt_gets_a_fresh_child(fleet: Fleet, tmp_path: Path) -> None:
    with Journal(tmp_path / "journal.jsonl") as journal:
        behaviours = dict.fromkeys(range(0, 12, 3), "measure_error")
        attempts = list(fleet.run(noop_requests(behaviours, 12), journal))
    earlier: set[int] = set()
    tries = Counter(attempt.key for attempt in attempts)
    assert sorted(set(tries.values())) == [1, 6]
    # By start: a retry's process is one that no attempt before it ran in.
    for attempt in sorted(attempts, key=lambda attempt: attempt.started_s):
        assert attempt.number == 0 or attempt.pid not in earlier
        earlier.add(attempt.pid)


def test_the_window_is_small_and_requests_are_pulled_late(fleet: Fleet, tmp_path: Path) -> None:
    num_pulled = 0

    def endless() -> Iterator[tuple[str, Request]]:
        nonlocal num_pulled
        while True:
            num_pulled += 1
            yield f"k{num_pulled}", NoopRequest(key=f"k{num_pulled}")

    with Journal(tmp_path / "journal.jsonl") as journal:
        stream = fleet.run(endless(), journal)
        for num_seen, _ in enumerate(stream, start=1):
            assert num_pulled - num_seen <= NUM_CHILDREN + 1
            if num_seen == 50:
                break


def test_a_key_is_worked_at_once_only(fleet: Fleet, tmp_path: Path) -> None:
    requests = noop_requests({}, 5) * 3
    with Journal(tmp_path / "journal.jsonl") as journal:
        attempts = list(fleet.run(requests, journal))
    assert len(attempts) == 5


def test_history_is_not_done_again(fleet: Fleet, tmp_path: Path) -> None:
    behaviours = {0: "raise", 1: "crash_once:/no/such/folder", 2: "measure_error"}
    with Journal(tmp_path / "journal.jsonl") as journal:
        first = list(fleet.run(noop_requests(behaviours, 4), journal))
        tries = Counter(attempt.key for attempt in first)
        again = list(fleet.run(noop_requests({}, 6), journal, history=first))
        numbers = {attempt.key: attempt.number for attempt in again}
        lines = [(attempt.key, attempt.number) for attempt in journal.attempts()]
    # The deferred one is tried again, under numbers of its own; the new ones start.
    assert numbers == {"k2": tries["k2"], "k4": 0, "k5": 0}
    assert len(lines) == len(set(lines))


def test_closing_the_stream_frees_the_slots(fleet: Fleet, tmp_path: Path) -> None:
    behaviours = dict.fromkeys(range(1, 20), "gil_sleep")
    slow = FleetConfig(children_per_device=NUM_CHILDREN, deadlines_s={"noop": 60.0})
    with Journal(tmp_path / "journal.jsonl") as journal:
        fleet.config, config = slow, fleet.config
        stream = fleet.run(noop_requests(behaviours, 20), journal)
        next(stream)
        stream.close()  # type: ignore[attr-defined]
        fleet.config = config
        begin_s = time.monotonic()
        attempts = list(fleet.run(noop_requests({}, 20), journal))
    assert len(attempts) == 20
    assert time.monotonic() - begin_s < 10.0
    assert all(attempt.fault is None for attempt in journal.attempts())


def test_ask_brings_one_answer(fleet: Fleet) -> None:
    answer = fleet.ask(NoopRequest(key="mine"))
    assert isinstance(answer, NoopEvidence)
    assert answer.key == "mine"
    with pytest.raises(MeasureError, match="raised on purpose"):
        fleet.ask(NoopRequest(key="mine", behaviour="raise"))


def test_children_share_the_cores_and_the_device(fleet: Fleet, tmp_path: Path) -> None:
    answer = fleet.ask(NoopRequest(key="k", behaviour="threads"))
    assert isinstance(answer, NoopEvidence)
    expected = max(1, len(os.sched_getaffinity(0)) // NUM_CHILDREN)
    assert answer.metrics["OMP_NUM_THREADS"] == expected
    with Journal(tmp_path / "journal.jsonl") as journal:
        attempts = list(
            fleet.run(noop_requests(dict.fromkeys(range(40), "lease:0.002"), 40), journal)
        )
    spans = sorted(
        (attempt.evidence.metrics["begin_s"], attempt.evidence.metrics["end_s"])
        for attempt in attempts
        if isinstance(attempt.evidence, NoopEvidence)
    )
    assert len(spans) == 40
    assert all(spans[i][1] <= spans[i + 1][0] for i in range(39))


def test_a_full_device_is_tried_again_alone(fleet: Fleet, tmp_path: Path) -> None:
    behaviours = dict.fromkeys(range(30), "sleep:0.02") | {4: "gpu_oom", 12: "gpu_oom"}
    with Journal(tmp_path / "journal.jsonl") as journal:
        attempts = list(fleet.run(noop_requests(behaviours, 30), journal))
    alone = [attempt for attempt in attempts if attempt.number > 0]
    assert {attempt.key for attempt in alone} == {"k4", "k12"}
    for one in alone:
        for other in attempts:
            is_before = other.started_s + other.wall_s <= one.started_s + 0.001
            is_after = one.started_s + one.wall_s <= other.started_s + 0.001
            assert is_before or is_after or other is one


def test_workers_import_no_torch(fleet: Fleet) -> None:
    assert set(client_of(fleet).run(lambda: "torch" in sys.modules).values()) == {False}


def test_a_killed_worker_loses_nothing(fleet: Fleet, tmp_path: Path) -> None:
    (worker,) = client_of(fleet).run(os.getpid).values()
    pids: defaultdict[bool, list[int]] = defaultdict(list)
    with Journal(tmp_path / "journal.jsonl") as journal:
        behaviours = dict.fromkeys(range(40), "sleep:0.02")
        for number, attempt in enumerate(fleet.run(noop_requests(behaviours, 40), journal)):
            pids[number > 10].append(attempt.pid)
            if number == 10:
                os.kill(worker, signal.SIGKILL)
        attempts = list(journal.attempts())
    settled = settle_all(attempts)
    assert len(settled) == 40
    assert all(end.evidence is not None for end in settled.values())
    # Every loss is on record, and only what was in flight was lost.
    lost = [attempt.fault.reason for attempt in attempts if attempt.fault is not None]
    assert set(lost) <= {"worker_lost"}
    assert len(lost) <= NUM_CHILDREN + 1
    assert not any(map(is_alive, pids[False]))


@pytest.mark.timing
def test_a_killed_lease_holder_passes_the_device_on(fleet: Fleet, tmp_path: Path) -> None:
    lease = DeviceLease("cpu").path.stat()
    holder = f":{lease.st_ino} "
    killed_s, attempts = 0.0, []
    # Together the waits outlast the deadline of a second, which they are never charged to.
    behaviours = dict.fromkeys(range(8), "lease:0.6")
    with Journal(tmp_path / "journal.jsonl") as journal:
        for attempt in fleet.run(noop_requests(behaviours, 8), journal):
            attempts.append(attempt)
            if len(attempts) == 3:
                time.sleep(0.1)
                locks = Path("/proc/locks").read_text().splitlines()
                (pid,) = (line.split()[4] for line in locks if holder in line and "->" not in line)
                killed_s = time.monotonic()
                os.kill(int(pid), signal.SIGKILL)
    settled = settle_all(attempts)
    assert len(settled) == 8
    assert all(end.evidence is not None for end in settled.values())
    assert [attempt.fault.reason for attempt in attempts if attempt.fault] == ["crash"]
    begins_s = [
        attempt.evidence.metrics["begin_s"]
        for attempt in attempts
        if isinstance(attempt.evidence, NoopEvidence)
    ]
    assert min(begin_s for begin_s in begins_s if begin_s > killed_s) - killed_s < 0.1


def test_workers_of_a_scheduler_elsewhere(tmp_path: Path) -> None:
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=2, dashboard_address=None, silence_logs=50
        ) as cluster,
        Fleet(CONFIG, "cpu", scheduler=cluster.scheduler_address) as fleet,
        Journal(tmp_path / "journal.jsonl") as journal,
    ):
        assert fleet.num_slots == 2
        attempts = list(fleet.run(noop_requests({4: "segfault"}, 10), journal))
        fleet.close()
        begin_s = time.monotonic()
        while any(map(is_alive, {attempt.pid for attempt in attempts})):
            assert time.monotonic() - begin_s < 5.0
            time.sleep(0.02)
    assert len(settle_all(attempts)) == 10


def test_a_scheduler_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opsgen.fleet.cluster.MAX_WAIT_FOR_SCHEDULER_S", 0.3)
    with pytest.raises(UsageError, match="no scheduler answers"):
        Fleet(CONFIG, "cpu", scheduler="tcp://127.0.0.1:9").__enter__()


def test_a_device_that_is_not_here_is_a_users_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opsgen.fleet.cluster.list_gpus", list)
    with pytest.raises(UsageError, match="no GPU"), Fleet(CONFIG, "cuda"):
        pass
