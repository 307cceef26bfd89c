"""`opsgen ops` says what the catalogue holds, and users' own ops go all the way."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest
from test_mistakes import QUICKSTART, ROOT, assert_mistake, run_opsgen

from opsgen.ops import BLOCK_OPS, CATALOGUE
from opsgen.ops.counting import computing_ops, qualified_names, reachable_ops
from opsgen.sampler import COMPOSITES
from opsgen.sampler.strata import ROLES, STRATA, stratum_of_sequence
from opsgen.sampler.table import feasible_ranks

SMALL = ("--set", 'release.want={"torch#2"=2}')


@pytest.fixture
def my_ops(tmp_path: Path) -> Path:
    """The example of the README, word for word."""
    section = (ROOT / "README.md").read_text().partition("## Your own ops")[2]
    path = tmp_path / "my_ops.py"
    path.write_text(section.partition("```python\n")[2].partition("```")[0])
    return path


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What `opsgen ops --composites` prints."""
    folder = tmp_path_factory.mktemp("printed")
    done = run_opsgen("ops", "--composites", folder=folder, env={"COLUMNS": "400"})
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_printed_counts_are_the_codes(printed: str) -> None:
    counted = computing_ops()
    names = qualified_names(reachable_ops())
    assert re.search(rf"^ops +{len(counted)} under {len(names)} qualified names", printed, re.M)
    kinds = Counter(op.kind.value for op in counted)
    for kind, count in kinds.items():
        assert re.search(rf"^by kind.*\b{kind} {count}\b", printed, re.M), kind
    for role, members in ROLES.items():
        count = sum(kinds[kind.value] for kind in members)
        assert re.search(rf"^by role.*\b{role} {count}\b", printed, re.M), role


def test_every_composite_is_counted_and_told(printed: str) -> None:
    families = Counter(composite.family for composite in COMPOSITES.values())
    for family, count in families.items():
        assert re.search(rf"^by family.*\b{family} {count}\b", printed, re.M), family
    assert re.search(rf"^composites +{len(COMPOSITES)}, of which", printed, re.M)
    for name, composite in COMPOSITES.items():
        line = re.search(rf"^{name} .*$", printed, re.M)
        assert line, name
        assert line[0].split()[1] == composite.family
        assert line[0].rstrip().endswith(composite.origin)


def test_the_readme_says_what_is_printed(printed: str) -> None:
    """Pairs come and go as entries change and as more of them are tried: about is enough."""
    readme = (ROOT / "README.md").read_text()
    counts = f"{len(computing_ops())} ops under {len(qualified_names(reachable_ops()))} qualified"
    assert counts in readme
    section = readme.partition("## What tasks are made of\n")[2].partition("\n## ")[0]
    counted = dict(re.findall(rf"\b({'|'.join(STRATA)}) (\d+)\b", printed))
    assert set(counted) == {name for name in STRATA if f"`{name}`" in section} == set(STRATA)
    told = re.search(r"^About ([\d,]+) ordered pairs of ops are legal", section, re.M)
    assert told
    total = sum(map(int, counted.values()))
    assert int(told[1].replace(",", "")) == pytest.approx(total, rel=0.1)
    families = Counter(composite.family for composite in COMPOSITES.values())
    words = " ".join(section.split())
    assert ", ".join(f"{name} {count}" for name, count in sorted(families.items())) in words
    public = sum(composite.public_name is not None for composite in COMPOSITES.values())
    assert f"{len(COMPOSITES)} composites are" in words
    assert f"compare {public} with a public class and {len(COMPOSITES) - public} with" in words


@pytest.mark.check
def test_pairs_are_counted_by_stratum(printed: str) -> None:
    """Against the plan's own question of every pair: from which ranks can it be applied?"""
    names = [
        op.name for op in CATALOGUE.values() if op.is_deterministic and op.name not in BLOCK_OPS
    ]
    pairs = Counter(
        stratum_of_sequence((first, second))
        for first in names
        for second in names
        if feasible_ranks((first, second))
    )
    assert pairs.keys() == STRATA.keys()
    for stratum, count in pairs.items():
        assert re.search(rf"^by stratum.*\b{stratum} {count}\b", printed, re.M), stratum
    assert re.search(rf"^pairs +{pairs.total()} ", printed, re.M)


def test_json_lists_every_entry(tmp_path: Path) -> None:
    told = json.loads(run_opsgen("ops", "--json", folder=tmp_path).stdout)
    assert [row["name"] for row in told["composites"]] == list(COMPOSITES)
    for row in told["composites"]:
        composite = COMPOSITES[row["name"]]
        assert (row["family"], row["origin"]) == (composite.family, composite.origin)
        assert (row["public_name"] is None) == (row["license"] is None)
    assert told["counts"]["by_stratum"].keys() == STRATA.keys()
    assert min(told["counts"]["by_stratum"].values()) > 0
    assert [row["op"] for row in told["ops"]] == list(CATALOGUE)
    for row in told["ops"]:
        op = CATALOGUE[row["op"]]
        assert row["is_deterministic"] == op.is_deterministic
        assert row["is_backward_deterministic"] == op.is_backward_deterministic
        assert row["role"] in ROLES
    assert told["counts"]["ops"] == len(computing_ops())


@pytest.mark.check
def test_own_ops_are_listed_sampled_and_named(my_ops: Path, tmp_path: Path) -> None:
    listing = ("ops", "--ops", str(my_ops), "--kind", "pointwise", "--json")
    told = json.loads(run_opsgen(*listing, folder=tmp_path).stdout)
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


def test_composites_have_no_kind(tmp_path: Path) -> None:
    both = ("ops", "--kind", "pooling", "--composites")
    assert_mistake(run_opsgen(*both, folder=tmp_path), "--kind", "--composites")


def test_a_missing_file_is_told_in_one_line(tmp_path: Path) -> None:
    assert_mistake(run_opsgen("ops", "--ops", "no.py", folder=tmp_path), "no.py", "No such file")
