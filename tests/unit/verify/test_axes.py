"""Equal sizes behind which a wrong axis may hide, and batches whose elements mix."""

from __future__ import annotations

import pytest
from written_sources import task_source

from opsgen.verify import check_axes, check_mixing, run_trials


def sized(sizes, forward, inputs, init="pass"):
    lines = "\n".join(f"{name} = {value}" for name, value in sizes.items())
    return f"{lines}\n{task_source(forward, inputs, init)}"


@pytest.mark.parametrize(
    ("sizes", "forward", "named"),
    [
        ({"rows": 8, "columns": 8}, "return x @ x", ("rows", "columns")),
        ({"rows": 8, "columns": 8}, "return x @ x.t()", ()),
        ({"rows": 8, "columns": 9}, "return x @ x.t()", ()),
        ({"rows": 8, "columns": 8}, "return x + torch.zeros_like(x[:, 0])", ("rows", "columns")),
        ({"rows": 8, "columns": 8}, "return x + torch.zeros_like(x[0])", ()),
    ],
)
def test_axes(sizes, forward, named):
    assert check_axes(sized(sizes, forward, "torch.randn(rows, columns)")) == named


def test_too_many_equal_sizes_are_left_alone():
    sizes = {f"size_{number}": 8 for number in range(9)}
    assert check_axes(sized(sizes, "return x @ x", "torch.randn(size_0, size_1)")) == ()


@pytest.mark.parametrize(
    ("forward", "inputs", "mixes"),
    [
        ("return torch.relu(x)", "torch.randn(6, 8)", False),
        ("return x - x.mean(1, keepdim=True)", "torch.randn(6, 8)", False),
        ("return x - x.mean(0, keepdim=True)", "torch.randn(6, 8)", True),
        ("return torch.softmax(x, 0)", "torch.randn(6, 8)", True),
        ("return x.cumsum(0)", "torch.randn(6, 8)", True),
        ("return x.flip(0).cumsum(0).flip(0)", "torch.randn(6, 8)", True),
        ("return x.flip(0)", "torch.randn(7, 8)", True),
        ("return x - x[3]", "torch.randn(6, 8)", True),
        ("return x.argsort(0)", "torch.rand(6, 8)", True),
        ("return x.argsort(1)", "torch.rand(6, 8)", False),
        ("return x.sum(1), x.sum(0)", "torch.randn(6, 8)", False),
        ("return x.sum(0), x - x.mean(0)", "torch.randn(6, 8)", True),
        ("return x.sum()", "torch.randn(6, 8)", None),
        ("return x.t().contiguous()", "torch.randn(6, 8)", None),
        ("return torch.relu(x)", "torch.randn(1, 8)", None),
        ("return x.cumsum(0)", "torch.arange(48.0).view(6, 8)", None),  # equal in every draw
    ],
)
def test_mixing(build, forward, inputs, mixes):
    reference = build(forward, inputs)
    tolerances = run_trials(reference, (1,), (1, 2), num_terms=1).tolerances
    assert check_mixing(reference, reference.draw(0), tolerances) is mixes


@pytest.mark.parametrize(
    ("forward", "mixes"),
    [
        ("return F.linear(x, y)", False),
        ("return torch.baddbmm(z, z, z) * x.sum() + y.mean()", False),
        ("return x + x.mean(0) * y.mean()", True),
    ],
)
def test_inputs_that_lack_the_axis_stay(build, forward, mixes):
    inputs = "torch.randn(6, 8), torch.randn(8, 8), torch.randn(5, 4, 4)"
    reference = build(forward, inputs, names="x, y, z")
    tolerances = run_trials(reference, (1,), (1, 2), num_terms=1).tolerances
    assert check_mixing(reference, reference.draw(0), tolerances) is mixes


def test_a_mean_that_one_element_moves_within_the_tolerance_mixes(build):
    reference = build("return x - x.mean(0)", "torch.randn(64, 8, dtype=torch.bfloat16)")
    tolerances = run_trials(reference, (1,), (1, 2), num_terms=1).tolerances
    assert check_mixing(reference, reference.draw(0), tolerances) is True


@pytest.mark.parametrize(("option", "mixes"), [("batch_first=True", False), ("", True)])
def test_a_recurrence_along_the_wrong_axis_mixes(build, option, mixes):
    init = f"self.rnn = nn.GRU(8, 8, {option})"
    reference = build("return self.rnn(x)[0]", "torch.randn(4, 5, 8)", init)
    tolerances = run_trials(reference, (1,), (1, 2), num_terms=1).tolerances
    assert check_mixing(reference, reference.draw(0), tolerances) is mixes
