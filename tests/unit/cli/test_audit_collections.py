"""`opsgen audit` on collections: every row gets its verdict, whatever ends the command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from opsgen.recipe import read_recipe
from opsgen.records import Attempt, ProbeEvidence, decode_line

TASK = """import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)
{more}
    def forward(self, x, y):
        {body}


def get_inputs():
    return [torch.randn(32, {width}), torch.randn(32, {width})]


def get_init_inputs():
    return [{width}]
"""
# Hashing a tuple that is nested so deeply overflows the stack of the interpreter.
CRASH = """        nested = ()
        for _ in range(3_000_000):
            nested = (nested,)
        self.number = hash(nested)
"""


def task(body: str, *, width: int = 64, more: str = "") -> str:
    return TASK.format(body=body, width=width, more=more)


GOOD = task("return torch.tanh(self.linear(x)) * y")
ROWS: list[tuple[str | None, str | None]] = [
    (GOOD, None),
    ("# The same again.\n" + GOOD, "novel"),
    (task("return self.linear(x) + 0 * y"), "live"),
    (task("return self.linear(x).view(7, 3) * y"), "executes"),
    (task("return torch.sqrt(self.linear(x)) * y"), "finite"),
    (task("return torch.tanh(self.linear(x)) * y", more=CRASH), "crash"),
    ("x = (\n", "self_contained"),
    (None, "self_contained"),
    (GOOD, "novel"),
    (GOOD.replace("def get_init_inputs", "def get_init_input"), "self_contained"),
    (
        task("return torch.sin(self.linear(x)) * y").replace("import", "import os\nimport", 1),
        "self_contained",
    ),
    (GOOD.replace("import", "import os\nimport", 1), "novel"),
    (task("return torch.relu(self.linear(x)) - y", width=48), None),
    (task("return torch.cos(self.linear(x)) - y", width=48), "ops_true"),
    ("-" * 99_999 + "1", "self_contained"),  # too deep for the parser
]
OPS = {0: '["torch.nn.Linear", "torch.tanh", "torch.mul"]', 13: "torch.nn.Conv2d"}


def opsgen(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "opsgen", *args],
        cwd=folder,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def read_attempts(folder: Path) -> list[Attempt]:
    (journal,) = folder.glob("data/runs/audit-*/journal.jsonl")
    return [decode_line(line, Attempt) for line in journal.read_bytes().splitlines()]


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("audited")
    rows = [
        {
            "ops": OPS.get(number),
            "data_source": f"torch#{2 + number % 2}",
            "code": code,
        }
        for number, (code, _) in enumerate(ROWS)
    ]
    pq.write_table(pa.Table.from_pylist(rows), folder / "rows.parquet", row_group_size=5)
    done = opsgen(folder, "audit", "rows.parquet", "--probe-only", "--json")
    assert done.returncode == 0, done.stderr
    (folder / "told.json").write_text(done.stdout)
    return folder


def told(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "told.json").read_text())
    return found


@pytest.mark.check
def test_every_row_has_its_reason_in_the_table(audited: Path) -> None:
    table = pq.read_table(audited / told(audited)["table"]).to_pylist()
    assert [(row["line"], row["origin"]) for row in table] == [
        (number, f"rows.parquet:{number}") for number in range(len(ROWS))
    ]
    for row, (code, reason) in zip(table, ROWS, strict=True):
        wanted = ("rejected", reason) if reason else ("probed", "unmeasured")
        assert (row["status"], row["reason"]) == wanted, (code, row["witness"], row["failed"])
        assert row["witness"]
        assert row["failed"][0] == f"{row['reason']}: {row['witness']}"
        evidence = json.loads(row["evidence"])
        # What repeats another text is not told of that text's lines.
        has_evidence = reason != "crash" and (reason != "novel" or code == GOOD)
        assert (evidence["probe"] is not None) == has_evidence
        assert evidence["measure"] is None
    assert "rows.parquet:0" in table[1]["witness"]
    assert [row["declared_ops"] for row in (table[0], table[1], table[13])] == [
        ["torch.nn.Linear", "torch.tanh", "torch.mul"],
        [],
        ["torch.nn.Conv2d"],
    ]
    assert [row["level"] for row in table[:2]] == [2, 3]
    good = decode_line(json.dumps(json.loads(table[0]["evidence"])["probe"]), ProbeEvidence)
    assert good.num_draws == table[0]["num_draws"] > 0
    assert table[0]["mode_class"] == "same"


@pytest.mark.check
def test_the_summary_counts_what_the_table_holds(audited: Path) -> None:
    summary = told(audited)["summary"]
    assert (summary["total"]["rows"], summary["total"]["probed"]) == (len(ROWS), 2)
    assert summary["total"]["rejected"] == len(ROWS) - 2
    assert told(audited)["num_passing"] == 2
    assert {each["data_source"]: each["rows"] for each in summary["sources"]} == {
        "torch#2": 8,
        "torch#3": 7,
    }
    counts = {each["reason"]: each["count"] for each in summary["reasons"]}
    assert counts == {
        "self_contained": 5,
        "novel": 3,
        "ops_true": 1,
        "executes": 1,
        "finite": 1,
        "live": 1,
        "crash": 1,
    }
    shown = next(each for each in summary["reasons"] if each["reason"] == "self_contained")
    assert len({each["witness"] for each in shown["shown"]}) == 3
    assert summary["num_duplicates"] == 3
    assert summary["num_faulted"] == 0


@pytest.mark.check
def test_again_nothing_runs_and_a_person_reads_it(audited: Path) -> None:
    before = read_attempts(audited)
    done = opsgen(audited, "audit", "./rows.parquet", "--probe-only")
    assert done.returncode == 0, done.stderr
    assert "dashboard" not in done.stderr  # no fleet was started
    assert read_attempts(audited) == before
    assert f"2 of {len(ROWS)} pass everything that needs no device" in done.stdout
    for reason in {reason for _, reason in ROWS if reason}:
        assert f"rejected: {reason}" in done.stdout
    assert "RuntimeError" in done.stdout
    assert "3 repeat the source" in " ".join(done.stdout.split())
    assert told(audited)["table"] in done.stdout


@pytest.mark.check
def test_a_task_of_an_audit_can_be_shown(audited: Path) -> None:
    table = pq.read_table(audited / told(audited)["table"]).to_pylist()
    for row in (table[0], table[1], table[5]):
        shown = json.loads(opsgen(audited, "show", row["task_id"], "--json").stdout)
        assert shown["case"]["task"]["task_id"] == row["task_id"]


def _task_folder(folder: Path, count: int) -> Path:
    for number in range(count):
        path = folder / "tasks" / f"level{1 + number % 2}" / f"{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        body = f"return torch.tanh(self.linear(x)) * y + {number + 1}"
        path.write_text(task(body, width=32 + 8 * number))
    return folder / "tasks"


@pytest.mark.check
@pytest.mark.parametrize("way", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_audit_goes_on_where_it_was(way: signal.Signals, tmp_path: Path) -> None:
    count = 8
    _task_folder(tmp_path, count)
    command = ["audit", "tasks", "--probe-only", "--set", "fleet.children_per_device=1"]
    process = subprocess.Popen(
        [sys.executable, "-m", "opsgen", *command],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline_s = time.monotonic() + 120
    while _num_lines(tmp_path) < 3 and time.monotonic() < deadline_s:
        time.sleep(0.01)
    os.kill(process.pid, way)
    process.wait(timeout=60)
    assert process.returncode == (-way if way == signal.SIGKILL else 130)
    first = read_attempts(tmp_path)
    assert 3 <= len(first) < count
    done = opsgen(tmp_path, *command, "--json")
    assert done.returncode == 0, done.stderr
    after = read_attempts(tmp_path)
    assert after[: len(first)] == first
    seen = [attempt.key for attempt in after if attempt.evidence]
    assert len(seen) == len(set(seen)) == count
    summary = json.loads(done.stdout)["summary"]
    assert summary["total"]["probed"] == count
    assert {each["data_source"]: each["rows"] for each in summary["sources"]} == {
        "level1": 4,
        "level2": 4,
    }


def _num_lines(folder: Path) -> int:
    found = list(folder.glob("data/runs/*/journal.jsonl"))
    return sum(path.read_bytes().count(b"\n") for path in found)


@pytest.mark.check
def test_what_the_probe_leaves_open_is_measured(tmp_path: Path) -> None:
    _task_folder(tmp_path, 1)
    (tmp_path / "tasks" / "level1" / "no.py").write_text("no task")
    loose = ("--set", "admit.runtime_window_ms=[1e-6, 1e6]", "--set", "admit.launch_floor_ratio=0")
    probed = opsgen(tmp_path, "audit", "tasks", "--probe-only", "--json", *loose)
    assert json.loads(probed.stdout)["summary"]["total"]["probed"] == 1, probed.stderr
    done = opsgen(tmp_path, "audit", "tasks", "--json", *loose)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)["summary"]
    assert summary["total"]["admitted"] == 1, summary
    assert summary["total"]["rejected"] == 1
    attempts = read_attempts(tmp_path)
    again = [attempt for attempt in attempts if attempt.key.startswith("retimed:")]
    assert len(again) == 1  # of the only one that was measured
    assert sorted(a.job for a in attempts if a not in again) == ["measure", "probe", "probe"]
    (report,) = tmp_path.glob("data/runs/*/report.json")
    assert json.loads(report.read_bytes())["retimed"]["num_tasks"] == 1
    row = pq.read_table(tmp_path / json.loads(done.stdout)["table"]).to_pylist()[0]
    assert row["eager_ms"] > 0
    assert row["compile_ms"] > 0
    assert row["environment_id"]


@pytest.mark.check
def test_probes_need_no_gpu_and_a_limit_reads_the_first_rows_only(tmp_path: Path) -> None:
    _task_folder(tmp_path, 3)
    options = ("--device", "cuda", "--probe-only", "--limit", "1", "--json")
    done = opsgen(tmp_path, "audit", "tasks", *options)
    (recipe,) = tmp_path.glob("data/runs/audit-tasks-*/recipe.toml")
    assert read_recipe(recipe).admit.runtime_window_ms == (1.05, 95.0)  # a GPU's own
    assert json.loads(done.stdout)["summary"]["total"]["rows"] == 1, done.stderr


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("missing.parquet",), "missing.parquet: No such file"),
        (("nothing",), "nothing: holds no .py"),
        (("broken.parquet",), "broken.parquet: is not parquet"),
        (("other.parquet",), "columns with text: prompt"),
        (("rows.jsonl", "--device", "tpu"), "measure.device"),
        (("rows.jsonl", "--set", "probe.livenes=true"), "probe.liveness"),
        (("rows.jsonl", "--recipe", "no.toml"), "no.toml"),
        (("rows.jsonl", "--set", 'probe.benchmarks=["kernelbnch"]'), "kernelbnch: no such table"),
        (("rows.jsonl", "--revision", "main"), "no revision main"),
        (("rows.jsonl", "--device", "cuda"), "no GPU"),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing(
    args: tuple[str, ...], words: str, tmp_path: Path
) -> None:
    (tmp_path / "nothing").mkdir()
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 and no more")
    (tmp_path / "rows.jsonl").write_text(json.dumps({"code": GOOD}) + "\n")
    pq.write_table(pa.table({"prompt": ["Write a kernel."]}), tmp_path / "other.parquet")
    done = opsgen(tmp_path, "audit", *args, *([] if "cuda" in args else ["--probe-only"]))
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert words in done.stderr
    assert done.stdout == ""
    assert not (tmp_path / "data").exists()
