"""A reference table of a folder of tasks, and what a probe of their like is told by it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from opsgen.errors import UsageError
from opsgen.fleet import Fleet
from opsgen.recipe import FleetConfig
from opsgen.records import Overlap, ProbeEvidence, ProbeRequest
from opsgen.run.fingerprinting import make_fingerprints
from opsgen.source import foreign_task
from opsgen.source.fingerprints import load_table, write_table

SHELL = """import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features)

    def forward(self, x):
        {body}


batch_size = 48
features = 96


def get_inputs():
    return [torch.rand(batch_size, features)]


def get_init_inputs():
    return [features]
"""
CHAIN = SHELL.format(body="return torch.softmax(torch.tanh(self.linear(x)), dim=-1)")
SINGLE = SHELL.format(body="return self.linear(x)")
BROKEN = SHELL.format(body="return self.linear(x.reshape(7, -1))")
# Equal to CHAIN but for names, spellings, sizes and a temporary.
TWIN = """import torch
from torch import nn
from torch.nn import functional


class Model(nn.Module):
    # A twin.
    def __init__(self, width: int):
        super(Model, self).__init__()
        self.projection = nn.Linear(width, width)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        hidden = self.projection(batch).tanh()
        return functional.softmax(hidden, dim=1)


width, rows = 80, 40


def get_inputs():
    return [torch.rand(rows, width)]


def get_init_inputs():
    return [width]
"""
OTHER = SHELL.format(body="return self.linear(x).cumsum(0).erf()")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("benchmark")
    for name, code in {
        "level1/1_Linear.py": SINGLE,
        "level2/7_Chain.py": CHAIN,
        "level2/8_Broken.py": BROKEN,
        "level2/9_Torn.py": "def forward(:\n",
    }.items():
        (path / name).parent.mkdir(exist_ok=True)
        (path / name).write_text(code)
    return path


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    with Fleet(FleetConfig(children_per_device=1), "cpu") as opened:
        yield opened


@pytest.fixture(scope="module")
def table(fleet: Fleet, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    found = make_fingerprints(fleet, folder, "own", num_sampled=100)
    assert [row.name for row in found.table.rows] == [
        "own/level1/1_Linear",
        "own/level2/7_Chain",
        "own/level2/8_Broken",
    ]
    assert [row.level for row in found.table.rows] == [1, 2, 2]
    assert found.untraced.keys() == {"own/level2/8_Broken"}
    assert found.unread.keys() == {"own/level2/9_Torn"}
    assert all("\n" not in reason for reason in (*found.untraced.values(), *found.unread.values()))
    path = tmp_path_factory.mktemp("tables") / "own.parquet"
    write_table(path, found.table)
    return str(path)


def overlap(fleet: Fleet, code: str, table: str) -> Overlap:
    task = foreign_task(code, origin="here")
    request = ProbeRequest(
        task=task, liveness=False, lazy_answers=False, benchmarks=(table,), seed=0
    )
    evidence = fleet.ask(request)
    assert isinstance(evidence, ProbeEvidence)
    assert evidence.overlap is not None
    return evidence.overlap


@pytest.mark.check
def test_a_twin_of_other_names_spellings_and_sizes_is_the_same(fleet: Fleet, table: str) -> None:
    found = overlap(fleet, TWIN, table)
    assert found.same_trace == found.same_calls == "own/level2/7_Chain"
    assert found.tables == overlap(fleet, OTHER, table).tables


@pytest.mark.check
def test_an_unrelated_task_is_not(fleet: Fleet, table: str) -> None:
    found = overlap(fleet, OTHER, table)
    assert (found.same_trace, found.same_calls) == (None, None)


@pytest.mark.check
def test_a_single_call_is_the_same_with_its_sizes_only(fleet: Fleet, table: str) -> None:
    again = overlap(fleet, SINGLE.replace("features", "width"), table)
    assert again.same_trace == again.same_calls == "own/level1/1_Linear"
    assert again.similarity == 1.0
    resized = overlap(fleet, SINGLE.replace("96", "112"), table)
    assert (resized.same_trace, resized.same_calls) == (None, None)
    assert resized.similarity <= resized.limit


@pytest.mark.check
def test_the_shipped_table_was_made_by_todays_traces(fleet: Fleet, table: str) -> None:
    own, shipped = load_table(table), load_table("kernelbench")
    assert own.canary is not None
    assert shipped.canary == own.canary, "make opsgen/tables/kernelbench.parquet anew"


@pytest.mark.check
def test_what_cannot_be_read_is_one_line(fleet: Fleet, folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=re.escape(str(tmp_path / "nothing"))):
        make_fingerprints(fleet, tmp_path / "nothing", "own", num_sampled=0)
    with pytest.raises(UsageError, match="no task that parses"):
        make_fingerprints(fleet, folder / "level2" / "9_Torn.py", "own", num_sampled=0)


@pytest.mark.check
def test_the_command(folder: Path, tmp_path: Path) -> None:
    def opsgen(*args: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "opsgen", "fingerprint", *args]
        return subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
        )

    done = opsgen(str(folder), "--out", "own.csv")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    args = ("--out", "mine.parquet", "--sampled", "50", "--allow-unsandboxed")
    done = opsgen(str(folder), *args, "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["tasks"], told["traced"], len(told["unread"])) == (3, 2, 1)
    rows = load_table(str(tmp_path / "mine.parquet")).rows
    assert rows[0].name == "mine/level1/1_Linear"
