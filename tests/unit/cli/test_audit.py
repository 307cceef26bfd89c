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
    "return (self.linear(x) + y).softmax(1).sum(1)": "live",
    "return torch.sqrt(self.linear(x)) * y": "finite",
    "return torch.relu(self.linear(x)) * y + torch.rand(1)": "self_contained",
    "return (torch.tanh(self.linear(x)) * y,  None)": "executes",
    "raise RuntimeError('no')": "executes",
}


def audit(path: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "opsgen", "audit", str(path), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


@pytest.mark.parametrize(("body", "reason"), CASES.items(), ids=range(len(CASES)))
def test_verdicts_on_foreign_code(body: str, reason: str | None, tmp_path: Path) -> None:
    path = tmp_path / "task.py"
    path.write_text(TASK.replace("{body}", body))
    verdict = audit(path)["verdict"]
    assert verdict["reason"] == reason, verdict
    assert verdict["status"] == ("rejected" if reason else "admitted")
