"""What a recording sees of code, and that declared ops which did not run show."""

from __future__ import annotations

import msgspec
import pytest
import torch

from opsgen.ops import CATALOGUE
from opsgen.records import Graph, Input, Node, Task
from opsgen.render import render_source, render_tapped
from opsgen.verify import TaskCodeError, check_ops, record_calls, spelled_calls

SIZES = {"batch_size": 4, "features": 8}


def names_in(reference) -> list[str]:
    recording = record_calls(reference.model, reference.draw(0))
    assert recording.loose == ()
    return [call.names[-1] for call in recording.calls]


@pytest.mark.parametrize(
    ("forward", "names"),
    [
        ("return F.gelu(x)", ["torch.nn.functional.gelu"]),  # calls torch._C._nn.gelu
        ("return F.max_pool1d(x, 2)", ["torch.nn.functional.max_pool1d"]),
        ("return F.softsign(x)", ["torch.nn.functional.softsign"]),  # divides by abs plus one
        ("return torch.einsum('bij,bjk->bik', x, x.mT)", ["torch.einsum"]),
        ("return x.abs().sum(-1)", ["torch.Tensor.abs", "torch.Tensor.sum"]),
        ("return 1 - x", ["torch.rsub"]),
        ("return 2**x / 3", ["torch.pow", "torch.div"]),
        ("return -(x @ x.mT)", ["torch.matmul", "torch.neg"]),
        ("return (x > 0) & (x <= x)", ["torch.gt", "torch.le", "torch.Tensor.__and__"]),
        ("return x.max(-1).values[:, :2] * x.shape[0]", ["torch.Tensor.max", "torch.mul"]),
        ("return x[:, [0, 2]]", ["torch.Tensor.__getitem__"]),  # a gather, not a view
        ("return self.block(x)", ["torch.nn.Sequential"]),
        ("return self.block[1](self.block[0](x))", ["torch.nn.ReLU", "torch.nn.Linear"]),
        ("return checkpoint(self.block, x, use_reentrant=False)", ["torch.nn.Sequential"]),
    ],
)
def test_each_call_of_the_source_is_seen_once(build, forward, names):
    init = "self.block = nn.Sequential(nn.ReLU(), nn.Linear(6, 6))"
    body = f"from torch.utils.checkpoint import checkpoint\n{forward}"
    assert names_in(build(body, "torch.randn(2, 4, 6)", init)) == names


def test_calls_know_what_they_dispatch(build):
    reference = build(
        "h = torch.fft.rfft(self.scale(x).t()).abs()\nreturn h.contiguous()",
        "torch.randn(3, 4)",
        "self.scale = nn.Linear(4, 4)",
    )
    calls = record_calls(reference.model, reference.draw(0)).calls
    assert [(call.names[-1], call.computes) for call in calls] == [
        ("torch.nn.Linear", True),
        ("torch.Tensor.t", False),
        ("torch.fft.rfft", True),
        ("torch.Tensor.abs", False),  # of complex numbers
        ("torch.Tensor.contiguous", False),
    ]
    assert calls[0].aten[-1] == "aten.addmm.default"
    assert calls[1].aten == ["aten.t.default"]


def test_of_a_gradient_the_function_is_seen(build):
    forward = """
        def compute(x):
            return torch.tanh(self.scale(x))

        _, pullback = torch.func.vjp(compute, x)
        (x_grad,) = pullback(y)
        return x_grad
    """
    init = "self.scale = nn.Linear(4, 4)"
    reference = build(forward, "torch.randn(3, 4), torch.randn(3, 4)", init, names="x, y")
    original = torch.func.vjp
    assert names_in(reference) == ["torch.nn.Linear", "torch.tanh"]
    assert torch.func.vjp is original
    (gradient,) = reference.run(reference.draw(1))
    assert torch.equal(record_calls(reference.model, reference.draw(1)).output, gradient)


def graph_of(*ops: str, **fields: object) -> Graph:
    first = Input(name="x", dims=("batch_size", "features"), dtype="float32", draw="normal")
    nodes = []
    for place, op in enumerate(ops):
        is_linear = op == "linear"
        nodes.append(
            Node(
                op=op,
                args=(place,),
                attrs={"bias": True} if is_linear else {},
                sizes={"out_features": "features"} if is_linear else {},
            )
        )
    return Graph(dtype="float32", inputs=(first,), nodes=tuple(nodes), outputs=(len(ops),))


