"""What is written as parquet, JSONL or files is read back, and nothing of a source is lost."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsgen.errors import UsageError
from opsgen.records import encode_line
from opsgen.source import UNKNOWN_LEVEL, check_source, read_rows, read_task_file, read_tasks

TASK = """import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) * {number}


def get_inputs():
    return [torch.randn(8, 8)]


def get_init_inputs():
    return []
"""
BROKEN = ("", "x = (\n", "class Model: pass\n", "def get_inputs(): return []\n", "-" * 99_999 + "1")


def task(number: int) -> str:
    return TASK.format(number=number)


def spell_list(ops: list[str]) -> object:
    return ops


def spell_json(ops: list[str]) -> object:
    return json.dumps(ops)


def spell_bare(ops: list[str]) -> object:
    return ops[0] if ops else None


SPELLINGS = {"list": spell_list, "json": spell_json, "bare": spell_bare}

texts = st.text(st.characters(codec="utf-8", exclude_characters="\r"), max_size=40)
names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.]{0,20}", fullmatch=True)
codes = st.one_of(texts, st.sampled_from(BROKEN), st.integers(0, 9).map(task))
rows = st.lists(
    st.fixed_dictionaries(
        {
            "code": codes,
            "ops": st.lists(names, max_size=3),
            "data_source": st.sampled_from(["torch#1", "torch#12", "transformers", "own"]),
        }
    ),
    min_size=1,
    max_size=6,
)


def write(path: Path, table: list[dict[str, Any]]) -> Path:
    """Write rows as the file's name says."""
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(table), path, row_group_size=2)
    else:
        opened = gzip.open if path.suffix == ".gz" else open
        with opened(path, "wt", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in table)
    return path


@pytest.mark.parametrize("name", ["rows.parquet", "rows.jsonl", "rows.jsonl.gz"])
@pytest.mark.parametrize("spelling", SPELLINGS)
@given(table=rows)
def test_rows_come_back_equal(name: str, spelling: str, table: list[dict[str, Any]]) -> None:
    with TemporaryDirectory() as folder:
        if spelling == "bare":
            table = [row | {"ops": row["ops"][:1]} for row in table]
        spelled = [row | {"ops": SPELLINGS[spelling](row["ops"])} for row in table]
        path = write(Path(folder, name), spelled)
        found = list(read_tasks(path))
    for number, (read, row) in enumerate(zip(found, table, strict=True)):
        assert (read.code, read.data_source) == (row["code"], row["data_source"])
        assert read.ops == tuple(row["ops"])
        level = {"torch#1": 1, "torch#12": 12}.get(row["data_source"], UNKNOWN_LEVEL)
        assert (read.level, read.line, read.origin) == (level, number, f"{path}:{number}")
        encode_line(read)


@given(table=st.lists(codes, min_size=1, max_size=5), deep=st.booleans())
def test_folders_come_back_in_the_order_of_their_names(table: list[str], deep: bool) -> None:
    with TemporaryDirectory() as folder:
        paths = [
            Path(folder, f"level{number}" if deep else "", f"task{number}.py")
            for number in range(len(table))
        ]
        for path, code in reversed(list(zip(paths, table, strict=True))):
            path.parent.mkdir(exist_ok=True)
            path.write_text(code, encoding="utf-8")
        found = list(read_tasks(Path(folder)))
    # A mark of the byte order at the beginning is none of the code.
    assert [read.code for read in found] == [code.removeprefix("\ufeff") for code in table]
    assert [read.origin for read in found] == list(map(str, paths))
    assert [read.line for read in found] == list(range(len(table)))
    wanted = [(f"level{n}", n) if deep else ("foreign", UNKNOWN_LEVEL) for n in range(len(table))]
    assert [(read.data_source, read.level) for read in found] == wanted


def test_only_what_is_hidden_or_no_source_is_skipped(tmp_path: Path) -> None:
    for name in ("a.py", ".b.py", ".hidden/c.py", "__pycache__/d.py", "e.txt", "f/g/h.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(task(1))
    write(tmp_path / "f" / "rows.jsonl", [{"code": task(2)}])
    (tmp_path / "g.jsonl").write_text("")
    found = [read.origin for read in read_tasks(tmp_path)]
    assert found == [
        str(tmp_path / "a.py"),
        str(tmp_path / "f/g/h.py"),
        f"{tmp_path}/f/rows.jsonl:0",
    ]


def test_rows_without_usable_code_become_tasks_that_break_a_rule(tmp_path: Path) -> None:
    good, lines = json.dumps({"code": task(1)}), []
    lines += [good, '{"code": null}', '{"code": 7}', "{}", "no JSON", '["list"]', "", "[" * 99_999]
    lines += [json.dumps({"code": broken}) for broken in BROKEN] + ['{"code": "\\ud800"}']
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(lines))
    first, *others = read_tasks(path)
    assert check_source(first.code) == ()
    assert len(others) == len(lines) - 2
    for read in others:
        encode_line(read)
        if len(read.code) < 1000:
            assert check_source(read.code), read.code
    assert [read.origin for read in others] == [f"{path}:{n}" for n in range(1, len(others) + 1)]


def test_equal_code_has_one_identity_however_it_is_laid_out(tmp_path: Path) -> None:
    spaced = "# another comment\n" + task(1).replace("\n\n\n", "\n\n")
    table = [{"code": code} for code in (task(1), spaced, task(2), "x = (", "x = (", "x = ((")]
    ids = [read.task_id for read in read_tasks(write(tmp_path / "rows.parquet", table))]
    assert ids[0] == ids[1]
    assert ids[3] == ids[4]
    assert len(set(ids)) == 4


