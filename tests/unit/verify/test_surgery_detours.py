"""Calls that lead back, factors that a norm divides out, and doubt that more draws settle."""

from __future__ import annotations

import pytest
from test_surgery import dead_calls, operated

from opsgen.verify import call_effects

NORM = "self.norm = nn.LayerNorm(48)"
FAINT = (
    "self.l = nn.Linear(48, 48)\nself.l.weight.data.mul_(0.1)\nself.l.bias.data.zero_()\n" + NORM
)
MAPS = "torch.randn(3, 4, 6, 5)"


def detours(build, forward, init="pass", inputs="torch.randn(6, 48)"):
    """Return the calls that are dead together."""
    effects = call_effects(operated(build, forward, inputs, init))
    assert any(effect.margin > 1 for effect in effects)
    return [e.subject for e in effects if e.margin <= 1 and e.subject.startswith("calls ")]


ROUND_TRIPS = {
    "negated": ("torch.neg(torch.neg(h))", "calls 1 to 2 (torch.neg, torch.neg)"),
    "flipped": ("h.flip(1).flip(1)", "calls 1 to 2"),
    "exp and log": ("h.exp().log()", "calls 1 to 2"),
    "reciprocals": ("h.exp().reciprocal().reciprocal()", "calls 2 to 3"),
    "logit of sigmoid": ("torch.logit(torch.sigmoid(h))", "calls 1 to 2"),
    "mean of copies": ("torch.stack([h, h]).mean(0)", "calls 1 to 2"),
    "cut and joined": ("torch.cat(h.chunk(3, dim=1), dim=1)", "calls 1 to 2"),
    "copied in another order": ("h.t().contiguous().t()", "calls 1 to 3"),
    "in place": ("h.neg_().neg_()", "calls 1 to 2"),
    "Fourier": ("torch.fft.irfft(torch.fft.rfft(h))", "calls 1 to 2"),
}


@pytest.mark.parametrize("name", ROUND_TRIPS)
def test_round_trips_are_found(build, name):
    there_and_back, subject = ROUND_TRIPS[name]
    found = detours(build, f"h = torch.sin(x)\nreturn torch.tanh({there_and_back}) * x")
    assert any(each.startswith(subject) for each in found), found


def test_sorting_twice_is_found(build):
    twice = "return x.sort(dim=1)[0].sort(dim=1)[0][:, :9] * 2"
    assert ("sort", "deleted") in dead_calls(build, twice)
    assert not dead_calls(build, twice.replace(".sort(dim=1)[0]", "", 1))
    assert not dead_calls(build, twice.replace("dim=1", "dim=0", 1))


HONEST = {
    "layout": "return x.t().contiguous().cumsum(0).t() * 2",
    "dropout on the way": "h = F.dropout(x, 0.1, self.training)\nreturn h.view(6, 6, 8).exp().view(6, 48)",
    "cast and back": "return x.double().float().exp()",
    "copy": "y = x.clone()\ny[:, 0] = 1\nreturn y.exp()",
    "flipped on the way": "return x.flip(1).cumsum(1).flip(1)",
    "computed twice": "return x.sigmoid() * 2 + x * x.sigmoid()",
    "coupling": (
        "for _ in range(2):\n"
        "    a, b = x.chunk(2, dim=1)\n"
        "    x = torch.cat([a, b * a.tanh() + 1], dim=1)\n"
        "return x"
    ),
    "read on the way": "e = x.exp()\nreturn e.log() * e",
    "standardised": "m = x.mean(1, keepdim=True)\nh = (x - m).sin() + m\nreturn h * 2",
}


@pytest.mark.parametrize("name", HONEST)
def test_honest_detours_are_let_be(build, name):
    assert not dead_calls(build, HONEST[name])


ABSORBED = {
    "layer norm": ("self.norm(self.l(x) * 3)", FAINT, "mul"),
    "through a relu": ("self.norm(F.relu(self.l(x) / 3))", FAINT, "div"),
    "in place": ("self.norm(self.l(x).mul_(3))", FAINT, "mul_"),
    "one learned factor": (
        "self.norm(self.l(x) * self.g)",
        FAINT + "\nself.g = nn.Parameter(torch.rand(1) + 2)",
        "mul",
    ),
}
KEPT = {
    "learned factors of what is normalised": (
        "self.norm(self.l(x) * self.g)",
        FAINT + "\nself.g = nn.Parameter(torch.rand(48) + 2)",
    ),
    "residual in between": ("self.norm(self.l(x) * 3 + x * 0.1)", FAINT),
    "bend in between": ("self.norm(torch.tanh(self.l(x) * 3))", FAINT),
    "softmax": ("torch.softmax(x * 0.01, 1)", "pass"),
    "norm that it follows": ("self.norm(x) * 1.01", NORM),
}


@pytest.mark.parametrize("name", ABSORBED)
def test_a_factor_that_a_norm_divides_out_is_dead(build, name):
    value, init, call = ABSORBED[name]
    assert (call, "deleted") in dead_calls(build, f"return {value}", init=init)


@pytest.mark.parametrize("name", KEPT)
def test_other_factors_are_not(build, name):
    value, init = KEPT[name]
    assert not dead_calls(build, f"return {value}", init=init)


def test_a_gain_per_channel_before_a_norm_of_channels_is_absorbed(build):
    init = "self.g = nn.Parameter(torch.rand(4, 1, 1) + 2)\nself.norm = nn.{}"
    within = init.format("InstanceNorm2d(4, affine=True)")
    across = init.format("GroupNorm(1, 4)")
    forward = "return self.norm(x * self.g * 0.1)"
    assert ("mul", "deleted") in dead_calls(build, forward, MAPS, within)
    deleted = call_effects(operated(build, "return self.norm(x * self.g)", MAPS, across))
    assert all(effect.margin > 1 for effect in deleted)


@pytest.mark.parametrize(
    ("forward", "call"),
    [("return x / x.abs().amax()", "abs"), ("return x * (1 + (x.amax() > 3))", "gt")],
)
def test_what_matters_on_some_draws_matters(build, forward, call):
    surgery = operated(build, forward)
    drawn = [surgery.reference.draw(seed) for seed in range(40)]
    same = [draw for draw in drawn if 3 > float(draw[0].max()) > -float(draw[0].min())]
    surgery.draws[:] = same[:4]
    effects = [e for e in call_effects(surgery) if call in e.subject]
    assert effects
    assert all(effect.margin > 1 for effect in effects)
