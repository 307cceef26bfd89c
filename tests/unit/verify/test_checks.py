"""Repeatability, purity, stable inputs, modes, and what becomes of raising code."""

import linecache
import sys
import traceback

import pytest
import torch

from opsgen.errors import MeasureError, TaskError
from opsgen.verify import (
    CallWatch,
    Reference,
    TaskCodeError,
    check_mode,
    check_repeatable,
    check_stable_inputs,
    guarded,
    outline,
    output_leaves,
    run_trials,
    task_code,
    task_module,
)

NORMAL = "torch.randn(8, 8)"


@pytest.mark.parametrize(
    ("forward", "is_repeatable"),
    [("return x * 2", True), ("return x / 0 * 0", True), ("return F.dropout(x, 0.5)", False)],
)
def test_repeatable_means_every_bit_under_other_seeds(build, forward, is_repeatable):
    reference = build(forward, NORMAL)
    inputs = reference.draw(0)
    outputs = reference.run(inputs, 1)
    assert check_repeatable(reference, inputs, outputs, [2, 3]) == is_repeatable


@pytest.mark.parametrize(
    ("forward", "is_pure"),
    [
        ("return torch.relu(x)", True),
        ("return torch.relu_(x)", False),
        ("self.count += 1\nreturn x * self.count", False),
        ("x.data[0] = 0\nreturn x * 1", False),
        ("x.data.clamp_(min=0)\nreturn x * 1", False),
        ("x.data.copy_(x.sort(0)[0])\nreturn x * 1", False),
        ("self.w.data.clamp_(min=0)\nreturn x * self.w", False),
        ("x.data = x.abs()\nreturn x * 1", False),
        ("self.count = x.sum()\nreturn x * 1", False),
        ("x.data.mul_(1)\nreturn x * 1", True),
    ],
)
def test_pure_calls_leave_inputs_and_state_alone(build, forward, is_pure):
    init = "self.register_buffer('count', torch.zeros(1))\nself.w = nn.Parameter(torch.randn(8))"
    reference = build(forward, NORMAL, init=init)
    inputs = reference.draw(0)
    watch = CallWatch(reference, inputs)
    for _ in range(3):
        reference.run(inputs)
    assert watch.check_pure() == is_pure


@pytest.mark.parametrize(
    ("inputs", "is_stable"),
    [
        ("torch.randn(4)", True),
        ("torch.randn(4), torch.arange(4)", True),
        ("torch.randint(0, 99, (8,))", True),
        ("torch.ones(4)", False),
        ("torch.ones(4), torch.randint(0, 99, (8,))", False),
        ("torch.ones(4), torch.randn(4)", False),
        ("torch.randn(int(torch.randint(1, 1000, ())))", False),
    ],
)
def test_stable_inputs(build, inputs, is_stable):
    reference = build("return x", inputs)
    assert check_stable_inputs([reference.draw(seed) for seed in range(3)]) == is_stable


@pytest.mark.parametrize(
    ("init", "forward", "mode"),
    [
        ("pass", "return x * 2", "same"),
        ("self.d = nn.Dropout(0.5)", "return self.d(x)", "differs"),
        ("self.n = nn.BatchNorm1d(8)", "return self.n(x)", "mutates"),
        ("self.n = nn.BatchNorm1d(8)", "return self.n(x[:1])", "differs"),
        ("self.n = nn.LayerNorm(8)", "return self.n(x)", "same"),
    ],
)
def test_mode_class(build, init, forward, mode):
    reference = build(forward, NORMAL, init=init)
    tolerances = run_trials(reference, [1], [2], num_terms=1).tolerances
    assert check_mode(reference, reference.draw(0), tolerances) == mode
    assert not reference.model.training


def test_a_module_lives_for_its_block_and_shows_in_tracebacks(build):
    reference = build("y = x + 1\nraise KeyError('here')", NORMAL)
    name = reference.module.__name__
    assert sys.modules[name] is reference.module
    with pytest.raises(TaskCodeError) as caught:
        reference.run(reference.draw(0))
    failure = caught.value.failure
    assert (failure.criterion, failure.kind) == ("executes", "KeyError")
    assert "raise KeyError('here')" in failure.trace
    with task_module("a = 1\nb = 2\n") as module:
        name = module.__name__
        assert module.b == 2
        assert linecache.getline(f"<{name}>", 2) == "b = 2\n"
    assert name not in sys.modules
    assert linecache.getline(f"<{name}>", 2) == ""