def task_of(*ops: str) -> Task:
    graph = graph_of(*ops)
    return Task(
        task_id="t",
        data_source=f"torch#{len(ops)}",
        line=0,
        level=len(ops),
        ops=tuple(CATALOGUE[op].spellings[0].name for op in ops),
        code=render_source(graph, SIZES),
        workloads=(),
        graph=graph,
        family="f",
    )


def test_true_tasks_pass():
    for ops in (("linear", "tanh"), ("exp", "abs", "square"), ("relu",)):
        task = task_of(*ops)
        assert check_ops(task) is None
        # The same holds for the source with taps, which is what liveness looks at.
        tapped = "def tap(value, result, args):\n    return result\n\n\n" + render_tapped(
            task.graph, SIZES
        )
        assert check_ops(msgspec.structs.replace(task, code=tapped)) is None


@pytest.mark.parametrize(
    ("old", "new", "witness"),
    [
        ("nn.Tanh", "nn.Sigmoid", "call 1 is torch.nn.Sigmoid, not torch.nn.Tanh of node 1 (tanh)"),
        ("self.tanh(x)", "x", "torch.nn.Tanh is not called"),
        ("self.tanh(x)", "self.tanh(x).relu()", "call 2, torch.Tensor.relu, belongs to no node"),
        ("self.tanh(x)", "self.tanh(x) * 2", "call 2, torch.Tensor.mul, belongs to no node"),
        ("self.tanh(x)", "self.tanh(x)[[0, 1]]", "torch.Tensor.__getitem__, belongs to no node"),
        ("self.tanh(x)", "self.tanh(x).clone()", "torch.Tensor.clone, belongs to no node"),
        ("x = self.linear(x)", "x = F.linear(x, self.linear.weight)", "call 0 is"),
        ("nn.Tanh()", "nn.Identity()", "call 1 is torch.nn.Identity"),
    ],
)
def test_what_else_runs_shows(old, new, witness):
    task = task_of("linear", "tanh")
    assert old in task.code
    code = "import torch.nn.functional as F\n" + task.code.replace(old, new)
    assert witness in check_ops(msgspec.structs.replace(task, code=code))


def test_wrong_declarations_show():
    task = task_of("linear", "tanh")
    for ops in (task.ops[::-1], task.ops[:1], (*task.ops, "torch.relu"), ("torch.nn.Block",)):
        assert "declared are" in check_ops(msgspec.structs.replace(task, ops=ops))
    # A composite is one name for its nodes, which must still be what runs.
    block = msgspec.structs.replace(task, ops=("opsgen.blocks.b",), level=1, origin="a paper")
    assert check_ops(block) is None
    wrong = msgspec.structs.replace(block, code=task.code.replace("nn.Tanh", "nn.ReLU"))
    assert "torch.nn.ReLU" in check_ops(wrong)


def test_foreign_code_is_held_to_the_ops_that_it_declares():
    task = task_of("linear", "tanh")
    foreign = msgspec.structs.replace(task, graph=None, level=2)
    assert check_ops(foreign) is None
    assert check_ops(msgspec.structs.replace(foreign, ops=())) is None
    wrong = msgspec.structs.replace(foreign, ops=("torch.nn.Linear", "torch.nn.ReLU"))
    assert check_ops(wrong) == "torch.nn.ReLU is declared, and never called"
    less = msgspec.structs.replace(foreign, ops=task.ops[1:])
    assert check_ops(less) == "torch.nn.Linear runs and is not declared"


def test_code_that_does_not_run_is_the_tasks_fault():
    task = task_of("linear", "tanh")
    with pytest.raises(TaskCodeError, match="NameError"):
        check_ops(msgspec.structs.replace(task, code=task.code.replace("self.tanh", "tanh")))


def test_spellings_are_read_in_the_order_of_evaluation():
    spelled = {op: spelled_calls(CATALOGUE[op].spellings[0]) for op in ("alibi", "rotate_half")}
    assert spelled["alibi"] == ("torch.arange", "torch.mul", "torch.add")
    chunk = "torch.Tensor.chunk"
    assert spelled["rotate_half"] == (chunk, "torch.neg", chunk, "torch.cat")
    assert spelled_calls(CATALOGUE["rsub_scalar"].spellings[0]) == ("torch.rsub",)
    assert spelled_calls(CATALOGUE["over_root_width"].spellings[0]) == ("torch.mul",)
