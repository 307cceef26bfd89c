"""Calls of foreign code that matter and calls that do not, each beside a near neighbour."""

from __future__ import annotations

import pytest

from opsgen.verify import Surgery, call_effects, run_trials, unverified_fraction

ROWS = "torch.randn(6, 48)"
SEEDS = (1, 2)


def operated(build, forward, inputs=ROWS, init="pass", names="x"):
    reference = build(forward, inputs, init, names)
    draws = [reference.draw(seed) for seed in range(4)]
    trials = run_trials(reference, SEEDS, range(3), num_terms=1)
    reference.state.redraw(SEEDS[0])
    return Surgery(reference, draws, trials.tolerances, SEEDS)


def dead_calls(build, forward, inputs=ROWS, init="pass", names="x"):
    effects = call_effects(operated(build, forward, inputs, init, names))
    assert effects
    return {
        (effect.subject.partition("(")[2].rstrip(")").rpartition(".")[2], effect.change)
        for effect in effects
        if effect.margin <= 1
    }


def unverified(build, forward, init="pass"):
    surgery = operated(build, forward, init=init)
    call_effects(surgery)
    return unverified_fraction(surgery, None)


DEAD = {
    "twice": ("return F.relu(F.relu(x))", "pass", ("relu", "deleted")),
    "after its range": ("return torch.tanh(x).clamp(-1, 1)", "pass", ("clamp", "deleted")),
    "never acting": ("return x.clamp(-60, 60) * 2", "pass", ("clamp", "deleted")),
    "shift": (
        "return torch.softmax(x - x.amax(1, keepdim=True), 1)",
        "pass",
        ("sub", "deleted"),
    ),
    "scale before a norm": (
        "return self.norm(self.linear(x) * 3)",
        "self.linear = nn.Linear(48, 48)\nself.norm = nn.LayerNorm(48)",
        ("mul", "deleted"),
    ),
    "over one element": (
        "return x.sum(1, keepdim=True).mean(1, keepdim=True)",
        "pass",
        ("mean", "deleted"),
    ),
    "thrown away": ("y = x.exp()\nreturn x.sin()", "pass", ("exp", "frozen")),
    "saturated": ("return x + (x * 1e4 + 1e6).sigmoid()", "pass", ("sigmoid", "frozen")),
    "in place": ("y = x.exp()\ny.relu_()\nreturn y * 2", "pass", ("relu_", "deleted")),
    "within a container": (
        "return self.body(x)",
        "self.body = nn.Sequential(nn.Linear(48, 8), nn.ReLU(), nn.ReLU(), nn.Linear(8, 4))",
        ("ReLU", "deleted"),
    ),
    "in a module of its own": (
        "return self.body(x)",
        "class Body(nn.Module):\n"
        "    def forward(self, x):\n"
        "        return torch.abs(torch.square(x))\n"
        "self.body = Body()",
        ("abs", "deleted"),
    ),
}
LIVE = {
    "once": ("return F.relu(x) * 2", "pass"),
    "within its range": ("return torch.tanh(x).clamp(-0.5, 0.5)", "pass"),
    "acting": ("return x.clamp(-1, 1) * 2", "pass"),
    "softmax by hand": (
        "e = torch.exp(x - x.max(1, keepdim=True).values)\nreturn e / e.sum(1, keepdim=True)",
        "pass",
    ),
    "epsilon": ("return x / (x.square().mean(1, keepdim=True) + 1e-6).sqrt()", "pass"),
    "least length": ("return x / x.norm(dim=1, keepdim=True).clamp(min=1e-6)", "pass"),
    "acting in the tails": ("return x.clamp(-5, 5) * 2", "pass"),
    "clamp that guards": ("return torch.exp(x.clamp(max=60)) * 0.5", "pass"),
    "scale after a norm": ("return self.norm(x) * 3", "self.norm = nn.LayerNorm(48)"),
    "mask from constants": (
        "m = torch.tril(torch.ones(48, 48))\n"
        "s = (x.t() @ x).masked_fill(m == 0, float('-inf'))\nreturn s.softmax(-1)",
        "pass",
    ),
    "mask from a tensor's type": (
        "m = x.new_ones(48, 48).tril()\n"
        "s = (x.t() @ x).masked_fill(m == 0, float('-inf'))\nreturn s.softmax(-1)",
        "pass",
    ),
    "for a branch that is not taken": (
        "return torch.where(x < 0, x.sin(), (x.clamp(min=0) + 0.5).log())",
        "pass",
    ),
    "only of weights": (
        "return x @ F.softmax(self.w, 1)",
        "self.w = nn.Parameter(torch.randn(48, 8))",
    ),
    "recurrent": (
        "return self.cell(x)[0]",
        "self.cell = nn.LSTM(48, 8)",
    ),
    "assignment": ("y = x * 2\ny[:, 3] = 0\nreturn y.exp()", "pass"),
}


