"""Patterns that evidence alone tells: labels, declared ops, and what only a device shows."""

from __future__ import annotations

import pytest
from honest_tasks import ATTENTION, BATCH_NORM, CONV_BLOCK, PLAIN_CHAIN, PROJECTION
from msgspec.structs import replace
from planting import swapped

from opsgen.admit import Case, admit_all
from opsgen.jobs import probe
from opsgen.records import Fault, Finding, ProbeRequest, Status
from opsgen.source import foreign_task

OPEN = (Finding(criterion="unmeasured", witness="no measure evidence yet"),)
DROPPED = swapped(PROJECTION, ("F.gelu(x)", "F.dropout(F.gelu(x), p=0.2, training=self.training)"))
DECLARED = (
    "torch.chunk",
    "torch.sin",
    "torch.maximum",
    "torch.nn.Linear",
    "torch.nn.functional.gelu",
    "torch.mul",
)


def test_kept_fraction_is_what_leaves_of_what_is_computed(probed, judged):
    # 24: 128 numbers of 128 x 192; nothing is thrown away, so this is a label and no more.
    summed = swapped(PROJECTION, ("return x * self.scale", "return (x * self.scale).sum(dim=1)"))
    for code, low, high in ((summed, 1 / 400, 1 / 100), (PROJECTION, 0.7, 1.0)):
        evidence = probed(code)
        assert low <= evidence.kept_fraction <= high
        assert judged(code, evidence).failed == OPEN


@pytest.mark.parametrize(
    ("code", "mode_class"),
    [(PROJECTION, "same"), (DROPPED, "differs"), (BATCH_NORM, "mutates")],
    ids=["same", "differs", "mutates"],
)
def test_train_mode_is_a_label(code, mode_class, probed, judged):
    # 25: eval mode is the contract, so none of the three is rejected.
    evidence = probed(code)
    assert evidence.mode_class == mode_class
    assert judged(code, evidence).failed == OPEN


SQUARE = """
import torch
import torch.nn as nn
import torch.nn.functional as F

batch_size = 8
length = 64
width = 64
hidden = 96


class Model(nn.Module):
    def __init__(self, length, width, hidden):
        super().__init__()
        self.up = nn.Linear(width, hidden)
        self.shift = nn.Parameter(torch.randn(width, 1))

    def forward(self, x):
        return F.softplus(self.up(x)) * torch.exp(self.shift)


def get_inputs():
    return [torch.randn(batch_size, length, width)]


def get_init_inputs():
    return [length, width, hidden]
"""


def test_equal_sizes_that_must_be_equal_are_a_label(probed):
    # 43: a shift over the sequence that was sized by the features, which only fits a square.
    wrong = SQUARE.replace("def __init__(self, length, width", "def __init__(self, width")
    wrong = wrong.replace("return [length, width", "return [width")
    assert set(probed(wrong).axis_ambiguity) == {"length", "width"}
    right = SQUARE.replace("randn(width, 1)", "randn(length, 1)")
    assert probed(right).axis_ambiguity == ()
    oblong = right.replace("length = 64", "length = 80")
    assert probed(oblong).axis_ambiguity == ()


TOKENS = """
import torch
import torch.nn as nn

batch_size = 12
length = 20
width = 48


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.attend = nn.MultiheadAttention(width, 4, batch_first=True)
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        mixed, _ = self.attend(x, x, x, need_weights=False)
        return self.norm(x + mixed)


def get_inputs():
    return [torch.randn(batch_size, length, width)]


def get_init_inputs():
    return [width]
"""


@pytest.mark.parametrize(
    ("code", "mixes"),
    [
        (TOKENS, False),
        (swapped(TOKENS, (", batch_first=True", "")), True),
        (CONV_BLOCK, False),
        (swapped(PROJECTION, ("return x *", "return x.cumsum(dim=0) *")), True),
        (swapped(PROJECTION, ("return x *", "return (x - x.mean(dim=0)) *")), True),
        (swapped(ATTENTION, ("dim=-1)", "dim=0)")), True),
    ],
    ids=[
        "batch first",
        "batch second",
        "convolution",
        "summed up over the batch",
        "centred over the batch",
        "softmax over it",
    ],
)
def test_mixing_elements_of_the_batch_is_a_label(code, mixes, probed):
    # 44: an element's result is its own, unless it sees the others: some of these treat all alike.
    assert probed(code).batch_mixing is mixes


@pytest.mark.parametrize(
    ("ops", "named"),
    [
        (("torch.nn.Conv2d", *DECLARED[1:]), "Conv2d"),
        ((*DECLARED, "torch.softmax"), "softmax"),
        (("torch.mul",), "inear"),
    ],
    ids=["never ran", "one too many", "undeclared and heavy"],
)
def test_declared_ops_are_those_that_run(ops, named, context, recipe):
    # 1 and 2, with the honest declaration beside them.
    for declared, reason in ((ops, "ops_true"), (DECLARED, "unmeasured")):
        task = foreign_task(PROJECTION, origin="planted", ops=declared)
        evidence = probe.run(ProbeRequest(task=task, seed=5), context)
        (verdict,) = admit_all([Case(task=task, probe=evidence)], recipe)
        assert verdict.reason == reason, verdict.witness
        assert reason != "ops_true" or named in verdict.witness


def test_what_a_device_tells_decides(probed, measured, recipe):
    """12, 31 and 33: the honest measurement with one number changed to what a device may show."""
    task = foreign_task(PLAIN_CHAIN, origin="planted")
    probe_evidence, seen = probed(PLAIN_CHAIN), measured(PLAIN_CHAIN)
    compiled = {"compiled": seen.observed, "num_graphs": 1, "num_generated_kernels": 1}
    honest = replace(seen, compile_margin=0.5, **compiled)
    changes = {
        "atomics": ({"is_repeatable": False}, "deterministic"),
        "another answer when compiled": ({"compile_margin": 1.5}, "executes"),
        "peak": ({"peak_bytes": 17 * 2**30}, "memory"),
    }
    cases = [Case(task=task, probe=probe_evidence, measure=honest)]
    assert admit_all(cases, recipe)[0].status is Status.ADMITTED
    for change, reason in changes.values():
        cases = [Case(task=task, probe=probe_evidence, measure=replace(honest, **change))]
        assert admit_all(cases, recipe)[0].reason == reason


def test_a_device_that_is_too_small_defers(probed, recipe):
    # 33: the cap allows it, this device does not hold it, alone on it either.
    task = foreign_task(CONV_BLOCK, origin="planted")
    fault = Fault(reason="gpu_oom", stage="eager", detail="6 GiB asked for")
    case = Case(task=task, probe=probed(CONV_BLOCK), measure_faults=(fault, fault))
    (verdict,) = admit_all([case], recipe)
    assert (verdict.status, verdict.reason) == (Status.DEFERRED, "gpu_oom")
    assert "6 GiB" in verdict.witness
