"""Users' own ops: what is wrong with an entry is told in one line, and nothing is half loaded."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from opsgen.errors import UsageError
from opsgen.ops import CATALOGUE
from opsgen.ops.user import check_entry, load_ops, loaded_ops

README = (Path(__file__).parents[3] / "README.md").read_text()
EXAMPLE = README.partition("## Your own ops")[2].partition("```python\n")[2].partition("```")[0]


@pytest.mark.parametrize("name", CATALOGUE)
def test_the_catalogue_passes_its_own_check(name: str) -> None:
    assert check_entry(CATALOGUE[name]) is None


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (('"squared_relu"', '"relu"'), ("relu", "already")),
        (('"squared_relu"', '"Squared Relu"'), ("Squared Relu", "identifier")),
        (("OPS = (", "OPS = [*("), ("SyntaxError",)),
        (("OPS", "OPERATORS"), ("must define OPS",)),
        (("2 * prod(out)", "out"), ("squared_relu", "flops")),
        (("F.relu({x})", "F.relu({q})"), ("squared_relu", "{q}")),
        (("Kind.POINTWISE", "Kind.POINTWIZE"), ("AttributeError", "POINTWIZE")),
        (("passes=2.0", "out=lambda ins, attrs: [*ins[0]]"), ("tuple of ints",)),
        (("passes=2.0", 'props=frozenset({"fast"})'), ("squared_relu", "fast")),
        (("passes=2.0", "attrs=lambda draw, ins: ins[7]"), ("squared_relu", "IndexError")),
        (("passes=2.0", "attrs=lambda draw, ins: None"), ("squared_relu", "none of")),
    ],
)
def test_wrong_entries_are_told_in_one_line(
    edit: tuple[str, str], words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Other tests of this process have made tables.
    monkeypatch.setattr("opsgen.ops.user._state", {})
    assert edit[0] in EXAMPLE
    path = tmp_path / "my_ops.py"
    path.write_text(EXAMPLE.replace(*edit, 1))
    with pytest.raises(UsageError) as told:
        load_ops(path)
    message = str(told.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    assert all(word in message for word in words)
    assert loaded_ops() is None
    assert "squared_relu" not in CATALOGUE


_TOO_LATE = """
from pathlib import Path
from opsgen.ops.user import load_ops
from opsgen.recipe import SampleConfig
from opsgen.sampler import Plan

if {loads_first}:
    digest = load_ops(Path({path!r}))
    assert load_ops(Path({path!r})) == digest
    plan = Plan(1, SampleConfig(user_ops=digest))
    names = {{plan.sequence("torch#1", number)[0] for number in range(500)}}
    assert "squared_relu" in names
else:
    Plan(1, SampleConfig()).sequence("torch#1", 0)
    load_ops(Path({path!r}))
"""


@pytest.mark.parametrize("loads_first", [True, False])
def test_tables_see_ops_that_are_loaded_before_them(loads_first: bool, tmp_path: Path) -> None:
    path = tmp_path / "my_ops.py"
    path.write_text(EXAMPLE)
    code = _TOO_LATE.format(loads_first=loads_first, path=str(path))
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode == 0) is loads_first, done.stderr
    assert loads_first or "before anything is sampled" in done.stderr


def test_a_child_refuses_a_file_that_changed(tmp_path: Path) -> None:
    path = tmp_path / "my_ops.py"
    path.write_text(EXAMPLE)
    code = "from opsgen.ops.user import load_inherited_ops; load_inherited_ops()"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "OPSGEN_OPS": f"0123456789abcdef:{path}"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "MeasureError" in done.stderr
    assert "has changed" in done.stderr
