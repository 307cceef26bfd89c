"""Identity of code: what leaves the hash as it is, and what must not."""

from __future__ import annotations

import ast
import random
from functools import cache

import pytest
from disguises import disguise, relayout, rename, reorder_sizes, resize, respell_imports
from hypothesis import given
from hypothesis import strategies as st

from opsgen.records import Task
from opsgen.source.chance import draw_tasks
from opsgen.source.normalise import read_form, source_hash


@cache
def sampled() -> list[Task]:
    return list(draw_tasks(300, seed=5))


codes = st.integers(0, 280).map(lambda place: sampled()[place].code)
rngs = st.integers(0, 2**32).map(random.Random)


@given(codes, rngs)
def test_what_an_author_is_free_in_leaves_the_hash(code: str, rng: random.Random) -> None:
    for rewritten in (
        rename(code, rng),
        respell_imports(code),
        reorder_sizes(code, rng),
        relayout(code, rng),
        disguise(code, rng),
    ):
        ast.parse(rewritten)
        assert source_hash(rewritten) == source_hash(code)


@given(codes, rngs)
def test_sizes_are_abstracted_from_the_skeleton_only(code: str, rng: random.Random) -> None:
    resized = disguise(resize(code, rng), rng)
    assert read_form(resized).skeleton == read_form(code).skeleton
    assert read_form(resized).model_tokens == read_form(code).model_tokens
    assert source_hash(resized) != source_hash(code)


@given(codes, st.data())
def test_what_changes_the_task_changes_the_hash(code: str, data: st.DataObject) -> None:
    tree = ast.parse(code)
    places = [node for node in ast.walk(tree) if _mutable(node)]
    node = data.draw(st.sampled_from(places))
    if isinstance(node, ast.Attribute):
        node.attr += "_"
    elif isinstance(node, ast.keyword):
        node.arg = f"{node.arg}_"
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        node.value = not node.value
    elif isinstance(node, ast.Constant):
        node.value += "_" if isinstance(node.value, str) else 1
    assert source_hash(ast.unparse(tree)) != source_hash(code)


def _mutable(node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute):  # of torch, or of a tensor
        return not (isinstance(node.value, ast.Name) and node.value.id == "self")
    is_constant = isinstance(node, ast.Constant) and isinstance(
        node.value, bool | float | int | str
    )
    return is_constant or isinstance(node, ast.keyword)


def test_sampled_tasks_have_hashes_of_their_own() -> None:
    hashes = [source_hash(task.code) for task in sampled()]
    assert len(set(hashes)) == len(hashes) > 250


HELPERS = """
import math
import torch
from torch import nn
from torch.nn import functional as func

WIDTH, DEPTH = 64, 2
hidden = 4 * WIDTH


def gate(x, scale=1.0):
    return x * torch.sigmoid(scale * x)


class Block(nn.Module):
    factor = 2

    def __init__(self, dim, bias=True):
        super(Block, self).__init__()
        self.up = nn.Linear(dim, self.factor * dim, bias=bias)
        self.register_buffer("shift", torch.zeros(dim))

    def forward(self, x):
        y = gate(self.up(x), scale=math.sqrt(2))
        a, b = y.chunk(2, dim=-1)
        return self.mix(a, b) + self.shift

    def mix(self, a, b):
        return func.relu(a) - b


class Model(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.blocks = nn.ModuleList([Block(dim, bias=False) for _ in range(DEPTH)])

    def forward(self, x):
        for block in self.blocks:
            x = x + block(x) / hidden
        return x


def get_inputs():
    return [torch.rand(32, WIDTH)]


def get_init_inputs():
    return [WIDTH]
"""


