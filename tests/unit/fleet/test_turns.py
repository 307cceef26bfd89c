"""Turns: many share a device, or one has it to itself."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

from opsgen.fleet.turns import Turns


def test_who_is_alone_is_alone_and_nobody_starves() -> None:
    turns, spans = Turns(), []

    def attempt(alone: bool) -> None:
        with turns.take(alone, lambda: False) as is_mine:
            assert is_mine
            begin_s = time.monotonic()
            time.sleep(0.004)
            spans.append((alone, begin_s, time.monotonic()))

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(attempt, [number % 5 == 0 for number in range(60)]))
    assert len(spans) == 60
    overlaps = 0
    for index, (alone, begin_s, end_s) in enumerate(spans):
        for other_alone, other_begin_s, other_end_s in spans[index + 1 :]:
            if begin_s < other_end_s and other_begin_s < end_s:
                overlaps += 1
                assert not alone
                assert not other_alone
    assert overlaps > 0


def test_a_cancelled_wait_leaves_the_device_to_others() -> None:
    turns, cancelled = Turns(), threading.Event()
    cancelled.set()
    with turns.take(False, lambda: False), turns.take(True, cancelled.is_set) as is_mine:
        assert not is_mine
    with turns.take(True, lambda: False) as is_mine, turns.take(False, cancelled.is_set) as other:
        assert is_mine
        assert not other
    with turns.take(False, lambda: False) as is_mine:
        assert is_mine