@pytest.mark.parametrize("name", DEAD)
def test_dead_calls_are_found(build, name):
    forward, init, dead = DEAD[name]
    assert dead in dead_calls(build, forward, init=init)


@pytest.mark.parametrize("name", LIVE)
def test_live_calls_are_let_be(build, name):
    forward, init = LIVE[name]
    assert dead_calls(build, forward, init=init) == set()


def test_a_frozen_statistic_of_a_long_axis(build):
    long, short = "torch.rand(2, 20000)", "torch.rand(2, 4)"
    forward = "return x.square() * x.mean(1, keepdim=True).round(decimals=1)"
    assert ("mean", "frozen") in dead_calls(build, forward, long)
    assert ("mean", "frozen") not in dead_calls(build, forward, short)


def test_every_call_is_named_by_its_place(build):
    effects = call_effects(operated(build, "y = x.exp()\nreturn F.relu(y.t() + 1)"))
    assert {effect.subject for effect in effects} == {
        "call 0 (torch.Tensor.exp)",
        "call 2 (torch.Tensor.add)",
        "call 3 (torch.nn.functional.relu)",
    }


def test_surgery_leaves_everything_as_it_was(build):
    surgery = operated(
        build,
        "self.linear(x).relu_()\nreturn self.linear(x).relu_() * 2",
        init="self.linear = nn.Linear(48, 48)",
    )
    before = surgery.reference.run(surgery.draws[0])[0].clone()
    inputs = surgery.draws[0][0].clone()
    call_effects(surgery)
    assert surgery.reference.run(surgery.draws[0])[0].equal(before)
    assert surgery.draws[0][0].equal(inputs)


@pytest.mark.parametrize(
    ("forward", "init", "least", "most"),
    [
        ("return torch.diag(x[:, :6] @ x[:, :6].t())", "pass", 0.3, 0.9),
        ("return (x @ x.t()).sum(1)", "pass", 0, 0),
        ("return self.l(x)[:, :12]", "self.l = nn.Linear(48, 48)", 0.7, 0.8),
        ("return self.l(x).softmax(1)[:, :12]", "self.l = nn.Linear(48, 48)", 0, 0),
        ("y = self.l(x).exp()\nreturn self.l(x)", "self.l = nn.Linear(48, 48)", 0.4, 0.6),
        ("return self.l(x).relu()[0]", "self.l = nn.Linear(48, 48)", 0.8, 0.85),
        ("return self.l(x).relu().sum(0)", "self.l = nn.Linear(48, 48)", 0, 0),
        ("return x.sin() * x.isnan().logical_not()", "pass", 0.1, 0.9),
        ("return self.l(x) + x.sin()", "self.l = nn.Linear(48, 48)", 0, 0),
    ],
)
def test_work_that_nobody_reads(build, forward, init, least, most):
    share = unverified(build, forward, init)
    assert least <= share <= most


def test_a_shift_before_softmax_is_work_that_nobody_checks(build):
    shifted = "return torch.softmax(x - x.amax(1, keepdim=True), 1)"
    by_hand = "e = (x - x.amax(1, keepdim=True)).exp()\nreturn e / e.sum(1, keepdim=True)"
    shares = [unverified(build, forward) for forward in (shifted, by_hand)]
    assert shares[0] > 0.05
    assert shares[1] == 0
