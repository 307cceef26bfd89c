"""A release folder from the outside: what loaders, viewers and people find in it."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import msgspec
import polars as pl
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from steady import steady

from opsgen.admit import Case, admit_all, funnel
from opsgen.errors import PublishError, UsageError
from opsgen.recipe import Recipe, ReleaseConfig, read_recipe
from opsgen.records import (
    Effect,
    Environment,
    LazyAnswer,
    MeasureEvidence,
    ProbeEvidence,
    Task,
    TensorSpec,
    Tolerance,
    digest,
)
from opsgen.release import CONFIGS, describe_columns, load_release, write_release
from opsgen.sampler.strata import STRATA

LEAF = TensorSpec(shape=(64, 32), dtype="float32")
TOLERANCE = Tolerance(value=1e-5, error=None, num_terms=32, is_assumed=True)
PROBE = ProbeEvidence(
    num_draws=15,
    tolerances=(TOLERANCE,),
    is_repeatable=True,
    is_pure=True,
    has_stable_inputs=True,
    effects=(Effect(subject="input x", change="redrawn", margin=float("inf")),),
)
ENVIRONMENTS = {
    name: Environment(
        device="cpu",
        device_name="AMD EPYC 9554",
        driver=None,
        cuda=None,
        torch="2.13.0",
        triton=None,
        python="3.12.4",
        compiler=None,
        num_threads=1,
        num_cores=2,
        opsgen="0.1.0",
    )
    for name in ("here", "unused")
}
RECIPE = Recipe(name="tests", seed=7, release=ReleaseConfig(want={"torch#1": 4, "torch#2": 36}))


def case(level: int, line: int) -> Case:
    task = Task(
        task_id=digest(level, line),
        data_source=f"torch#{level}",
        line=line,
        level=level,
        ops=("torch.relu", "torch.sum")[:level],
        code=f"# line {line}, with a | in it\nclass Model: ...\n",
        workloads=(),
        graph_hash=digest(level, line),
        family=digest(level, line // 2),
        stratum=[*STRATA][line % len(STRATA)] if level == 2 else None,
    )
    measure = MeasureEvidence(
        environment_id="here",
        observed=(LEAF,),
        compiled=(LEAF,),
        num_graphs=1,
        num_generated_kernels=1,
        compile_s=2.0,
        is_repeatable=True,
        is_pure=True,
        num_nonfinite=0,
        tolerances=(TOLERANCE,),
        compile_margin=0.5,
        answers=(
            LazyAnswer(name="zeros", margin=2.0 if line % 5 == 1 else 2e3, passes_1e_2=False),
        ),
        timings=(steady("eager", 3.0), steady("compile", 2.0)),
        launch_floor_ms=0.01,
    )
    return Case(task=task, probe=PROBE, measure=None if line % 7 == 3 else measure)


CASES = [case(level, line) for level in (1, 2) for line in range(60)]
VERDICTS = admit_all(CASES, RECIPE)


def write(folder: Path, cases: list[Case] = CASES, recipe: Recipe = RECIPE) -> Path:
    return write_release(
        folder,
        cases=cases,
        verdicts=admit_all(cases, recipe),
        recipe=recipe,
        environments=ENVIRONMENTS,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("run"))


def test_a_release_holds_the_first_admitted_lines_of_each_class(folder: Path) -> None:
    release = load_release(folder)
    assert release.manifest.num_released == {"torch#1": 4, "torch#2": 36}
    taken = release.tasks.filter(pl.col("data_source") == "torch#1")["line"].sort().to_list()
    assert taken == [0, 2, 4, 5]
    assert [verdict.line for verdict in release.manifest.skipped][:1] == [3]
    assert set(release.measurements["task_id"]) == set(release.tasks["task_id"])
    assert release.measurements.group_by("task_id").len()["len"].unique().to_list() == [2]
    counts = funnel(VERDICTS)
    assert len(release.rejected) == counts.num_rejected + counts.num_deferred
    assert release.manifest.funnel == counts
    assert set(release.manifest.environments) == {"here"}


def test_families_are_whole_and_measurements_follow_their_tasks(folder: Path) -> None:
    release = load_release(folder)
    per_family = release.tasks.group_by("family").agg(pl.col("split").n_unique())
    assert per_family["split"].max() == 1
    joined = release.measurements.join(release.tasks, on="task_id")
    assert (joined["split"] == joined["split_right"]).all()


def test_rows_are_found_by_the_start_of_their_id(folder: Path) -> None:
    release = load_release(folder)
    task_id = release.tasks["task_id"][0]
    (row,) = release.find_tasks(task_id[:12])
    assert row.task_id == task_id
    assert json.loads(row.ops) in (["torch.relu"], ["torch.relu", "torch.sum"])
    assert {one.mode for one in release.find_measurements(task_id)} == {"eager", "compile"}
    assert release.find_rejected(release.rejected["task_id"][0])[0].reason
    assert release.find_tasks("no such task") == []


def test_equal_input_gives_equal_bytes_and_leaves_what_is_there(
    folder: Path, tmp_path: Path
) -> None:
    again = write(tmp_path, random.Random(1).sample(CASES, len(CASES)))
    assert again.name == folder.name
    names = sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    for name in names:
        assert (again / name).read_bytes() == (folder / name).read_bytes(), name
    stamp = (folder / "manifest.json").stat()
    assert write(folder.parent) == folder
    assert (folder / "manifest.json").stat() == stamp
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_only_what_changes_a_release_changes_its_name(folder: Path, tmp_path: Path) -> None:
    fleet = msgspec.structs.replace(RECIPE.fleet, children_per_device=9)
    assert write(tmp_path, recipe=msgspec.structs.replace(RECIPE, fleet=fleet)).name == folder.name
    seeded = msgspec.structs.replace(RECIPE, seed=8)
    assert write(tmp_path, recipe=seeded).name != folder.name


def test_a_release_that_lacks_tasks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PublishError, match=r"torch#1 lacks 1 of 4, torch#2 lacks 33 of 36"):
        write(tmp_path, [one for one in CASES if one.task.line < 5])
    assert list(tmp_path.iterdir()) == []


def test_a_release_of_nothing_is_refused(tmp_path: Path) -> None:
    nothing = msgspec.structs.replace(RECIPE, release=ReleaseConfig(want={"torch#1": 0}))
    with pytest.raises(PublishError, match="no tasks"):
        write(tmp_path, recipe=nothing)


def test_a_release_without_rejected_lines_has_no_empty_files(tmp_path: Path) -> None:
    recipe = msgspec.structs.replace(RECIPE, release=ReleaseConfig(want={"torch#1": 2}))
    release = load_release(write(tmp_path, [case(1, 0), case(1, 2)], recipe))
    full = load_release(write(tmp_path))
    assert release.rejected.shape == (0, full.rejected.width)
    assert release.rejected.schema == full.rejected.schema
    assert [entry.path for entry in release.manifest.files if not entry.num_rows] == []


def test_a_failed_write_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("opsgen.release.writing.write_card", fail)
    with pytest.raises(OSError, match="No space left"):
        write(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_no_release_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a release folder"):
        load_release(tmp_path)
    (tmp_path / "manifest.json").write_text('{"name": 3}')
    with pytest.raises(UsageError, match="not of this version"):
        load_release(tmp_path)


def test_the_card_says_where_everything_is(folder: Path) -> None:
    _, block, text = (folder / "README.md").read_text().split("---\n", 2)
    card = yaml.safe_load(block)
    assert card["size_categories"] == ["n<1K"]
    assert [one["config_name"] for one in card["configs"] if one.get("default")] == ["tasks"]
    listed = {file["path"] for one in card["configs"] for file in one["data_files"]}
    on_disk = {str(path.relative_to(folder)) for path in folder.rglob("*.parquet")}
    assert listed == on_disk == {entry.path for entry in load_release(folder).manifest.files}
    for config, kind in CONFIGS.items():
        table = text.partition(f"### {config}\n")[2].partition("\n### ")[0]
        named = [line.split("`")[1] for line in table.splitlines() if line.startswith("| `")]
        assert named == [column.name for column in describe_columns(kind)]
    assert all(line.count(" | ") == 2 for line in text.splitlines() if line.startswith("| rej"))
    assert text.isascii()


def test_the_card_counts_tasks_by_stratum(folder: Path) -> None:
    tasks = load_release(folder).tasks
    section = (folder / "README.md").read_text().partition("## Fusion strata\n")[2]
    cells = [line.split(" | ") for line in section.partition("\n## ")[0].splitlines()]
    told = {row[0].strip("| `"): row[1] for row in cells[3:] if len(row) == 4}
    counts = {name: tasks.filter(pl.col("stratum") == name).height for name in STRATA}
    counts["none"] = tasks["stratum"].null_count()
    assert told == {name: str(count) for name, count in counts.items() if count}
    assert counts["none"] == 4
    assert sum(counts.values()) == len(tasks)
    assert load_release(folder).rejected["stratum"].null_count() > 0


def test_ops_are_written_as_in_the_original(tmp_path: Path) -> None:
    """A JSON list for stacks of torch ops, the bare name for a block of `transformers`."""
    name = "transformers.models.llama.modeling_llama.LlamaMLP"
    plain = [case(2, line) for line in (0, 2, 3, 6)]
    blocks = [
        msgspec.structs.replace(
            one,
            task=msgspec.structs.replace(
                one.task,
                task_id=digest("block", one.task.line),
                data_source="transformers",
                ops=(name,),
                level=1,
                stratum=None,
            ),
        )
        for one in plain
    ]
    want = ReleaseConfig(want={"torch#2": 1, "transformers": 1})
    recipe = msgspec.structs.replace(RECIPE, release=want)
    release = load_release(write(tmp_path, plain + blocks, recipe))
    for rows in (release.tasks, release.rejected):
        written = dict(rows.select("data_source", "ops").iter_rows())
        assert json.loads(written["torch#2"]) == ["torch.relu", "torch.sum"]
        assert written["transformers"] == name


def test_the_recipe_in_the_folder_is_the_one_that_was_run(folder: Path) -> None:
    assert read_recipe(folder / "recipe.toml") == RECIPE


OFFLINE = """
import sys
from datasets import load_dataset
folder = sys.argv[1]
for config in ("tasks", "measurements"):
    loaded = load_dataset(folder, config)
    assert list(loaded) == ["train", "validation", "test"], loaded
