"""Cuts of foreign code: what is found, and that it runs."""

import pytest

from opsgen.source import read_sizes, smaller_sizes
from opsgen.verify import ForeignWork, TaskCodeError, find_twins, full_size, proportional_twins

CODE = """
import torch
import torch.nn as nn
batch_size = 64
channels = 256
groups = 32
inner = 2 * channels
dim = -1

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.n = nn.GroupNorm(groups, channels)
        self.l = nn.Linear(channels, inner)

    def forward(self, x):
        return self.l(self.n(x)).softmax(dim)

def get_inputs():
    return [torch.randn(batch_size, channels)]

def get_init_inputs():
    return []
"""


def test_sizes_are_cut_batches_most_and_small_numbers_last():
    cuts = list(smaller_sizes(CODE))
    assert cuts[0] == (8, {"batch_size": 4, "channels": 8, "groups": 32, "dim": -1})
    assert cuts[-1][1]["groups"] < 32
    assert all(cut["dim"] == -1 and cut["channels"] <= 128 for _, cut in cuts)
    assert list(smaller_sizes("n = 4\nm = -7\n")) == []
    assert [cut for _, cut in smaller_sizes("n = 400\nn = 500\n")] == []


def test_only_what_runs_is_a_twin_smallest_first():
    twins = list(find_twins(CODE))
    sizes = [read_sizes(twin.code) for twin in twins]
    assert [size["channels"] for size in sizes if size["groups"] == 32] == [32, 64, 96, 128]
    assert all(size["channels"] % size["groups"] == 0 for size in sizes)
    assert all(twin.outline.outputs[0].shape[0] == 4 for twin in twins)


def test_what_cannot_be_cut_together_is_cut_alone():
    code = CODE.replace("channels = 256", "channels = 320").replace("batch_size", "rows")
    code = code.replace("self.n(x)", "self.n(x.view(rows, 5, 64).flatten(1))")
    (twin,) = find_twins(code)
    assert read_sizes(twin.code) == {"rows": 8, "channels": 320, "groups": 8, "dim": -1}


def test_layers_are_not_cut_away_while_anything_else_can_be():
    deep = CODE.replace("inner = ", "depth = 40\ninner = ").replace(
        "self.l = nn.Linear(channels, inner)",
        "self.l = nn.Sequential(*[nn.Linear(channels, channels) for _ in range(depth)])",
    )
    for twins in (list(find_twins(deep)), list(proportional_twins(deep))):
        sizes = [read_sizes(twin.code) for twin in twins]
        assert {size["depth"] for size in sizes} == {40}
        assert min(size["channels"] for size in sizes) < 128


def test_what_can_only_be_cut_together_with_layers_is():
    tied = CODE.replace("channels = 256", "channels = 96\ndepth = 96").replace(
        "self.l = nn.Linear(channels, inner)",
        "self.l = nn.Sequential(*[nn.Linear(channels, channels) for _ in range(depth)])\n"
        "        assert depth == channels",
    )
    twins = list(find_twins(tied))
    assert read_sizes(twins[0].code)["depth"] == 96
    assert min(read_sizes(twin.code)["depth"] for twin in twins) < 96


def test_work_on_a_device():
    small = ForeignWork.of(CODE, "cpu")
    assert (small.has_twin, small.double_code) == (True, CODE)
    large = CODE.replace("batch_size = 64", "batch_size = 10**6").replace("10**6", "1000000")
    work = ForeignWork.of(large, "cpu")
    assert work.has_twin
    assert read_sizes(work.double_code)["channels"] == 128
    fixed = CODE.replace("batch_size, channels)]", "2**20, 256)]")
    fixed = fixed.replace("channels = 256", "channels = 256 + 0").replace(
        "groups = 32", "groups = 31 + 1"
    )
    work = ForeignWork.of(fixed, "cpu")
    assert (work.has_twin, work.double_code) == (False, None)


def test_code_that_is_wrong_on_any_device_says_so():
    with pytest.raises(TaskCodeError):
        full_size(CODE.replace("groups = 32", "groups = 33"))
    assert list(find_twins(CODE.replace("self.l(self.n(x))", "x.view(7, 7)"))) == []
