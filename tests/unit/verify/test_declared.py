"""Declared ops of foreign rows against what runs, in every spelling that rows come in."""

from __future__ import annotations

import pytest
from written_sources import task_source

from opsgen.verify import Reference, record_calls, task_module
from opsgen.verify.declared import describe_declared

BLOCK = "return torch.relu(self.conv(x)) + self.scale"
INIT = "self.conv = nn.Conv2d(3, 8, 3)\nself.scale = nn.Parameter(torch.ones(8, 1, 1))"


def described(ops, forward=BLOCK, init=INIT, inputs="torch.randn(2, 3, 8, 8)"):
    with task_module(task_source(forward, inputs, init)) as module:
        reference = Reference.build(module, "meta", 0)
        recording = record_calls(reference.model, reference.draw(0), is_deep=True)
    return describe_declared(ops, recording)


@pytest.mark.parametrize(
    "ops",
    [
        ("torch.nn.Conv2d", "torch.relu", "torch.add"),
        ("nn.Conv2d", "F.relu", "+"),
        ("Conv2d", "ReLU", "add", "Parameter"),
        ("conv2d", "relu", "torch.Tensor.add"),
        ("add", "torch.nn.functional.relu", "torch.nn.functional.conv2d"),  # as it was drawn
        ("torch.nn.Conv2d",),  # arithmetic needs no mention
        (),
    ],
)
def test_honest_rows(ops):
    assert described(ops) is None


@pytest.mark.parametrize(
    ("ops", "what"),
    [
        (("nn.Conv2d", "nn.GELU"), "nn.GELU is declared, and never called"),
        (("nn.Conv2d", "relu", "relu"), "relu is declared 2 times, and called 1 times"),
        (("torch.relu",), "torch.nn.Conv2d runs and is not declared"),
        (("nn.Conv2d", "relu", "softmax"), "softmax is declared, and never called"),
        (("nn.Conv1d", "relu"), "nn.Conv1d is declared, and never called"),
    ],
)
def test_untrue_rows(ops, what):
    assert described(ops) == what


def test_a_parameter_is_the_models_own():
    without = "return self.conv(x)"
    assert described(("Conv2d", "Parameter"), without, "self.conv = nn.Conv2d(3, 8, 3)") is not None
    assert described(("Conv2d", "Parameter"), without, INIT) is None


@pytest.mark.parametrize(
    ("forward", "ops"),
    [
        ("return x @ x.transpose(-2, -1)", ("matmul", "transpose")),
        ("return torch.einsum('bcij,bckj->bcik', x, x)", ("torch.bmm",)),
        ("return x.reshape(2, -1).softmax(-1)", ("torch.nn.Softmax", "torch.Tensor.view")),
        ("return 2 - x ** 2", ("-", "pow")),
        ("return (x > 0) & (x < 1)", (">", "<", "&")),
        ("return x.max(1).values", ("torch.amax",)),
    ],
)
def test_families_and_operators(forward, ops):
    assert described(ops, forward, "pass") is None


@pytest.mark.parametrize(
    "forward",
    [
        "return torch.relu(x).softmax(1)",
        "return torch.relu(x).cumsum(1)",
        "return torch.relu(x).sort(1).values",
        "return F.max_pool2d(torch.relu(x), 2)",
        "return F.layer_norm(torch.relu(x), (8,))",
        "return F.scaled_dot_product_attention(torch.relu(x), x, x)",
        "return torch.relu(x) @ x",
    ],
)
def test_heavy_work_has_to_be_named(forward):
    assert described(("torch.relu",), forward, "pass").endswith("runs and is not declared")


def test_what_is_in_containers_and_own_modules_runs_too():
    init = "self.body = nn.Sequential(nn.Conv2d(3, 4, 1), nn.Sequential(nn.ReLU()))"
    assert described(("nn.Sequential", "nn.Conv2d", "nn.ReLU"), "return self.body(x)", init) is None
    assert described(("nn.ReLU",), "return self.body(x)", init) is not None


@pytest.mark.parametrize("name", ["HieraLayer_1", "ACT2FN", "MyBlock"])
def test_whole_modules_of_others_are_not_judged(name):
    assert described((name,)) is None
