"""The form of a task: definitions, what runs on import, leftovers of writing."""

import pytest

from opsgen.source import check_source

DUPLICATE = ("self_contained", "duplicates")
TOP = ("self_contained", "top_level")
MODEL = ("self_contained", "one_model")
ENTRY = ("self_contained", "entry_points")
REPLACED = ("self_contained", "replaced_methods")
BLANK = ("self_contained", "placeholders")
LAZY = ("self_contained", "lazy_modules")
PROSE = ("self_contained", "prose")


def _rules(code):
    return {(fault.criterion, fault.rule) for fault in check_source(code)}


@pytest.mark.parametrize(
    ("below", "fault"),
    [
        ("class Model(nn.Module):\n    def forward(self, x):\n        return x", MODEL),
        ("def get_inputs():\n    return [torch.randn(3)]", ENTRY),
        ("def act(x):\n    return x\n\ndef act(x):\n    return x + 1", DUPLICATE),
        ("class Act(nn.Module):\n    pass\n\nclass Act(nn.Module):\n    pass", DUPLICATE),
        (
            "class Act:\n    def run(self):\n        pass\n    def run(self):\n        return 1",
            DUPLICATE,
        ),
        ("def act(x):\n    return x\n\nact = torch.relu", DUPLICATE),
        ("Model = nn.Identity", DUPLICATE),
        ("Model.forward = lambda self, x: x", REPLACED),
        ("torch.manual_seed(0)", TOP),
        ("for i in range(3):\n    pass", TOP),
        ("if torch.cuda.is_available():\n    size = 3", TOP),
        ("if __name__ == '__main__':\n    pass\nelse:\n    size = 3", TOP),
    ],
)
def test_what_hides_or_runs(broken, below, fault):
    assert fault in broken(below=below)


@pytest.mark.parametrize(
    "parts",
    [
        {"methods": "def forward(self, x):\n    return x"},
        {"methods": "def __init__(self):\n    super().__init__()"},
    ],
)
def test_two_methods_of_one_name(broken, parts):
    assert MODEL in broken(**parts)


@pytest.mark.parametrize(
    "parts",
    [
        {"below": "if __name__ == '__main__':\n    import os\n    print(Model()(*get_inputs()))"},
        {"below": "'''What this is for.'''"},
        {"below": "size = 3\nassert size % 3 == 0\nsize *= 2"},
        {"below": "size: int = 3"},
        {
            "methods": "@property\ndef w(self):\n    return 1\n\n@w.setter\ndef w(self, w):\n    pass"
        },
        {
            "above": "from typing import overload\n\n@overload\ndef f(x: int): ...\ndef f(x): return x",
        },
        {
            "above": """
                class Base(nn.Module):
                    def forward(self, x):
                        return self.step(x)

                class Step(Base):
                    def step(self, x):
                        return (y := x) + y
                """,
            "init": "self.step = Step()",
            "forward": "return self.step(self.linear(x))",
        },
    ],
)
def test_forms_that_are_honest(broken, parts):
    assert broken(**parts) == set()


INHERITED = """
import torch
from torch import nn

class Base(nn.Module):
    def forward(self, x):
        return torch.relu(x)

class Model(Base):
    pass

def get_inputs():
    return [torch.randn(3)]

def get_init_inputs():
    return []
"""


def test_a_model_may_inherit():
    assert _rules(INHERITED) == set()
    assert MODEL in _rules(INHERITED.replace("Base(nn.Module)", "Base"))
    assert MODEL in _rules(INHERITED.replace("(Base)", "(nn.Module)"))
    assert MODEL in _rules(INHERITED.replace("    def forward", "    async def forward"))
    assert ENTRY in _rules(INHERITED.replace("def get_inputs", "async def get_inputs"))


def test_unwritten_forwards(broken):
    for forward in ("pass", "...", "'''Later.'''", "raise NotImplementedError('later')"):
        assert BLANK in broken(forward)
    assert BLANK not in broken("'''Apply.'''\nreturn self.linear(x)")


def test_lazy_modules(broken):
    used = "return self.lazy(self.linear(x))"
    assert LAZY in broken(used, init="self.lazy = nn.LazyLinear(16)")
    renamed = "from torch.nn import LazyLinear as Dense"
    assert LAZY in broken(used, init="self.lazy = Dense(16)", above=renamed)
    own = "class LazyLinear(nn.Linear):\n    pass"
    assert broken(used, init="self.lazy = LazyLinear(16, 16)", above=own) == set()


@pytest.mark.parametrize(
    "line",
    [
        "size = 512  # Increased from 64 to 512",
        "size = 512  # batch size increased from 64 to 512 for a longer run",
        "size = 512  # was 64",
        "size = 512  # Previously: 64",
        "size = (4, 512)  # Changed from (4, 64) to (4, 512)",
        "size = 512  # Increased to ensure the runtime is above 1ms",
        "size = 512  # reduced to avoid out of memory",
        "size = 512  # adjusted to keep it divisible by the heads",
        "# Increased from 128 to 192 features to make the task heavier\nsize = 512",
        "# Modified sizes to meet the 1-100 ms requirement\nsize = 512",
        "# ```\nsize = 3",
        "'''\n```python\n'''",
    ],
)
def test_notes_about_edits(broken, line):
    assert PROSE in broken(below=line)


@pytest.mark.parametrize(
    "line",
    [
        "size = 512  # Increased batch size",
        "size = 512  # reduced from [N, C] to [N]",
        "size = 512  # features after the increased dilation",
        "size = 512  # the length was padded to a power of two",
        "size = 512  # 64 to 512 are usual",
        "size = 512  # scaled by 64",
        "def f(x):\n    return x  # scaled to keep the variance at one",
        "def f(x):\n    return x  # features reduced to classes for the classification task",
        "label = 'Increased from 64 to 512'",
        "def f(x):\n    return x  # channels reduced from 64 to 32",
        "def f(x):\n    '''Apply.\n\n    ```\n    f(x)\n    ```\n    '''\n    return x",
        "# Changed in place, to keep memory low\nsize = 512",
    ],
)
def test_comments_that_are_honest(broken, line):
    assert broken(below=line) == set()


def test_a_fence_around_the_code(written):
    for code in (f"```python\n{written()}```\n", f"{written()}\n```"):
        (fault,) = check_source(code)
        assert (fault.rule, fault.criterion) == ("prose", "self_contained")
        assert code.splitlines()[fault.line - 1].startswith("```")
    (fault,) = check_source(f"Here is the task:\n{written()}")
    assert (fault.rule, fault.line) == ("parses", 1)


@pytest.mark.parametrize(
    "code", ["x = '\0'", "(" * 5000, "x = 1\n  y = 2", "", "\ufeff", "x = " + "-" * 3000 + "1"]
)
def test_what_is_no_task_gets_an_answer(code):
    assert check_source(code)
