"""A spare takes over at once, lives no longer than its users, and is never in the way."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import psutil
import pytest
from children import alive_in, answer, config_in, fault, run
from hypothesis import given
from hypothesis import strategies as st

from opsgen.child import Child, ChildConfig, spare
from opsgen.child.supervisor import spread
from opsgen.records import Fault


@pytest.fixture(autouse=True)
def _any_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spare, "MIN_IDLE_CORES", 0.0)


@pytest.fixture(name="config")
def _config(tmp_path: Path) -> Iterator[ChildConfig]:
    yield config_in(tmp_path, has_spare=True)
    assert alive_in(tmp_path) == []
    assert list((tmp_path / "work").iterdir()) == []


def _spare_of(child: Child) -> int:
    """Wait until a process stands by, and return it."""
    assert child._spare is not None
    give_up_s = time.monotonic() + 60.0
    while not child._spare.is_ready and time.monotonic() < give_up_s:
        time.sleep(0.01)
    return child._spare.pid


def test_a_spare_takes_over_after_a_crash(config: ChildConfig, tmp_path: Path) -> None:
    with Child(config) as child:
        first = answer(child).pid
        pids = [_spare_of(child)]
        assert fault(child, "segfault").reason == "crash"
        assert answer(child).pid == pids[0] != first
        pids.append(_spare_of(child))
        assert pids[1] != pids[0]
        assert sorted(alive_in(tmp_path)) == sorted([child.pid, pids[1]])
        # It has served nobody, so it will do for those who must not follow on others.
        assert not isinstance(run(child, "return", is_fresh=True), Fault)
        assert child.pid == pids[1]


def test_none_is_started_before_the_first_job_is_done(config: ChildConfig) -> None:
    with Child(config) as child:
        assert fault(child, "exit").reason == "crash"
        assert child._spare is not None
        time.sleep(0.1)
        assert child._spare.pid == 0


def test_none_is_started_while_all_cores_work(
    config: ChildConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spare, "MIN_IDLE_CORES", 1e6)
    with Child(config) as child:
        answer(child)
        time.sleep(1.2)
        assert child._spare is not None
        assert child._spare.pid == 0


def test_a_spare_that_died_is_not_handed_over(config: ChildConfig) -> None:
    with Child(config) as child:
        answer(child)
        dead = _spare_of(child)
        psutil.Process(dead).kill()
        time.sleep(0.1)
        assert fault(child, "exit").reason == "crash"
        assert answer(child).pid != dead


def test_children_share_one_and_survive_each_other(config: ChildConfig, tmp_path: Path) -> None:
    first, second = Child(config), Child(config)
    answer(first)
    answer(second)
    pid = _spare_of(first)
    assert _spare_of(second) == pid
    assert fault(first, "exit").reason == "crash"
    assert answer(first).pid == pid
    second.close()
    assert answer(first).pid == pid
    assert _spare_of(first) != pid
    first.close()
    assert alive_in(tmp_path) == []


def test_what_it_became_outlives_it(config: ChildConfig) -> None:
    """The kernel kills a process with the thread that started it, so that one must stay."""
    with Child(config) as child:
        answer(child)
        pid = _spare_of(child)
        fault(child, "exit")
        assert answer(child).pid == pid
        assert child._spare is not None
        child._spare.close()
        time.sleep(0.7)
        assert any(thread.name == "spare" for thread in threading.enumerate())
        assert answer(child).pid == pid
    give_up_s = time.monotonic() + 5.0
    while any(t.name == "spare" for t in threading.enumerate()) and time.monotonic() < give_up_s:
        time.sleep(0.05)
    assert all(thread.name != "spare" for thread in threading.enumerate())


@pytest.mark.check
@pytest.mark.timing
def test_a_crash_costs_less_than_a_start(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    config = config_in(tmp_path, has_spare=True)
    with Child(config) as child:
        answer(child)
        _spare_of(child)
        fault(child, "segfault")
        begin_s = time.monotonic()
        answer(child)
        taken_s = time.monotonic() - begin_s
    record_property("from a crash to the next answer, ms", f"{taken_s * 1e3:.1f}")
    assert taken_s < 1.0


def test_one_stands_by_before_it_is_needed_though_all_cores_work(
    config: ChildConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spare, "MIN_IDLE_CORES", 1e6)
    fleet = msgspec.structs.replace(config.fleet, recycle_after=5)
    with Child(msgspec.structs.replace(config, fleet=fleet)) as child:
        first = answer(child).pid
        assert child._spare is not None
        assert not child._spare._is_wanted
        answer(child)
        pid = _spare_of(child)
        assert pid
        assert [answer(child).pid for _ in range(4)] == [first, first, first, pid]


def _lives(children: list[Child], num_rounds: int) -> list[list[int]]:
    """Give each child a job in turn; return how many jobs each of its processes did."""
    pids: list[list[int]] = [[] for _ in children]
    for _ in range(num_rounds):
        for child, seen in zip(children, pids, strict=True):
            seen.append(answer(child).pid)
    return [[seen.count(pid) for pid in dict.fromkeys(seen)] for seen in pids]


def test_children_that_share_one_are_replaced_in_turn(
    config: ChildConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spare, "MIN_IDLE_CORES", 1e6)
    fleet = msgspec.structs.replace(config.fleet, recycle_after=20)
    children = [Child(msgspec.structs.replace(config, fleet=fleet)) for _ in range(3)]
    try:
        lives = _lives(children, 21)
    finally:
        for child in children:
            child.close()
    first = [each[0] for each in lives]
    assert len(set(first)) == 3
    assert max(first) == 20
    assert min(first) >= 15


@given(num_children=st.integers(2, 40))
def test_shares_of_few_or_many_lie_apart(num_children: int) -> None:
    shares = sorted(spread(number) for number in range(num_children))
    assert shares[0] >= 0.0
    assert shares[-1] < 1.0
    gaps = [after - before for before, after in itertools.pairwise([*shares, 1.0 + shares[0]])]
    assert min(gaps) > 0.3 / num_children
    assert max(gaps) < 3.0 / num_children


def test_a_number_is_nobody_elses_until_it_is_given_back(config: ChildConfig) -> None:
    shared = [spare.SPARES.borrow(config) for _ in range(3)]
    assert len({number for _, number in shared}) == 3
    assert len({id(standby) for standby, _ in shared}) == 1
    spare.SPARES.give_back(config, shared[1][1])
    assert spare.SPARES.borrow(config) == shared[1]
    for _, number in shared:
        spare.SPARES.give_back(config, number)
    again, number = spare.SPARES.borrow(config)
    assert again is not shared[0][0]
    spare.SPARES.give_back(config, number)
