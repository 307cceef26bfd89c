"""The house rules that no linter knows: room order, package doors, sizes."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "opsgen"
FILES = sorted(PACKAGE.rglob("*.py"))
TEST_FILES = sorted((ROOT / "tests").rglob("*.py"))

# A room imports only from rooms of earlier rows.
ORDER = (
    ("records", "errors", "recipe"),
    ("ops",),
    ("sampler",),
    ("render",),
    ("source",),
    ("admit",),
    ("child",),
    ("verify",),
    ("device",),
    ("jobs",),
    ("fleet",),
    ("judge",),
    ("release",),
    ("train",),
    ("run",),
    ("cli",),
    ("testing",),
)
LEVEL = {room: level for level, rooms in enumerate(ORDER) for room in rooms}

# Which rooms may import a heavy package at all.
DOORS = {
    "msgspec": None,
    "networkx": {"sampler"},
    "pyarrow": {"source", "release"},
    "pynvml": {"child"},
    "psutil": {"child"},
    "torch": {"verify", "device", "jobs", "train"},
    "triton": {"device", "jobs", "train"},
    "numpy": {"verify", "device", "jobs", "judge", "train"},
    "dask": {"fleet"},
    "distributed": {"fleet"},
    "rich": {"fleet", "cli"},
    "typer": {"cli"},
    "polars": {"release"},
    "datasets": {"release"},
    "huggingface_hub": {"release"},
    "transformers": {"train"},
    "hypothesis": {"testing"},
}
MAX_LINES = 400
MAX_FUNCTION_LINES = 60


def _room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def _imports(path: Path) -> list[str]:
    names = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.append(node.module)
    return names


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_up_and_go_through_doors(path: Path) -> None:
    room = _room(path)
    for name in _imports(path):
        package, _, rest = name.partition(".")
        if package == "opsgen" and rest and room in LEVEL:
            other = rest.partition(".")[0]
            assert room == other or LEVEL[other] < LEVEL[room] or LEVEL[other] == 0, (
                f"{room} imports {name}"
            )
        allowed = DOORS.get(package)
        assert package not in DOORS or allowed is None or room in allowed, f"{room}: {name}"


@pytest.mark.parametrize("path", FILES + TEST_FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_and_functions_keep_their_size(path: Path) -> None:
    text = path.read_text()
    assert text.isascii()
    assert text.count("\n") <= MAX_LINES
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            assert node.end_lineno - node.lineno < MAX_FUNCTION_LINES, node.name


@pytest.mark.parametrize("room", sorted(LEVEL.keys() - {"errors"}))
def test_every_room_says_what_it_is(room: str) -> None:
    folder = PACKAGE / room
    if folder.exists():
        tree = ast.parse((folder / "__init__.py").read_text())
        docstring = ast.get_docstring(tree)
        assert docstring is not None
        assert 3 <= docstring.count("\n") + 1 <= 15


def test_the_top_level_holds_nothing_else() -> None:
    known = {"opsgen", "pipelines", "data", "notebooks", "tests"}
    known |= {"pyproject.toml", "README.md", "Makefile", "LICENSE"}
    there = {path.name for path in ROOT.iterdir() if not path.name.startswith(".")}
    assert there - known - {"opsgen.egg-info", "dist"} == set()
