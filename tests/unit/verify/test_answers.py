"""Lazy answers: what is trivial gets small margins, honest work gets large ones."""

import math

import numpy as np
import pytest
import torch

from opsgen.records import Tolerance
from opsgen.verify import answers as answers_module
from opsgen.verify import equal_bits, judge_answers, lazy_answers, run_trials


def judged(reference):
    trials = run_trials(reference, [1, 2], [3, 4], num_terms=1)
    reference.state.redraw(1)
    inputs, other = reference.draw(3), reference.draw(4)
    outputs = reference.run(inputs)
    found = lazy_answers(reference, inputs, outputs, reference.run(other), (1, 2))
    return {a.name: a for a in judge_answers(outputs, trials.tolerances, found)}


def test_honest_work_refuses_every_answer(build):
    reference = build(
        "return F.gelu(self.linear(x))",
        "torch.randn(32, 48)",
        init="self.linear = nn.Linear(48, 40)",
    )
    answers = judged(reference)
    expected = {"zeros", "constant", "axis_mean_0", "axis_mean_1", "replay", "mean_inputs"}
    assert set(answers) == expected | {"other_weights"}
    assert min(answer.margin for answer in answers.values()) > 1000
    assert not any(answer.passes_1e_2 for answer in answers.values())


@pytest.mark.parametrize("seq_len", [1, 16])
def test_index_inputs_have_a_mean_that_is_no_copy_of_them(build, seq_len):
    answers = judged(
        build(
            "return self.table(x).tanh()",
            f"torch.randint(0, 100, (32, {seq_len}))",
            init="self.table = nn.Embedding(100, 24)",
        )
    )
    assert answers["mean_inputs"].margin > 1000
    assert min(answer.margin for answer in answers.values()) > 1000


PLANTED = [
    ("return x.abs().mean(1) * 0 + 0.5", "torch.randn(64, 64)", "zeros", False),
    ("return torch.sigmoid(x) - torch.sigmoid(x)", "torch.randn(64, 64)", "zeros", True),
    ("return (x > -100).float()", "torch.randn(64, 64)", "constant", True),
    ("return F.layer_norm(x, x.shape[1:]).sum(1)", "torch.randn(64, 512) + 3", None, False),
    ("return torch.relu(x)", "torch.rand(64, 64)", "input_0", True),
    ("return x.flatten(1)", "torch.randn(8, 4, 4)", "input_0", True),
    ("return (x * 0 + self.w).expand(8, 64)", "torch.randn(8, 64)", "replay", True),
    ("return (x * 0 + self.w).expand(8, 64)", "torch.randn(8, 64)", "axis_mean_0", True),
    ("return F.softmax(x, 1).sum(1)", "torch.randn(64, 64)", "constant", True),
    ("return x.argmax(1) * 0 + 3", "torch.randn(64, 64)", "constant", True),
]


@pytest.mark.parametrize(("forward", "inputs", "name", "is_trivial"), PLANTED)
def test_planted_tasks(build, forward, inputs, name, is_trivial):
    answers = judged(build(forward, inputs, init="self.w = nn.Parameter(torch.randn(64))"))
    if name is not None:
        assert (answers[name].margin < 10) == is_trivial
        assert answers[name].passes_1e_2 == is_trivial


def test_degeneracy_that_grows_with_size_passes_at_1e_2_only(build):
    """The mean of many draws is near its population value: weak, though not within tolerance."""
    answers = judged(build("return x.mean(1)", "torch.randn(16, 300000)"))
    assert answers["zeros"].passes_1e_2
    assert answers["zeros"].margin > 10
    small = judged(build("return x.mean(1)", "torch.randn(16, 30)"))
    assert not small["zeros"].passes_1e_2


def test_scalar_outputs_are_not_given_away_by_their_own_mean(build):
    answers = judged(build("return (x * x).mean()", "torch.randn(8, 8)"))
    assert answers["constant"].margin > 1000


def test_an_answer_outside_the_domain_is_left_out(build):
    forward = "if x.std() == 0:\n    raise ValueError\nreturn torch.exp(x)"
    assert "mean_inputs" not in judged(build(forward, "torch.randn(8, 8)"))


@pytest.mark.parametrize("count", [1, 19, 20, 21, 100, 1000])
def test_margin_is_what_five_percent_of_elements_still_fail_at(count):
    rng = np.random.default_rng(count)
    reference = np.ones((count, 1), dtype=np.float32)
    errors = rng.uniform(0, 1, (count, 1))
    actual = torch.tensor(reference + errors, dtype=torch.float32)
    tolerance = Tolerance(value=1e-3, error=None, num_terms=1, is_assumed=True)
    (got,) = judge_answers((torch.tensor(reference),), (tolerance,), [("noise", (actual,))])
    least = max(1, math.ceil(0.05 * count))
    multiples = np.abs(actual.numpy() - reference) / 1e-3
    assert (multiples >= got.margin * (1 - 1e-6)).sum() >= least
    assert (multiples >= got.margin * (1 + 1e-6)).sum() < least


def test_several_leaves_fail_by_the_worst_and_pass_together():
    right, wrong = torch.ones(40), torch.ones(40) * 2
    flags = torch.ones(40, dtype=torch.bool)
    accepted = tuple(
        Tolerance(value=v, error=None, num_terms=1, is_assumed=False) for v in (1e-2, 0.0)
    )
    truth = (right, flags)
    found = judge_answers(
        truth, accepted, [("same", truth), ("half", (wrong, flags)), ("flags", (right, ~flags))]
    )
    assert [answer.passes_1e_2 for answer in found] == [True, False, False]
    assert [answer.margin for answer in found] == [0.0, pytest.approx(100.0), math.inf]


def test_large_leaves_are_judged_on_a_sample_and_pass_only_in_full(monkeypatch):
    monkeypatch.setattr(answers_module, "_MAX_SAMPLE", 500)
    reference = torch.randn(200, 100, generator=torch.Generator().manual_seed(0))
    noise = torch.rand(200, 100, generator=torch.Generator().manual_seed(1))
    tolerance = (Tolerance(value=1e-3, error=None, num_terms=1, is_assumed=True),)
    rows = reference.square().mean(1, keepdim=True).sqrt()
    (got,) = judge_answers((reference,), tolerance, [("noise", (reference + noise * rows,))])
    assert got.margin == pytest.approx(950, rel=0.05)
    nearly = reference.clone()
    nearly[0, 0] += 1
    accepted = judge_answers((reference,), tolerance, [("a", (nearly,)), ("b", (reference,))])
    assert [answer.passes_1e_2 for answer in accepted] == [False, True]


def test_state_is_restored_after_other_weights(build):
    reference = build(
        "return self.linear(x)", "torch.randn(4, 4)", init="self.linear = nn.Linear(4, 4)"
    )
    before = tuple(tensor.detach().clone() for tensor in reference.state.tensors)
    inputs = reference.draw(0)
    outputs = reference.run(inputs)
    names = [name for name, _ in lazy_answers(reference, inputs, outputs, outputs, (1, 2))]
    assert names[-1] == "other_weights"
    assert equal_bits(reference.state.tensors, before)


def test_answers_of_another_shape_fail(build):
    reference = build("return x * 1", "torch.randn(8, 8)")
    outputs = reference.run(reference.draw(0))
    tolerances = run_trials(reference, [0], [1], num_terms=1).tolerances
    (answer,) = judge_answers(outputs, tolerances, [("replay", (torch.zeros(5),))])
    assert answer.margin == math.inf
    assert not answer.passes_1e_2
