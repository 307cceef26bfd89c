"""`opsgen audit FILE.py` judges one foreign file."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.check

TASK = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x, y):
        {body}


def get_inputs():
    return [torch.randn(128, 256), torch.randn(128, 256)]


def get_init_inputs():
    return [256]
"""

CASES = {
    "return torch.tanh(self.linear(x)) * y": None,
    "return torch.tanh(self.linear(x)) + 0 * y": "live",
    "return (self.linear(x) + y).softmax(1).sum(1)": "nontrivial",
    "return torch.sqrt(self.linear(x)) * y": "finite",
    "return torch.relu(self.linear(x)) * y + torch.rand(1)": "self_contained",
    "return (torch.tanh(self.linear(x)) * y,  None)": "executes",
    "return self.linear(x).view(7, 3) * y": "executes",
}


NO_TASKS = ("def (:\n", "import torch\n", TASK.replace("get_init_inputs", "get_init_input"))


def audit(path: Path, *options: str) -> str:
    command = [sys.executable, "-m", "opsgen", "audit", path.name, *options]
    done = subprocess.run(
        command, cwd=path.parent, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert list(path.parent.iterdir()) == [path]  # no run is kept
    return done.stdout


def verdict_on(path: Path, *options: str) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(audit(path, "--json", *options))["verdict"]
    return told


@pytest.mark.parametrize(("body", "reason"), CASES.items(), ids=range(len(CASES)))
def test_verdicts_on_foreign_code(body: str, reason: str | None, tmp_path: Path) -> None:
    path = tmp_path / "task.py"
    path.write_text(TASK.replace("{body}", body))
    verdict = verdict_on(path)
    assert verdict["reason"] == reason, verdict
    assert verdict["status"] == ("rejected" if reason else "admitted")


@pytest.mark.parametrize("code", NO_TASKS, ids=range(len(NO_TASKS)))
def test_what_is_no_task_is_rejected_like_any_other(code: str, tmp_path: Path) -> None:
    path = tmp_path / "task.py"
    path.write_text(code)
    verdict = verdict_on(path, "--probe-only")
    assert (verdict["status"], verdict["reason"]) == ("rejected", "self_contained")
    assert verdict["witness"]


def test_a_certificate_of_what_needs_no_device(tmp_path: Path) -> None:
    path = tmp_path / "task.py"
    path.write_text(TASK.replace("{body}", next(iter(CASES))))
    shown = audit(path, "--probe-only")
    assert "class Model" in shown
    assert "passes everything that needs no device" in shown
