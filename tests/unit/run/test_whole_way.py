"""From a recipe to a release, once, and all that a user may do with it afterwards."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from opsgen.records import Attempt, PlanLine, decode_line
from opsgen.run import Report, RunFolder, Stages

pytestmark = pytest.mark.check

ROOT = Path(__file__).parents[3]

# Timings of a busy machine decide nothing here: the same tasks are admitted in every run.
RECIPE = """
name = "small"
seed = 5

[sample]
dags = 0.5
target_ms = [0.2, 1.0]

[measure]
max_s_per_mode = 0.02

[admit]
runtime_window_ms = [1e-6, 1e6]
launch_floor_ratio = 0.0
weak_at_1e_2 = "label"

[release]
want = { "torch#1" = 1, "torch#2" = 4 }
split = { train = 0.5, test = 0.5 }
"""


def opsgen(folder: Path, *args: str, hash_seed: str = "0") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "opsgen", *args],
        cwd=folder,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def read_jsonl(path: Path, kind: type[Any]) -> list[Any]:
    return [decode_line(line, kind) for line in path.read_bytes().splitlines()]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    (folder / "small.toml").write_text(RECIPE)
    done = opsgen(folder, "run", "small.toml", "--json")
    assert done.returncode == 0, done.stderr
    (folder / "outcome.json").write_text(done.stdout)
    return folder


def _run_folder(folder: Path) -> Path:
    return next(folder.glob("data/runs/small-*"))


def _release(folder: Path) -> Path:
    return folder / json.loads((folder / "outcome.json").read_text())["release"]


def test_the_release_holds_what_was_wanted_in_plan_order(finished: Path) -> None:
    import datasets
    import polars as pl

    release = _release(finished)
    loaded = datasets.load_dataset(str(release), "tasks", cache_dir=str(finished / "cache"))
    rows = [row for split in loaded.values() for row in split]
    assert sorted(row["data_source"] for row in rows) == ["torch#1"] + ["torch#2"] * 4
    assert list(rows[0])[:4] == ["ops", "data_source", "code", "task_id"]
    scanned = pl.scan_parquet(release / "tasks" / "*.parquet").collect()
    assert scanned["task_id"].sort().to_list() == sorted(row["task_id"] for row in rows)
    view = pl.scan_parquet(release / "tasks" / "*.parquet").select("ops", "data_source", "code")
    assert view.collect().height == 5
    lines = read_jsonl(_run_folder(finished) / "tasks.jsonl", PlanLine)
    plan = {line.task.task_id: line.line for line in lines if line.task}
    verdicts = [
        json.loads(line)
        for path in _run_folder(finished).glob("verdicts-*.jsonl")
        for line in path.read_text().splitlines()
    ]
    admitted = [
        v["task_id"]
        for v in verdicts
        if v["status"] == "admitted" and v["data_source"] == "torch#2"
    ]
    chosen = {row["task_id"] for row in rows if row["data_source"] == "torch#2"}
    assert chosen == set(sorted(admitted, key=lambda task: plan[task])[:4])


def test_every_admitted_code_builds_and_runs_by_plain_exec(finished: Path) -> None:
    import polars as pl
    import torch

    rows = pl.read_parquet(_release(finished) / "tasks" / "*.parquet")
    for code in rows["code"]:
        namespace: dict[str, Any] = {}
        exec(code, namespace)
        model = namespace["Model"](*namespace["get_init_inputs"]())
        with torch.no_grad():
            assert isinstance(model(*namespace["get_inputs"]()), torch.Tensor)


def test_children_serve_many_tasks(finished: Path) -> None:
    attempts = read_jsonl(_run_folder(finished) / "journal.jsonl", Attempt)
    seen = [(a.job, a.key, a.pid, a.spoiled, a.fault, a.wall_s) for a in attempts]
    assert len({attempt.pid for attempt in attempts}) <= 2, seen


def test_the_report_tells_what_was_held_and_what_repeats(finished: Path) -> None:
    run = _run_folder(finished)
    report = decode_line((run / "report.json").read_bytes(), Report)
    attempts = read_jsonl(run / "journal.jsonl", Attempt)
    again = [attempt.key for attempt in attempts if attempt.key.startswith("retimed:")]
    assert report.num_attempts["retime"] == len(set(again)) == len(again) >= 1
    assert report.retimed.num_tasks == len(again)
    assert report.retimed.modes.keys() == {"eager", "compile"}
    assert {"admitted", "retimed"} <= report.gpu_min.keys()
    assert report.lease_use is not None
    assert 0.0 < report.lease_use <= 1.0
    assert report.measured_per_min is not None
    assert report.parts_s
    (run / "report.json").unlink()
    journal = (run / "journal.jsonl").read_bytes()
    done = opsgen(finished, "measure", "small.toml", "--json")
    assert done.returncode == 0, done.stderr
    assert (run / "journal.jsonl").read_bytes() == journal
    assert decode_line((run / "report.json").read_bytes(), Report) == report


def test_running_again_changes_nothing(finished: Path) -> None:
    run = _run_folder(finished)
    before = {path.name: path.read_bytes() for path in run.glob("*.jsonl")}
    done = opsgen(finished, "run", "small.toml", "--json")
    assert done.returncode == 0, done.stderr
    assert {path.name: path.read_bytes() for path in run.glob("*.jsonl")} == before
    assert json.loads(done.stdout)["release"] == str(_release(finished).relative_to(finished))


def test_admit_alone_says_what_another_threshold_changes(finished: Path) -> None:
    run = _run_folder(finished)
    journal = (run / "journal.jsonl").read_bytes()
    args = ("admit", "small.toml", "--set", "admit.runtime_window_ms=[1e5, 1e6]")
    done = opsgen(finished, *args, "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["funnel"]["admitted"] == 0
    assert {change["new_reason"] for change in told["changes"]} == {"runtime_window"}
    assert all("ms" in change["witness"] for change in told["changes"])
    assert (run / "journal.jsonl").read_bytes() == journal
    shown = opsgen(finished, *args)
    assert "runtime_window" in shown.stdout
    short = opsgen(finished, "release", "small.toml", "--set", "admit.runtime_window_ms=[1e5, 1e6]")
    assert short.returncode == 2
    assert short.stderr.count("\n") == 1
    assert "torch#2" in short.stderr


def test_wanting_less_keeps_the_other_verdicts(finished: Path) -> None:
    before = {path.name: path.read_bytes() for path in _run_folder(finished).glob("verdicts-*")}
    done = opsgen(finished, "admit", "small.toml", "--set", 'release.want={"torch#1"=1}')
    assert done.returncode == 0, done.stderr
    assert {
        path.name: path.read_bytes() for path in _run_folder(finished).glob("verdicts-*")
    } == before


def test_a_lost_journal_is_noticed(finished: Path, tmp_path: Path) -> None:
    copy = tmp_path / _run_folder(finished).name
    shutil.copytree(_run_folder(finished), copy)
    assert Stages(RunFolder.at(copy)).is_complete()
    (copy / "journal.jsonl").write_bytes(b"")
    assert not Stages(RunFolder.at(copy)).is_complete()


def test_show_prints_the_certificate(finished: Path) -> None:
    lines = read_jsonl(_run_folder(finished) / "tasks.jsonl", PlanLine)
    task = next(line.task for line in lines if line.task)
    shown = opsgen(finished, "show", task.task_id[:10])
    assert shown.returncode == 0, shown.stderr
    assert task.task_id in shown.stdout
    assert "class Model" in shown.stdout
    assert "admitted" in shown.stdout or "rejected" in shown.stdout
    told = json.loads(opsgen(finished, "show", task.task_id, "--json").stdout)
    assert told["verdict"]["task_id"] == told["case"]["task"]["task_id"] == task.task_id


def test_an_interrupted_run_resumes_to_the_same_release(finished: Path, tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(RECIPE)
    command = [sys.executable, "-m", "opsgen", "run", "small.toml"]
    command += ["--set", "fleet.children_per_device=1"]
    process = subprocess.Popen(
        command, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONHASHSEED": "42"},
    )  # fmt: skip
    deadline = time.monotonic() + 300
    while _num_measured(tmp_path) < 1 and time.monotonic() < deadline:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors.splitlines()[-1] == "opsgen: interrupted; the same command resumes"
    cut = _num_measured(tmp_path)
    more = ("--set", "fleet.children_per_device=4")
    done = opsgen(tmp_path, "run", "small.toml", "--json", *more, hash_seed="7")
    assert done.returncode == 0, done.stderr
    assert cut < _num_measured(tmp_path)
    attempts = read_jsonl(_run_folder(tmp_path) / "journal.jsonl", Attempt)
    keys = [(a.job, a.key, a.number) for a in attempts]
    assert len(keys) == len(set(keys))
    one, other = _run_folder(finished), _run_folder(tmp_path)
    assert one.name == other.name
    assert (one / "tasks.jsonl").read_bytes() == (other / "tasks.jsonl").read_bytes()
    (verdicts,) = other.glob("verdicts-*.jsonl")
    assert verdicts.read_text() == (one / verdicts.name).read_text()
    first, second = (
        json.loads((folder / "manifest.json").read_text())["tasks_hash"]
        for folder in (_release(finished), tmp_path / json.loads(done.stdout)["release"])
    )
    assert first == second


def _num_measured(folder: Path) -> int:
    journals = list(folder.glob("data/runs/*/journal.jsonl"))
    return sum(path.read_text().count('"job":"measure"') for path in journals)
