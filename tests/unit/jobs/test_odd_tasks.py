"""Foreign files that are odd in one way each, and what the jobs find in them."""

import pytest

from opsgen.admit import Case, judge
from opsgen.jobs import measure, probe
from opsgen.recipe import convert_recipe
from opsgen.records import MeasureRequest, ProbeRequest, Status
from opsgen.source import foreign_task

RECIPE = convert_recipe(
    {
        "name": "odd",
        "seed": 1,
        "admit": {"runtime_window_ms": [1e-6, 1e4], "launch_floor_ratio": 1e-6},
        "release": {"want": {"foreign": 1}},
    },
    "a test",
)
X = "torch.randn(16, 64)"
REJECTED = {
    "int output": ("return int(x.sum())", X, "pass", "executes"),
    "None output": ("return x * 2, None", X, "pass", "executes"),
    "sparse output": ("return (x * (x > 1)).to_sparse()", X, "pass", "executes"),
    "float8 output": ("return x.to(torch.float8_e5m2)", X, "pass", "judgeable"),
    "empty output": ("return (x * 2)[:0]", X, "pass", "nontrivial"),
    "varying leaves": ("return (x * 2,) * (1 + int(x.sum() > 0))", X, "pass", "executes"),
    "varying shape": ("return x[x > 0] * 2", X, "pass", "executes"),
    "a view of its input": ("return x.view(64, 16)", X, "pass", "executes"),
    "one output is an input": ("return x, x * 2", X, "pass", "executes"),
    "its parameter": (
        "return self.w, x * 2",
        X,
        "self.w = nn.Parameter(torch.randn(3))",
        "executes",
    ),
    "scalar input": ("return x[0] * x[1]", f"({X}, 3.0)", "pass", "executes"),
    "None input": ("return x[0] * 2", f"({X}, None)", "pass", "executes"),
    "lazy module": ("return self.l(x)", X, "self.l = nn.LazyLinear(8)", "self_contained"),
    "write to its input": ("return x.relu_()", X, "pass", "deterministic"),
    "the same write again": (
        "x.data.clamp_(min=0)\n        return x * 2",
        X,
        "pass",
        "deterministic",
    ),
    "the same write to a parameter": (
        "self.w.data.clamp_(min=0)\n        return x * self.w",
        X,
        "self.w = nn.Parameter(torch.randn(64))",
        "deterministic",
    ),
    "another buffer in place": (
        "self.c = x.mean()\n        return x * 2",
        X,
        "self.register_buffer('c', torch.zeros(()))",
        "deterministic",
    ),
    "a counter": (
        "self.k = self.k + 1\n        return x * self.k",
        X,
        "self.k = 0",
        "self_contained",
    ),
    "the first call's mean": (
        "self.k = x.mean() if self.k is None else self.k\n        return x.tanh() - self.k",
        X,
        "self.k = None",
        "self_contained",
    ),
    "fixed inputs": ("return x[0] * x[1]", f"[{X}, torch.ones(64) * 3]", "pass", "stable_inputs"),
    "parameters without use": ("return x * 2", X, "self.l = nn.Linear(3, 3)", "live"),
}


@pytest.mark.parametrize(("forward", "inputs", "init", "reason"), REJECTED.values(), ids=REJECTED)
def test_the_probe_finds_why(foreign, context, forward, inputs, init, reason):
    task = foreign(forward, inputs, init)
    evidence = probe.run(ProbeRequest(task=task, seed=3), context)
    verdict = judge(Case(task=task, probe=evidence), RECIPE)
    assert (verdict.status, verdict.reason) == (Status.REJECTED, reason), verdict.witness


def test_what_meta_cannot_even_draw_is_left_to_the_device(foreign, context):
    task = foreign("return x.to_dense() * 2", f"{X}.to_sparse()")
    seen = probe.run(ProbeRequest(task=task, seed=3), context)
    assert seen.failure is None
    verdict = judge(Case(task=task, probe=seen, measure=measured(task, context)), RECIPE)
    assert verdict.reason == "executes"
    assert "input leaf is not a dense tensor" in verdict.witness