rejected = load_dataset(folder, "rejected")
assert list(rejected) == ["train"]
tasks = load_dataset(folder)
assert sum(split.num_rows for split in tasks.values()) == 40
three = load_dataset(folder, split="train", columns=["ops", "data_source", "code"])
assert three.column_names == ["ops", "data_source", "code"], three.column_names
assert tasks["train"].column_names[:3] == three.column_names
assert tasks["train"].features["tolerances"].feature.dtype == "float64"
assert tasks["train"][0]["graph"] is None
row = next(iter(load_dataset(folder, "tasks", split="test", streaming=True)))
assert row["tolerance_errors"] == [None], row
few = load_dataset(sys.argv[2], "tasks")
assert {name: split.num_rows for name, split in few.items()} == {"train": 3}
"""


def test_datasets_loads_it_without_a_network(folder: Path, tmp_path: Path) -> None:
    environment = os.environ | {
        "HF_HOME": str(tmp_path),
        "HF_HUB_OFFLINE": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
    }
    few = msgspec.structs.replace(RECIPE, release=ReleaseConfig(want={"torch#2": 3}))
    command = [sys.executable, "-c", OFFLINE, str(folder), str(write(tmp_path, recipe=few))]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


def test_writing_and_reading_import_no_torch() -> None:
    code = "import sys, opsgen.release, opsgen.release.schema as s, opsgen.release.rows as r\n"
    code += "s.arrow_schema(r.TaskRow)\nassert 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


def test_judging_imports_no_data_library() -> None:
    code = "import sys, opsgen.admit\n"
    code += "assert not {'polars', 'pyarrow', 'datasets', 'torch'} & set(sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


def test_polars_scans_it(folder: Path) -> None:
    scanned = pl.scan_parquet(folder / "tasks" / "*.parquet").select("ops", "data_source", "code")
    assert scanned.collect().shape == (40, 3)


@settings(max_examples=5, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(wanted=st.integers(1, 30))
def test_larger_releases_contain_smaller_ones(tmp_path: Path, wanted: int) -> None:
    sizes = []
    for count in (wanted, wanted + 5):
        recipe = msgspec.structs.replace(RECIPE, release=ReleaseConfig(want={"torch#2": count}))
        sizes.append(set(load_release(write(tmp_path, CASES, recipe)).tasks["task_id"]))
    assert sizes[0] < sizes[1]
