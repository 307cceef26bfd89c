"""The pair tables name catalogue ops, agree with their own counts and hold what is known bad."""

from __future__ import annotations

import tomllib
from collections import Counter
from importlib.resources import files
from typing import Any

import pytest

from opsgen.ops import CATALOGUE
from opsgen.sampler import pairs
from opsgen.sampler.strata import STRATA, stratum_of_sequence
from opsgen.sampler.table import _ranks_between

# Pairs that leave nothing to compute, whatever their attributes: one op cannot be seen behind
# the other, or both cancel out, or the output is fixed. The algebra knows some, domains know
# some, the table knows the rest.
TRIVIAL = """
relu>elu relu>relu relu>abs relu>relu6 relu6>relu sigmoid>abs sigmoid>relu sigmoid>relu6
sigmoid>floor sigmoid>ceil sigmoid>sign sigmoid>threshold elu>relu celu>relu leaky_relu>relu
tanh>sign tanh>atanh hardshrink>amax exp>sign exp>abs exp>relu exp>log exp>log1p exp2>log2
exp>argmax tanh>argmax silu>argmax sigmoid>argsort square>sqrt square>abs square>relu neg>neg
neg>abs neg>square abs>abs abs>relu sign>sign sign>abs floor>floor floor>round round>ceil
round>trunc softplus>relu softplus>abs logsigmoid>relu softmax>log softmax>abs softmax>relu
log_softmax>relu log_softmax>exp var>relu std>abs norm>abs cosh>abs cosh>relu hardsigmoid>relu
hardsigmoid>floor ndtr>ceil erfc>abs i0>abs
""".split()  # noqa: SIM905 - sixty quoted names are harder to read


@pytest.mark.parametrize("pair", TRIVIAL)
def test_what_is_trivial_is_never_sampled(pair: str) -> None:
    first, second = pair.split(">")
    if first not in CATALOGUE or second not in CATALOGUE:
        pytest.skip("no such entry")
    assert pairs.is_degenerate(first, second) or not _ranks_between(first, second)


def test_every_name_is_an_entry() -> None:
    known = [*pairs.degenerate_pairs(), *pairs.seen_pairs()]
    assert {name for pair in known for name in pair} - CATALOGUE.keys() == set()
    assert len(pairs.degenerate_pairs()) > 1000
    assert len(pairs.seen_pairs()) > 500


def test_what_every_model_does_was_seen() -> None:
    for first, second in (("linear", "gelu"), ("conv2d", "batch_norm2d"), ("softmax", "matmul")):
        assert pairs.num_seen(first, second) > 20
    assert pairs.num_seen("gelu", "linear") > pairs.num_seen("gelu", "relu")


def test_ops_of_users_are_neither_degenerate_nor_seen() -> None:
    for pair in (("mine", "relu"), ("relu", "mine"), ("mine", "mine")):
        assert not pairs.is_degenerate(*pair)
        assert pairs.reason_of(*pair) is None
        assert pairs.num_seen(*pair) == 0


def _table(name: str) -> dict[str, Any]:
    return tomllib.loads((files("opsgen") / "tables" / name).read_text(encoding="utf-8"))


def test_the_table_agrees_with_its_counts() -> None:
    table = _table("pairs.toml")
    strata = table.pop("strata")
    assert set(table) <= set(pairs.REASONS)
    listed = [
        (first, second)
        for reason in table.values()
        for first, seconds in reason.items()
        for second in seconds.split()
    ]
    assert len(set(listed)) == len(listed)
    counts = Counter(map(stratum_of_sequence, listed))
    for stratum in STRATA:
        assert counts[stratum] == strata[stratum]["listed"]
        assert strata[stratum]["listed"] <= strata[stratum]["tried"] <= strata[stratum]["legal"]


def test_the_digest_covers_both_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    digest = pairs.pairs_digest.__wrapped__
    found = {digest()}
    with monkeypatch.context() as patch:
        patch.setattr(pairs, "_degenerate", dict)
        found.add(digest())
    with monkeypatch.context() as patch:
        patch.setattr(pairs, "_seen", dict)
        found.add(digest())
    assert len(found) == 3
    assert pairs.pairs_digest() == digest()
