"""Source rules, workloads applied to code, identity of foreign code, reading files."""

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsgen.source import assign_sizes, check_source, read_sizes, read_task_file, source_hash

GOOD = '''"""A task."""
import torch
import torch.nn as nn
import torch.nn.functional as F

batch_size = 64  # rows
features = 128


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features)
        self.dropout = nn.Dropout(0.1)

    def forward(self, input):
        x = F.dropout(input, 0.5, training=self.training)
        return torch.relu(self.dropout(self.linear(x)))


def get_inputs():
    return [torch.randn(batch_size, features)]


def get_init_inputs():
    return [features]
'''


def test_good_code_breaks_no_rule():
    assert check_source(GOOD) == ()


@pytest.mark.parametrize(
    ("old", "new", "rule"),
    [
        ("import torch\n", "import torch\nimport os\n", "imports"),
        ("import torch\n", "import torch\nimport numpy as np\n", "imports"),
        ("import torch\n", "import torch\nfrom torch import hub\n", "imports"),
        ("import torch\n", "import torch\nfrom torch.utils import cpp_extension\n", "imports"),
        ("torch.relu(", "eval('torch.relu')(", "denied_name"),
        ("torch.relu(", "torch.load('f')(", "denied_name"),
        ("torch.relu(", "__import__('os').x(", "denied_name"),
        ("super().__init__()", "open('/tmp/x')", "denied_name"),
        ("x = F.dropout(input, 0.5, training=self.training)", "x = eval(input)", "denied_name"),
        ("training=self.training", "training=True", "functional_dropout"),
        (", training=self.training", "", "functional_dropout"),
        ("torch.relu(self", "torch.rand_like(self", "random_forward"),
        ("torch.relu(self", "torch.empty(3).normal_(self", "random_forward"),
        ("class Model(nn.Module)", "class Model(object)", "one_model"),
        ("class Model(nn.Module)", "class Net(nn.Module)", "one_model"),
        ("    def forward(self, input)", "    def forwards(self, input)", "one_model"),
        ("def get_inputs", "def get_input", "entry_points"),
        ("def get_init_inputs", "def get_inputs", "entry_points"),
        ("features = 128\n", "features = 128\nprint\n", "top_level"),
        ("features = 128\n", "features = 128\nfor i in (1,):\n    pass\n", "top_level"),
        ("features = 128", "```python", "prose"),
        ("features = 128", "Here is the code", "parses"),
    ],
)
def test_each_breach_is_named_with_its_line(old, new, rule):
    assert old in GOOD
    faults = check_source(GOOD.replace(old, new))
    assert rule in {fault.rule for fault in faults}
    assert all(fault.line >= 1 and fault.witness for fault in faults)


def test_line_of_a_breach():
    (fault,) = check_source(GOOD.replace("import torch\n", "import torch\nimport os\n", 1))
    assert (fault.line, fault.witness) == (3, "import of os")


@given(st.fixed_dictionaries({"batch_size": st.integers(1, 10**9), "features": st.integers(1, 9)}))
def test_assigned_sizes_are_what_the_code_then_defines(sizes):
    code = assign_sizes(GOOD, sizes)
    assert read_sizes(code) == sizes
    assert code.count("\n") == GOOD.count("\n")
    assert assign_sizes(code, {"batch_size": 64, "features": 128}) == GOOD


def test_positions_are_bytes_and_annotations_count():
    code = 'label = "\u00e9\u00e9"; n: int = 7  # \u00e9\nm = n * 2\n'
    changed = assign_sizes(code, {"n": 12345})
    scope: dict[str, object] = {}
    exec(compile(ast.parse(changed), "<test>", "exec"), scope)
    assert (scope["n"], scope["m"], scope["label"]) == (12345, 24690, "\u00e9\u00e9")


@pytest.mark.parametrize(
    ("code", "sizes"),
    [
        ("a = 1\n", {"b": 2}),
        ("a = 1\na = 2\n", {"a": 3}),
        ("a = 1.0\n", {"a": 3}),
        ("a = True\n", {"a": 3}),
        ("def f():\n    a = 1\n", {"a": 3}),
    ],
)
def test_sizes_that_cannot_be_assigned_are_refused(code, sizes):
    with pytest.raises(ValueError, match=next(iter(sizes))):
        assign_sizes(code, sizes)


def test_source_hash_sees_code_and_nothing_else():
    spaced = GOOD.replace('"""A task."""\n', "").replace("  # rows", "").replace("\n\n\n", "\n\n")
    assert source_hash(spaced) == source_hash(GOOD)
    assert source_hash(GOOD.replace("128", "129")) != source_hash(GOOD)


def test_reading_a_file(tmp_path):
    path = tmp_path / "task.py"
    path.write_text(GOOD)
    task = read_task_file(path)
    assert (task.code, task.data_source, task.origin) == (GOOD, "foreign", str(path))
    assert task.task_id == source_hash(GOOD)
    path.write_text("# another comment\n" + GOOD)
    assert read_task_file(path).task_id == task.task_id
