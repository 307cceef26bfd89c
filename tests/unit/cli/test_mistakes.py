"""A user's mistake is one line and exit code 2, and leaves nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
QUICKSTART = str(ROOT / "pipelines" / "quickstart.toml")


def run_opsgen(
    *args: str, folder: Path, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "opsgen", *args],
        cwd=folder,
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def assert_mistake(done: subprocess.CompletedProcess[str], *words: str) -> None:
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith("opsgen: ")
    for word in words:
        assert word in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("measure.devise=cpu", ("quickstart.toml", "measure.devise", "measure.device")),
        ("fleet.children_per_device=many", ("quickstart.toml", "fleet.children_per_device")),
        ('release.want={"torch#9"=1}', ("release.want", "torch#9")),
        ("sample.calibration=tpu", ("sample.calibration", "tpu", "cpu")),
        ("sample.dtypes={int8=1.0}", ("sample.dtypes", "int8")),
    ],
)
def test_wrong_recipes(override: str, words: tuple[str, ...], tmp_path: Path) -> None:
    done = run_opsgen("run", QUICKSTART, "--set", override, folder=tmp_path)
    assert_mistake(done, *words)
    assert list(tmp_path.iterdir()) == []


def test_unreadable_recipe(tmp_path: Path) -> None:
    done = run_opsgen("run", "nowhere.toml", folder=tmp_path)
    assert_mistake(done, "nowhere.toml", "No such file")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.check
def test_no_cpp_compiler(tmp_path: Path) -> None:
    done = run_opsgen("run", QUICKSTART, folder=tmp_path, env={"CXX": "/nowhere/g++"})
    assert_mistake(done, "C++ compiler")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.check
def test_no_cuda(tmp_path: Path) -> None:
    args = ("run", QUICKSTART, "--set", "measure.device=cuda")
    done = run_opsgen(*args, folder=tmp_path, env={"CUDA_VISIBLE_DEVICES": ""})
    assert_mistake(done, "cuda", "no GPU")
    assert list(tmp_path.iterdir()) == []


def test_missing_foreign_file(tmp_path: Path) -> None:
    assert_mistake(run_opsgen("audit", "no.py", folder=tmp_path), "no.py")


@pytest.mark.parametrize("stage", ["probe", "measure", "admit", "release"])
def test_stages_before_their_time(stage: str, tmp_path: Path) -> None:
    assert_mistake(run_opsgen(stage, QUICKSTART, folder=tmp_path), "opsgen sample")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.check
def test_a_full_disk_is_one_line(tmp_path: Path) -> None:
    command = f"ulimit -f 8; exec {sys.executable} -m opsgen sample {QUICKSTART}"
    done = subprocess.run(
        ["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 3
    assert done.stderr.count("\n") == 1
    assert "too large" in done.stderr


def test_unknown_task_and_kind(tmp_path: Path) -> None:
    assert_mistake(run_opsgen("show", "deadbeef", folder=tmp_path), "deadbeef")
    assert_mistake(run_opsgen("ops", "--kind", "poling", folder=tmp_path), "poling", "pooling")


def test_help_and_version(tmp_path: Path) -> None:
    done = run_opsgen("--help", folder=tmp_path)
    assert done.returncode == 0
    for command in ("run", "sample", "probe", "measure", "admit", "release", "audit", "doctor"):
        assert command in done.stdout
    assert run_opsgen("--version", folder=tmp_path).stdout.startswith("opsgen 0.")


@pytest.mark.check
def test_sampling_needs_no_machine_and_stands_alone(tmp_path: Path) -> None:
    for folder, seed in (("one", "3"), ("two", "4")):
        done = run_opsgen(
            "sample", QUICKSTART, "--runs", folder, folder=tmp_path, env={"PYTHONHASHSEED": seed}
        )
        assert done.returncode == 0, done.stderr
    one, two = (next((tmp_path / name).glob("*/tasks.jsonl")) for name in ("one", "two"))
    assert one.read_bytes() == two.read_bytes()
    assert one.parent.name == two.parent.name
