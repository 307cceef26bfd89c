"""Progress: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from opsgen.fleet import Progress, progress


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
