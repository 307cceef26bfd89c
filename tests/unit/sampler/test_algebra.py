"""Trivial combinations are refused, their neighbours are not."""

from __future__ import annotations

import random

import pytest

from opsgen.errors import SampleError
from opsgen.ops import CATALOGUE
from opsgen.ops.intervals import REAL
from opsgen.sampler import grow
from opsgen.sampler.algebra import _RULES, Applied, _may_be_pointless

TRIVIAL = [
    ("relu", "relu"),
    ("sigmoid", "relu"),
    ("exp", "log"),
    ("tanh", "atanh"),
    ("neg", "neg"),
    ("neg", "abs"),
    ("sigmoid", "abs"),
    ("sigmoid", "argmax"),
    ("softplus", "relu"),
]
SOUND = [
    ("relu", "softmax"),
    ("softplus", "layer_norm"),
    ("linear", "gelu"),
    ("conv2d", "group_norm"),
    ("layer_norm", "tanh"),
    ("tanh", "mean"),
]


def _tries(sequence: tuple[str, ...]) -> list[str | None]:
    reasons: list[str | None] = []
    for seed in range(40):
        try:
            grow(sequence, "float32", random.Random(seed))
            reasons.append(None)
        except SampleError as error:
            reasons.append(error.reason)
    return reasons


@pytest.mark.parametrize("sequence", TRIVIAL, ids="-".join)
def test_trivial_pairs_never_grow(sequence: tuple[str, ...]) -> None:
    reasons = _tries(sequence)
    assert None not in reasons
    assert any(reason and reason.startswith(("trivial", "rank: none")) for reason in reasons)


@pytest.mark.parametrize("sequence", SOUND, ids="-".join)
def test_sound_pairs_grow(sequence: tuple[str, ...]) -> None:
    assert _tries(sequence).count(None) >= 20


def test_domains_hold() -> None:
    reasons = _tries(("linear", "log"))
    assert None not in reasons
    assert all(reason and reason.startswith(("domain", "rank: none")) for reason in reasons)


def test_ops_that_no_rule_looks_at_are_never_found_pointless_behind_another() -> None:
    attrs = {"dim": -1, "bias": True}
    first = [Applied(op, attrs, (4, 8, 16), REAL) for op in CATALOGUE.values()]
    exempt = [op for op in CATALOGUE.values() if not _may_be_pointless(op)]
    assert len(exempt) > 50
    for op in exempt:
        for before in first:
            after = Applied(op, attrs, (4, 8, 16), REAL, before)
            assert all(rule(before, after) is None for rule in _RULES), (before.op.name, op.name)
