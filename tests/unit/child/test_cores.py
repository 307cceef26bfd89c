"""Cores are divided without overlap, and only who holds the device runs on those set aside."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from children import answer, config_in
from hypothesis import given
from hypothesis import strategies as st

from opsgen.child import Child, CoreShare, DeviceLease, cores, describe_layers, share_of
from opsgen.child.cores import MIN_SHARE, Placement, divide_cores, set_aside

_CORES = st.lists(st.integers(0, 300), unique=True, max_size=64)
_NEAR = st.none() | st.sets(st.integers(0, 300), max_size=64)


def _hosts() -> st.SearchStrategy[tuple[list[int], list[set[int] | None]]]:
    """Hosts of any kind, and among them such as there are: nodes of cores, each with GPUs."""
    strange = st.tuples(_CORES, st.lists(_NEAR, min_size=1, max_size=9))
    nodes = st.lists(st.tuples(st.integers(0, 24), st.integers(0, 4)), min_size=1, max_size=4)
    return strange | nodes.map(_host).filter(lambda host: bool(host[1]))


def _host(nodes: list[tuple[int, int]]) -> tuple[list[int], list[set[int] | None]]:
    num_cores, near = 0, []
    for num_own, num_gpus in nodes:
        near += [set(range(num_cores, num_cores + num_own))] * num_gpus
        num_cores += num_own
    return list(range(num_cores)), [*near]


@given(host=_hosts())
def test_every_core_is_in_one_share(host: tuple[list[int], list[set[int] | None]]) -> None:
    available, near = host
    shares = divide_cores(available, near)
    assert len(shares) == len(near)
    if len(available) < len(near):
        assert not any(shares)
        return
    assert sorted(core for share in shares for core in share) == sorted(available)
    assert all(shares)


@given(host=_hosts())
def test_equals_get_the_same_and_neighbours_stay_near(
    host: tuple[list[int], list[set[int] | None]],
) -> None:
    available, near = host
    allowed = [frozenset(available) & frozenset(each or ()) for each in near]
    shares = divide_cores(available, near)
    for mine, share in zip(allowed, shares, strict=True):
        sizes = [len(s) for s, other in zip(shares, allowed, strict=True) if other == mine]
        assert max(sizes) - min(sizes) <= 2  # One of the near ones and one of the others.
        is_disjoint = all(other == mine or not other & mine for other in allowed)
        if share and is_disjoint and all(len(one) >= allowed.count(one) for one in allowed):
            num_near = len(mine & set(share))
            assert set(share[:num_near]) <= mine
            assert num_near >= len(mine) // allowed.count(mine)


def test_two_sockets_with_two_gpus_each() -> None:
    left, right = set(range(8)), set(range(8, 16))
    shares = divide_cores(range(16), [left, right, left, right])
    assert shares == ((0, 1, 2, 3), (8, 9, 10, 11), (4, 5, 6, 7), (12, 13, 14, 15))
    assert divide_cores(range(16), [left])[0][:8] == tuple(range(8))


def test_neighbourhoods_that_overlap_in_part_count_for_nothing() -> None:
    assert divide_cores(range(8), [{6, 7}, {5, 6, 7}]) == ((0, 1, 2, 3), (4, 5, 6, 7))


@given(share=_CORES, num_timing=st.integers(0, 80))
def test_what_is_set_aside_leaves_at_least_as_much(share: list[int], num_timing: int) -> None:
    parts = set_aside(share, num_timing)
    assert [*parts.timing, *parts.rest] == share
    assert len(parts.timing) <= min(num_timing, len(parts.rest))
    if len(share) < MIN_SHARE:
        assert not parts.timing
    elif len(share) >= 2 * num_timing:
        assert len(parts.timing) == num_timing


def test_shares_of_this_host_are_disjoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(16)))
    monkeypatch.setattr(cores, "cpu_affinity", lambda uuid: None)
    ids = ["GPU-a", "GPU-b"]
    shares = [share_of(gpu_id, ids, 2) for gpu_id in ids]
    assert [len(share.timing) for share in shares] == [2, 2]
    assert [len(share.rest) for share in shares] == [6, 6]
    assert len({core for share in shares for core in (*share.timing, *share.rest)}) == 16
    assert share_of("cpu", [], 2) == CoreShare()


def test_threads_of_one_physical_core_stay_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    monkeypatch.setattr(cores, "cpu_affinity", lambda uuid: None)
    monkeypatch.setattr(cores, "_read_siblings", lambda these: {core: core % 4 for core in these})
    assert share_of("GPU-b", ["GPU-a", "GPU-b"], 2) == CoreShare(timing=(2, 6), rest=(3, 7))


@pytest.fixture(name="two")
def _two() -> Iterator[tuple[int, int]]:
    before = os.sched_getaffinity(0)
    if len(before) < 2:
        pytest.skip("a single core cannot be divided")
    first, second, *_ = sorted(before)
    yield first, second
    for thread in Path("/proc/self/task").iterdir():
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(int(thread.name), before)


def test_threads_born_in_a_hold_go_along_and_others_stay(two: tuple[int, int]) -> None:
    stop = threading.Event()

    def start() -> int:
        thread = threading.Thread(target=stop.wait, daemon=True)
        thread.start()
        assert thread.native_id is not None
        return thread.native_id

    placement = Placement(CoreShare(timing=two[:1], rest=two[1:]))
    placement.settle()
    seen = []
    elder = start()
    try:
        placement.set_holding(True)
        younger = start()
        for is_holding in (False, True, False):
            placement.set_holding(is_holding)
            seen.append([os.sched_getaffinity(who) for who in (0, younger, elder)])
    finally:
        stop.set()
    timing, rest = {two[0]}, {two[1]}
    assert seen == [[rest, rest, rest], [timing, timing, rest], [rest, rest, rest]]


def test_a_refusal_changes_nothing(two: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: int, wanted: object) -> None:
        raise PermissionError

    before = os.sched_getaffinity(0)
    monkeypatch.setattr(os, "sched_setaffinity", refuse)
    placement = Placement(CoreShare(timing=two[:1], rest=two[1:]))
    placement.settle()
    placement.set_holding(True)
    placement.set_holding(False)
    monkeypatch.undo()
    assert os.sched_getaffinity(0) == before


def test_cores_that_do_not_exist_are_no_reason_to_fail() -> None:
    before = os.sched_getaffinity(0)
    placement = Placement(CoreShare(timing=(4000,), rest=(4001,)))
    placement.settle()
    placement.set_holding(True)
    placement.set_holding(False)
    assert os.sched_getaffinity(0) == before


@pytest.mark.parametrize("is_sandboxed", [False, True])
def test_a_child_moves_only_to_hold_the_device(
    tmp_path: Path, two: tuple[int, int], is_sandboxed: bool
) -> None:
    if is_sandboxed and any(each.is_required and not each.holds for each in describe_layers()):
        pytest.skip("no sandbox here")
    config = config_in(tmp_path, sandbox=is_sandboxed)
    config = msgspec.structs.replace(config, timing_cores=two[:1], other_cores=two[1:])
    with Child(config) as child:
        for _ in range(2):
            metrics = answer(child, "lease").metrics
            masks = [metrics[f"cores_{when}"] for when in ("before", "held", "after")]
            assert masks == [1 << two[1], 1 << two[0], 1 << two[1]]
            assert not child.spoiled
        assert child.num_starts == 1


def test_a_child_waits_where_it_will_hold(tmp_path: Path, two: tuple[int, int]) -> None:
    config = config_in(tmp_path)
    config = msgspec.structs.replace(config, timing_cores=two[:1], other_cores=two[1:])
    with Child(config) as child:
        pid = answer(child).pid
        assert os.sched_getaffinity(pid) == {two[1]}
        with DeviceLease("cpu", tmp_path / "lease").hold():
            thread = threading.Thread(target=answer, args=(child, "lease"))
            thread.start()
            give_up_s = time.monotonic() + 10.0
            while os.sched_getaffinity(pid) != {two[0]} and time.monotonic() < give_up_s:
                time.sleep(0.01)
            waits_on = os.sched_getaffinity(pid)
        thread.join()
        assert waits_on == {two[0]}
        assert os.sched_getaffinity(pid) == {two[1]}


def test_without_a_share_a_child_stays_where_it_was(tmp_path: Path) -> None:
    with Child(config_in(tmp_path)) as child:
        metrics = answer(child, "lease").metrics
    everywhere = sum(1 << core for core in os.sched_getaffinity(0))
    assert {metrics[f"cores_{when}"] for when in ("before", "held", "after")} == {everywhere}


_BACKWARD = """
import os, sys
from opsgen.child.cores import CoreShare, Placement
timing, rest = int(sys.argv[1]), int(sys.argv[2])
placement = Placement(CoreShare(timing=(timing,), rest=(rest,)))
placement.settle()
import torch

def threads():
    return set(map(int, os.listdir("/proc/self/task")))

def cores(some):
    return [sorted(os.sched_getaffinity(thread)) for thread in some]

x = torch.ones(8, device="cuda", requires_grad=True)
(x * 2).sum().item()
before = threads()
placement.set_holding(True)
(x * 2).sum().backward()
torch.cuda.synchronize()
placement.set_holding(False)
born = threads() - before
assert born, "a backward pass starts a thread"
assert cores(threads()) == [[rest]] * len(threads())
placement.set_holding(True)
assert cores(born) == [[timing]] * len(born)
assert cores(before - {os.getpid()}) == [[rest]] * (len(before) - 1)
placement.set_holding(False)
print("fine")
"""


@pytest.mark.gpu
def test_the_thread_of_backward_passes_goes_along(two: tuple[int, int]) -> None:
    command = [sys.executable, "-c", _BACKWARD, *map(str, two)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120.0)
    assert done.stdout == "fine\n", done.stderr