def test_one_tensor_is_no_list_of_inputs(foreign, context):
    task = foreign("return x * 2", X)
    code = task.code.replace(f"[{X}]", "torch.randn(1, 16, 64)")
    evidence = probe.run(ProbeRequest(task=foreign_like(task, code), seed=3), context)
    assert evidence.failure.criterion == "executes"
    assert "not a list" in evidence.failure.message


ADMITTED = {
    "tuple": ("return x.tanh(), x.exp().sum(1)", X, "pass"),
    "dict": ("return {'a': x.tanh(), 'b': x * 2}", X, "pass"),
    "complex": ("return torch.complex(x.tanh(), x.exp())", X, "pass"),
    "complex without axes": ("return torch.complex(x.tanh(), x.exp())[0, 1]", X, "pass"),
    "complex input": ("return x.abs()", "torch.randn(16, 64, dtype=torch.complex64)", "pass"),
    "no axes": ("return (x * x).sum()", X, "pass"),
    "nested inputs": ("return x[0] * x[1]['k']", f"({X}, {{'k': {X}}})", "pass"),
    "arange input": ("return x[0][x[1]] * 2", f"({X}, torch.arange(15, -1, -1))", "pass"),
    "batch norm": ("return self.n(x)", X, "self.n = nn.BatchNorm1d(64)"),
    "inference mode": ("return x * 2", "torch.inference_mode()(torch.randn)(16, 64)", "pass"),
    "sums of 4096": ("return x.sum(1)", "torch.randn(64, 4096)", "pass"),
}


@pytest.mark.parametrize(("forward", "inputs", "init"), ADMITTED.values(), ids=ADMITTED)
def test_odd_is_not_bad(foreign, context, forward, inputs, init):
    task = foreign(forward, inputs, init)
    seen = probe.run(ProbeRequest(task=task, seed=3), context)
    verdict = judge(Case(task=task, probe=seen, measure=measured(task, context)), RECIPE)
    # Only the compiled run is missing, for the sake of time.
    assert verdict.status is Status.DEFERRED, verdict.witness
    assert verdict.witness == "no evidence of a compiled run"


SIZES = "import torch.nn as nn\nbatch_size = 64\nwidth = {width}\n"


def test_large_foreign_code_is_judged_on_a_cut(foreign, context):
    task = foreign("return torch.relu(x @ x)", "torch.randn(width, width)")
    code = task.code.replace("import torch.nn as nn\n", SIZES.format(width=2048))
    task = foreign_like(task, code)
    evidence = probe.run(ProbeRequest(task=task, seed=3), context)
    assert evidence.observed[0].shape == (2048, 2048)
    assert (evidence.num_draws, evidence.is_pure, evidence.has_stable_inputs) == (15, True, True)
    dead = foreign_like(task, code.replace("relu(x @ x)", "relu(x @ x).clamp(min=0)"))
    evidence = probe.run(ProbeRequest(task=dead, seed=3), context)
    assert judge(Case(task=dead, probe=evidence), RECIPE).reason == "live"


def test_a_cut_that_is_degenerate_convicts_nobody(foreign, context):
    # At 32 channels each of the 32 groups would hold one number, and the norm would be zero.
    task = foreign(
        "return self.n(x)", "torch.randn(batch_size, width)", "self.n = nn.GroupNorm(32, width)"
    )
    code = task.code.replace("import torch.nn as nn\n", SIZES.format(width=65536))
    evidence = probe.run(ProbeRequest(task=foreign_like(task, code), seed=3), context)
    assert evidence.num_draws == 15
    assert min(effect.margin for effect in evidence.effects) > 1


def test_where_nothing_is_small_full_size_decides(foreign, context):
    task = foreign("return x * x.roll(1)", "torch.randn(2**26 + 8)")
    seen = probe.run(ProbeRequest(task=task, seed=3), context)
    assert (seen.failure, seen.num_draws) == (None, 0)
    verdict = judge(Case(task=task, probe=seen), RECIPE)
    assert {finding.witness for finding in verdict.failed} == {"no measure evidence yet"}


def measured(task, context):
    request = MeasureRequest(task=task, device="cpu", modes=("eager",), max_s_per_mode=0.01, seed=3)
    return measure.run(request, context)


def foreign_like(task, code):
    return foreign_task(code, origin=task.origin)
