"""Progress: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from opsgen.fleet import Progress, progress
from opsgen.fleet.progress import RECENT_S, Recent


class Clock:
    """A clock that goes only when told to."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture(name="clock")
def _clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    return clock


def _console(*, is_terminal: bool) -> Console:
    return Console(file=io.StringIO(), force_terminal=is_terminal, width=160)


def _shown(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_lines_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    console = _console(is_terminal=False)
    monkeypatch.setattr(progress, "LINE_EVERY_S", 0.0)
    with Progress(4, "probe", console=console) as shown:
        for label in ("ok", "ok", "timeout:eager"):
            shown.update(label, hold_s=1e6)
    lines = _shown(console).splitlines()
    assert len(lines) == 3  # none twice, though leaving would print one
    assert lines[-1].startswith("probe: 3/4, ")
    assert "/min" in lines[-1]
    assert " left" in lines[-1]
    assert lines[-1].endswith("ok 2  timeout:eager 1  lease 100%")
    assert "\x1b" not in _shown(console)


def test_lines_are_rare() -> None:
    console = _console(is_terminal=False)
    with Progress(None, "probe", console=console) as shown:
        for _ in range(1000):
            shown.update("ok")
    assert _shown(console).count("\n") == 1


def test_a_bar_on_a_terminal() -> None:
    console = _console(is_terminal=True)
    with Progress(2, "probe", console=console) as shown:
        shown.update("ok")
        shown.set_total(3)
    assert "1/3" in _shown(console)
    assert "ok 1" in _shown(console)


def test_the_start_of_children_slows_no_rate(clock: Clock) -> None:
    with Progress(100, "measure", console=_console(is_terminal=False)) as shown:
        clock.now_s += 30.0
        for _ in range(11):
            shown.update("ok", hold_s=0.25)
            clock.now_s += 0.5
        clock.now_s -= 0.5
        # Ten after the first, in five seconds: two a second, half of the time on the device.
        assert shown.line() == "measure: 11/100, 120/min, 0:44 left, ok 11  lease 50%"


def test_the_last_minute_counts(clock: Clock) -> None:
    with Progress(None, "measure", console=_console(is_terminal=False)) as shown:
        for _ in range(600):
            shown.update("ok", hold_s=0.1)
            clock.now_s += 0.1
        for _ in range(70):
            shown.update("ok", hold_s=0.1)
            clock.now_s += 1.0
        clock.now_s -= 1.0
        assert shown.line() == "measure: 670, 60/min, ok 670  lease 10%"


def test_a_stall_is_seen(clock: Clock) -> None:
    with Progress(None, "measure", console=_console(is_terminal=False)) as shown:
        shown.update("ok")
        clock.now_s += 1.0
        shown.update("ok")
        clock.now_s += 59.0
        assert "1/min" in shown.line()


def test_lease_use_is_that_of_all_devices(clock: Clock) -> None:
    console = _console(is_terminal=False)
    with Progress(None, "measure", num_devices=2, console=console) as shown:
        for _ in range(9):
            shown.hold(0.8)
            shown.update("ok")
            clock.now_s += 0.5
        clock.now_s -= 0.5
        assert shown.line().endswith("lease 80%")


@pytest.mark.parametrize("is_terminal", [True, False])
def test_terminals_and_lines_tell_the_same(clock: Clock, is_terminal: bool) -> None:
    console = _console(is_terminal=is_terminal)
    with Progress(40, "probe", console=console) as shown:
        for _ in range(3):
            shown.update("ok", hold_s=1.0)
            clock.now_s += 2.0
        shown.update("ok", hold_s=1.0)
    assert "30/min, 1:12 left" in _shown(console)
    assert "lease 50%" in _shown(console)


@given(gaps_s=st.lists(st.floats(0.01, 100.0), min_size=1, max_size=50), gap_s=st.floats(0.0, 30.0))
def test_a_recent_rate_is_that_of_its_window(gaps_s: list[float], gap_s: float) -> None:
    recent, now_s, times = Recent(), 0.0, []
    for gap in gaps_s:
        now_s += gap
        times.append(now_s)
        recent.add(1.0, now_s)
    older = [each for each in times if each < now_s - RECENT_S]
    base_s = older[-1] if older else times[0]
    later = [each for each in times if each > base_s]
    now_s += gap_s
    # With a single one there is only the beginning to go by, here at 0.
    expected = len(later) / max(now_s - base_s, 1e-3) if later else 1.0 / now_s
    assert recent.per_s(0.0, now_s) == pytest.approx(expected)
