"""`opsgen ops` says what the catalogue holds, and users' own ops go all the way."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest
from test_mistakes import QUICKSTART, ROOT, assert_mistake, run_opsgen

from opsgen.ops import CATALOGUE
from opsgen.ops.counting import computing_ops, qualified_names, reachable_ops
from opsgen.sampler.strata import ROLES

SMALL = ("--set", 'release.want={"torch#2"=2}')


@pytest.fixture
def my_ops(tmp_path: Path) -> Path:
    """The example of the README, word for word."""
    section = (ROOT / "README.md").read_text().partition("## Your own ops")[2]
    path = tmp_path / "my_ops.py"
    path.write_text(section.partition("```python\n")[2].partition("```")[0])
    return path


def test_printed_counts_are_the_codes(tmp_path: Path) -> None:
    printed = run_opsgen("ops", folder=tmp_path, env={"COLUMNS": "400"}).stdout
    counted = computing_ops()
    names = qualified_names(reachable_ops())
    assert re.search(rf"^ops +{len(counted)} under {len(names)} qualified names", printed, re.M)
    kinds = Counter(op.kind.value for op in counted)
    for kind, count in kinds.items():
        assert re.search(rf"^by kind.*\b{kind} {count}\b", printed, re.M), kind
    for role, members in ROLES.items():
        count = sum(kinds[kind.value] for kind in members)
        assert re.search(rf"^by role.*\b{role} {count}\b", printed, re.M), role


def test_json_lists_every_entry(tmp_path: Path) -> None:
    told = json.loads(run_opsgen("ops", "--json", folder=tmp_path).stdout)
    assert [row["op"] for row in told["ops"]] == list(CATALOGUE)
    for row in told["ops"]:
        op = CATALOGUE[row["op"]]
        assert row["is_deterministic"] == op.is_deterministic
        assert row["is_backward_deterministic"] == op.is_backward_deterministic
        assert row["role"] in ROLES
    assert told["counts"]["ops"] == len(computing_ops())


def test_own_ops_are_listed_sampled_and_named(my_ops: Path, tmp_path: Path) -> None:
    told = json.loads(run_opsgen("ops", "--ops", str(my_ops), "--json", folder=tmp_path).stdout)
    assert "squared_relu" in {row["op"] for row in told["ops"]}
    every = ("--set", 'release.want={"torch#1"=400}')
    done = run_opsgen("sample", QUICKSTART, "--ops", str(my_ops), *every, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    (folder,) = (tmp_path / "data" / "runs").iterdir()
    assert re.search(r'^user_ops = "[0-9a-f]{16}"$', (folder / "recipe.toml").read_text(), re.M)
    assert "squared_relu" in (folder / "tasks.jsonl").read_text()
    assert run_opsgen("sample", QUICKSTART, *every, folder=tmp_path).returncode == 0
    assert len(list((tmp_path / "data" / "runs").iterdir())) == 2
    assert_mistake(
        run_opsgen("sample", str(folder / "recipe.toml"), folder=tmp_path),
        "sample.user_ops",
        "--ops",
    )


@pytest.mark.check
def test_own_ops_are_probed_in_children(my_ops: Path, tmp_path: Path) -> None:
    pair = 'sample.strata={"pointwise"=1.0}'
    args = (QUICKSTART, "--ops", str(my_ops), "--set", pair)
    want = ("--set", 'release.want={"torch#1"=400}')
    assert run_opsgen("sample", *args, *want, folder=tmp_path).returncode == 0
    (folder,) = (tmp_path / "data" / "runs").iterdir()
    lines = (folder / "tasks.jsonl").read_text().splitlines(keepends=True)
    # One task is enough: the line that holds the op.
    kept = [line for line in lines if "squared_relu" in line][:1]
    (folder / "tasks.jsonl").write_text("".join(kept))
    assert kept
    done = run_opsgen("probe", *args, *want, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "node 0 (squared_relu)" in (folder / "journal.jsonl").read_text()


def test_a_missing_file_is_told_in_one_line(tmp_path: Path) -> None:
    assert_mistake(run_opsgen("ops", "--ops", "no.py", folder=tmp_path), "no.py", "No such file")