@pytest.mark.parametrize("code", ["raise OSError('x')", "import torch\ntorch.nn.Linear(-1, 2)"])
def test_a_module_that_raises_is_the_tasks_fault(code):
    with pytest.raises(TaskCodeError), task_module(code):
        pass


def test_faults_of_the_machine_travel():
    for error in (
        MeasureError("busy"),
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory"),
    ):
        with pytest.raises(type(error)) as caught, task_code("eager"):
            raise error
        assert caught.value is error
    for stop in (KeyboardInterrupt(), SystemExit(3), GeneratorExit()):
        with pytest.raises(type(stop)) as caught, task_code("eager"):
            raise stop
        assert caught.value is stop
    with pytest.raises(TaskCodeError) as failed, task_code("eager"):
        raise TaskError("judgeable", "no")
    assert failed.value.failure.criterion == "judgeable"
    assert "Error" in "".join(traceback.format_exception(failed.value))


@pytest.mark.parametrize(
    ("output", "criterion"),
    [
        (None, "executes"),
        ([], "executes"),
        ([torch.ones(1), None], "executes"),
        (1.0, "executes"),
        (torch.ones(2).to_sparse(), "executes"),
        (torch.ones(0, 3), "nontrivial"),
        (torch.ones(2).to(torch.float8_e5m2), "judgeable"),
    ],
)
def test_outputs_must_be_plain_tensors(output, criterion):
    with pytest.raises(TaskError, match=criterion):
        output_leaves(output)


def test_only_calls_into_task_code_are_blamed_on_it():
    def fail(*_inputs):
        raise ZeroDivisionError

    with pytest.raises(TaskCodeError) as failed:
        guarded(fail, "time")(1)
    assert (failed.value.failure.kind, failed.value.failure.stage) == ("ZeroDivisionError", "time")
    assert guarded(max, "time")(1, 2) == 2


def test_a_draw_owns_its_memory(build):
    reference = build("return x", "CONST, torch.randn(3)")
    reference.module.CONST = torch.ones(4)
    fixed, _ = reference.draw(0)
    fixed.zero_()
    assert reference.draw(0)[0].tolist() == [1.0] * 4


def test_outputs_of_two_draws_have_one_structure(build):
    with pytest.raises(TaskCodeError, match="for one draw") as failed:
        run_trials(build("return x[x > 0]", NORMAL), [0], [0, 1], num_terms=1)
    assert failed.value.failure.criterion == "executes"


def test_meta_says_shapes_work_or_nothing(build):
    module = build(
        "return self.l(x)", "torch.randn(64, 128)", init="self.l = nn.Linear(128, 32)"
    ).module
    found = outline(module, count_flops=True)
    assert found is not None
    assert found.outputs[0].shape == (64, 32)
    assert found.flops == 2 * 64 * 128 * 32
    assert found.size_bytes == 4 * (64 * 128 + 128 * 32 + 32 + 64 * 32)
    found = outline(build("return x[x > 0]", NORMAL).module, count_flops=True)
    assert (found.outputs, found.flops, found.size_bytes) == ((), None, 4 * 8 * 8)
    init = "self.rate = torch.linspace(0, 1, 3)[1].item()"
    assert outline(build("return x * self.rate", NORMAL, init).module, count_flops=False) is None
    with pytest.raises(TaskCodeError):
        outline(build("return x @ torch.zeros(3, 3)", NORMAL).module, count_flops=False)


def test_init_inputs_with_keywords():
    code = (
        "import torch\nclass Model(torch.nn.Module):\n    def __init__(self, a, b=0):\n"
        "        super().__init__()\n        self.sum = a + b\n"
        "def get_init_inputs():\n    return [[1], {'b': 2}]\n"
    )
    with task_module(code) as module:
        assert Reference.build(module, "cpu", 0).model.sum == 3
