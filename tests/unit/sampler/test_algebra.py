"""Trivial combinations are refused, their neighbours are not."""

from __future__ import annotations

import random

import pytest

from opsgen.errors import SampleError
from opsgen.sampler import grow

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