@pytest.mark.parametrize(
    "changes",
    [
        {"gate": "swish", "scale": "beta"},
        {"dim, bias=True": "dim, with_bias=True", "=bias)": "=with_bias)"}
        | {"(dim, bias=False)": "(dim, with_bias=False)", "Block": "Layer"},
        {"factor": "widening"},
        {"shift": "offset"},
        {"mix": "blend"},
        {"self.up": "self.widen"},
        {"for _ in": "for number in"},
        {"block": "layer"},
        {"a, b": "left, right", "(a)": "(left)", "- b": "- right"},
        {"WIDTH, DEPTH = 64, 2": "DEPTH = 2\nWIDTH = 64"},
        {"hidden = 4 * WIDTH": "hidden = 256"},
        {"/ hidden": "/ (4 * 64)"},
        {"super(Block, self)": "super()"},
        {"from torch.nn import functional as func\n": "", "func.": "torch.nn.functional."},
        {"import math\n": "from math import sqrt\n", "math.": ""},
        {"torch.rand(32, WIDTH)": "torch.rand(32, 64)"},
        {"WIDTH, DEPTH": "unused = 3\nWIDTH, DEPTH"},
        {"y = gate(self.up(x), ": "x = gate(self.up(x), ", "y.chunk": "x.chunk"},
    ],
    ids=lambda changes: next(iter(changes)).strip(),
)
def test_names_of_helpers_and_constants_do_not_matter(changes: dict[str, str]) -> None:
    changed = HELPERS
    for old, new in changes.items():
        assert old in changed
        changed = changed.replace(old, new)
    ast.parse(changed)
    assert source_hash(changed) == source_hash(HELPERS)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("func.relu(a) - b", "func.relu(b) - a"),
        ("func.relu", "func.gelu"),
        ("range(DEPTH)", "range(3)"),
        ("self.mix(a, b)", "self.mix(b, a)"),
        ("bias=False", "bias=True"),
        ("scale * x", "x"),
        ("factor = 2", "factor = 3"),
        ("x = x + block(x)", "x = block(x)"),
        ("gate(self.up(x), scale=math.sqrt(2))", "gate(self.up(x))"),
        ('"shift"', '"drift"'),
        ("torch.rand(32, WIDTH)", "torch.randn(32, WIDTH)"),
        ("x * torch.sigmoid", "scale * torch.sigmoid"),
    ],
)
def test_what_helpers_do_matters(old: str, new: str) -> None:
    changed = HELPERS.replace(old, new)
    assert changed != HELPERS
    assert source_hash(changed) != source_hash(HELPERS)


@pytest.mark.parametrize(
    "code",
    [
        "x = 1",
        "async def f():\n    async for a in b:\n        await a",
        "class A:\n    class B(A, metaclass=M):\n        x: int = 3\n        y: str\n    @property\n    def b(self): return self.x",
        "x = x + 1\ny = y",
        "a = b\nb = a",
        "def f(a, /, b=1, *c, d, e=2, **g):\n    global h\n    h = lambda q, *r: (q, r, a)\n    del b",
        "try:\n    import torch\nexcept ImportError as error:\n    raise\nfinally:\n    pass",
        "match x:\n    case [1, *rest] | {'k': rest}: pass\n    case C(a=1) as b: pass",
        "with open(p) as f, g as (h, i):\n    x[0], *y = f'{f!r:>{i}}'\n",
        "while (n := 3) > 1:\n    x = [i for j in n for i in j if i]\nelse:\n    y = {a: b for a, b in x}",
        "class Model:\n    def setup(): pass\n    @staticmethod\n    def f(x): return x\n    forward = f",
        "x = 10**100 * 10**100 // 0\ny = -'a' + 1 // 0",
        "from .a import *\nfrom . import b as c\nimport d.e\n",
        "",
    ],
)
def test_any_code_has_a_form(code: str) -> None:
    form = read_form(code)
    assert form.source_hash == source_hash(code + "\n# the same")


def test_code_without_a_model_is_told_apart() -> None:
    assert source_hash("x = 1") != source_hash("x = 2")
    assert source_hash("def f(): return 1") != source_hash("def f(): return 2")


def test_code_too_deep_to_walk_is_a_syntax_error() -> None:
    with pytest.raises(SyntaxError):
        read_form("x = " + "-" * 60_000 + "1")
    with pytest.raises(SyntaxError):
        read_form("x = f(" + " + ".join(["a"] * 5_000) + ")")