@pytest.mark.parametrize(
    ("columns", "taken"),
    [
        ({"code": task(1), "reference": "no"}, "code"),
        ({"code": "cuda", "reference": task(1)}, "reference"),
        ({"code": "no", "prompt": "no"}, "code"),
        ({"prompt": "Write\nclass ModelNew", "pytorch_code": task(1)}, "pytorch_code"),
        ({"whatever": task(1), "answer": "no", "level": 2}, "whatever"),
    ],
)
@pytest.mark.parametrize("name", ["rows.parquet", "rows.jsonl"])
def test_the_column_that_defines_models_is_taken(
    columns: dict[str, Any], taken: str, name: str, tmp_path: Path
) -> None:
    (row,) = read_rows(write(tmp_path / name, [columns]))
    assert (row.column, row.code) == (taken, columns[taken])
    assert (row.level, row.data_source) == (
        (2, "level2") if "level" in columns else (UNKNOWN_LEVEL, "foreign")
    )


@pytest.mark.parametrize(
    ("level", "wanted"),
    [(3, 3), ("level3", 3), ("3", 3), ("Level 3", 3), (3.0, 3), (None, 0), ("hard", 0), (-1, 0)],
)
def test_levels_in_every_spelling(level: object, wanted: int, tmp_path: Path) -> None:
    path = write(tmp_path / "rows.jsonl", [{"code": "", "level": level, "data_source": "d"}])
    (read,) = read_tasks(path)
    assert (read.level, read.data_source) == (wanted, "d")


def test_text_that_is_not_utf_8_is_read_with_its_faults(tmp_path: Path) -> None:
    codes = pa.array([b"x = '\xff'", None, b"y"], pa.binary()).view(pa.string())
    table = pa.table({"code": codes, "ops": [["a"], [], None]})
    pq.write_table(table, tmp_path / "rows.parquet")
    found = list(read_tasks(tmp_path / "rows.parquet"))
    assert [read.code for read in found] == ["x = '\ufffd'", "", "y"]
    assert [read.ops for read in found] == [("a",), (), ()]
    (tmp_path / "t.py").write_bytes(b"\xef\xbb\xbfx = 1  # \xff\n")
    assert read_task_file(tmp_path / "t.py").code == "x = 1  # \ufffd\n"


def test_a_limit_reads_no_further(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(task(1))
    (tmp_path / "b.parquet").write_bytes(b"damaged")
    assert len(list(read_tasks(tmp_path, limit=1))) == 1
    with pytest.raises(UsageError, match=r"b\.parquet: is not parquet"):
        list(read_tasks(tmp_path))


def _damaged_parquet(path: Path) -> None:
    write(path, [{"code": task(n) * 50} for n in range(100)])
    content = bytearray(path.read_bytes())
    content[100 : len(content) // 2] = bytes(len(content) // 2 - 100)
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("name", "make", "words"),
    [
        ("no.py", None, "No such file"),
        ("no/where", None, "No such file"),
        ("empty", Path.mkdir, r"holds no \.py, \.parquet"),
        ("x.parquet", lambda path: path.write_bytes(b"PAR1"), "is not parquet"),
        ("x.parquet", _damaged_parquet, "damaged|cannot be read"),
        (
            "x.parquet",
            lambda path: write(path, [{"a": "b", "n": 1}]),
            "code; columns with text: a$",
        ),
        ("x.jsonl", lambda path: write(path, [{"a": "b"}]), "no column holds task code"),
        ("x.jsonl", lambda path: path.write_text("no\n"), "is not JSONL"),
        ("x.jsonl", lambda path: path.write_text(""), "holds no task"),
        ("x.jsonl.gz", lambda path: path.write_text("no\n"), "cannot be read: Not a gzipped"),
        (
            "x.jsonl.gz",
            lambda path: path.write_bytes(gzip.compress(b"{}\n")[:-9]),
            "cannot be read",
        ),
        ("x.csv", lambda path: path.write_text("a\n"), r"is no \.py"),
    ],
)
def test_unreadable_sources_get_one_line(name: str, make: Any, words: str, tmp_path: Path) -> None:
    if make:
        make(tmp_path / name)
    with pytest.raises(UsageError, match=words) as caught:
        list(read_tasks(tmp_path / name))
    assert "\n" not in str(caught.value)
    assert str(tmp_path / name) in str(caught.value)


def test_tables_without_code_are_passed_over_beside_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path / "a.parquet", [{"ms": 1.0, "mode": "eager"}])
    write(tmp_path / "b.parquet", [{"code": task(1)}])
    (read,) = read_tasks(tmp_path)
    assert read.origin == f"{tmp_path}/b.parquet:0"
    assert "a.parquet" in caplog.text
    (tmp_path / "b.parquet").unlink()
    with pytest.raises(UsageError, match=r"a\.parquet: no column holds task code"):
        list(read_tasks(tmp_path))


def test_files_come_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for name in ("level10/1_a.py", "level2/10_b.py", "level2/9_b.py", "level2/9_a.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x = 1\n")
    found = [Path(row.origin).relative_to(tmp_path) for row in read_rows(tmp_path)]
    assert [str(path) for path in found] == [
        "level2/9_a.py",
        "level2/9_b.py",
        "level2/10_b.py",
        "level10/1_a.py",
    ]
