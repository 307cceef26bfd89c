"""Duplicates within a set, and copies of a benchmark."""

from __future__ import annotations

from pathlib import Path

import pytest
from honest_tasks import ATTENTION, CONV_BLOCK, GATED_PAIR, PROJECTION, TWO_BRANCHES
from planting import swapped
from set_patterns import PAIRS

from opsgen.admit import Case, admit_all
from opsgen.jobs import probe
from opsgen.records import Finding, ProbeEvidence, ProbeRequest, Status
from opsgen.source import foreign_task
from opsgen.source.fingerprints import NullBin, fingerprint, make_table, write_table

pytestmark = pytest.mark.check  # a minute of probes

OPEN = (Finding(criterion="unmeasured", witness="no measure evidence yet"),)
# A made-up null distribution: that of the table's own rows would rest on three of them.
CHANCE = NullBin(min_tokens=0, num_pairs=1000, median=0.2, q90=0.5, q99=0.7, q999=0.8, max=0.8)
RELU = """
import torch
import torch.nn as nn

rows = 300
width = 70


class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return nn.functional.hardswish(x)


def get_inputs():
    return [torch.randn(rows, width)]


def get_init_inputs():
    return []
"""
BENCHMARK = {
    "projection": PROJECTION,
    "block": CONV_BLOCK,
    "branches": TWO_BRANCHES,
    "attention": ATTENTION,
    "hardswish": RELU,
}


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_the_same_task_twice_is_once(pair, probed, recipe):
    sources = (pair.first, pair.other, pair.again)
    first, other, again = admit_all(as_lines(sources, map(probed, sources)), recipe)
    assert first.failed == OPEN
    assert (again.status, again.reason) == (Status.REJECTED, "novel")
    assert "line 0" in again.witness
    assert not [finding for finding in other.failed if finding.criterion == "novel"]


def as_lines(sources, evidence) -> list[Case]:
    return [
        Case(task=foreign_task(code, origin="planted", line=line), probe=seen)
        for line, (code, seen) in enumerate(zip(sources, evidence, strict=True))
    ]


@pytest.fixture(scope="module")
def table(probed, tmp_path_factory) -> Path:
    """Return a reference table of five tasks."""
    rows = [
        fingerprint(foreign_task(code, origin=name), probed(code).trace, f"mine/{name}")
        for name, code in BENCHMARK.items()
    ]
    path = tmp_path_factory.mktemp("tables") / "mine.parquet"
    write_table(path, make_table(rows, [CHANCE]))
    return path


COPIES = {
    "as it is": (PROJECTION, "projection"),
    "resized": (swapped(PROJECTION, ("in_features = 256", "in_features = 288")), "projection"),
    "renamed": (PROJECTION.replace("linear", "head").replace("scale", "factor"), "projection"),
    "other kernel": (
        swapped(CONV_BLOCK, ("out_channels, 3]", "out_channels, 5]"), ("padding=1", "padding=2")),
        "block",
    ),
    "other order": (swapped(TWO_BRANCHES, ("value * gate", "gate * value")), "branches"),
    "the template with another op": (
        swapped(ATTENTION, ("torch.softmax(scores, dim=-1)", "torch.log_softmax(scores, dim=-1)")),
        "attention",
    ),
    "one op with its sizes": (RELU.replace("x", "rows_in"), "hardswish"),
}
OTHERS = {
    "another task": GATED_PAIR,
    "one op with other sizes": swapped(RELU, ("width = 70", "width = 90")),
    "an op more": swapped(
        PROJECTION,
        (
            "x = F.gelu(x)",
            "peak = torch.amax(x, dim=1, keepdim=True)\n        x = F.gelu(x - peak)",
        ),
        ("return x * self.scale", "return torch.cumsum(x * self.scale, dim=1) / (1 + x.square())"),
    ),
}


@pytest.mark.parametrize(("code", "name"), COPIES.values(), ids=COPIES)
def test_copies_of_a_benchmark_are_told(code, name, table, context, recipe):
    (verdict,) = admit_all(as_lines([code], [beside(code, table, context)]), recipe)
    assert (verdict.status, verdict.reason) == (Status.REJECTED, "uncontaminated")
    assert f"mine/{name}" in verdict.witness


@pytest.mark.parametrize("code", OTHERS.values(), ids=OTHERS)
def test_what_is_no_copy_is_none(code, table, context, recipe):
    (verdict,) = admit_all(as_lines([code], [beside(code, table, context)]), recipe)
    assert verdict.failed == OPEN


def beside(code: str, table: Path, context) -> ProbeEvidence:
    task = foreign_task(code, origin="planted")
    return probe.run(ProbeRequest(task=task, benchmarks=(str(table),), seed=1), context)
