"""Mistakes at `opsgen calibrate` are one line and leave nothing behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


def run_calibrate(*args: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "opsgen", "calibrate", *args],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--device", "tpu"), ("--device tpu", "cpu", "cuda")),
        (("--out", "speeds.json"), ("--out speeds.json", ".toml")),
    ],
)
def test_wrong_options(args: tuple[str, ...], words: tuple[str, ...], tmp_path: Path) -> None:
    done = run_calibrate(*args, folder=tmp_path)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("opsgen: ")
    for word in words:
        assert word in done.stderr
    assert done.stdout == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.check
def test_damaged_points(tmp_path: Path) -> None:
    (tmp_path / "mine.jsonl").write_text('{"points": 3}\n')
    done = run_calibrate("--out", "mine.toml", folder=tmp_path)
    assert done.returncode == 2
    assert "mine.jsonl: line 1" in done.stderr
    assert not (tmp_path / "mine.toml").exists()
