"""What the pair table says is seen again on graphs of which it was not made."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest
import torch
from make_pairs import is_first_tier, is_legal, unlisted
from pair_tries import FINE, try_once, try_pair

from opsgen.ops import CATALOGUE
from opsgen.sampler import pairs

_NUM_PAIRS = 30
_UNSEEN = 10  # numbers from here on are of graphs that the table was not made of


@pytest.fixture
def listed() -> list[tuple[str, str]]:
    """Pairs of the table, which the sampler is made to forget."""
    table = pairs._load("pairs.toml")
    return [
        (first, second)
        for reason in pairs.REASONS
        for first, seconds in table.get(reason, {}).items()
        for second in seconds.split()
    ]


@pytest.fixture(autouse=True)
def _without_table() -> Iterator[None]:
    torch.set_num_threads(1)
    with unlisted():
        yield


def _share_bad(found: list[tuple[str, str]]) -> float:
    outcomes = [try_once(*pair, _UNSEEN + again) for pair in found for again in range(2)]
    return sum(outcome != FINE for outcome in outcomes) / len(outcomes)


def test_graphs_of_listed_pairs_are_bad(
    listed: list[tuple[str, str]], record_property: Callable[[str, object], None]
) -> None:
    share = _share_bad(random.Random("listed").sample(sorted(listed), _NUM_PAIRS))
    record_property("share of bad graphs, listed pairs", share)
    assert share >= 0.6


def test_graphs_of_tried_pairs_off_the_table_are_fine(
    listed: list[tuple[str, str]], record_property: Callable[[str, object], None]
) -> None:
    rng, names, chosen = random.Random("fine"), sorted(CATALOGUE), set[tuple[str, str]]()
    while len(chosen) < _NUM_PAIRS:
        pair = (rng.choice(names), rng.choice(names))
        if is_first_tier(*pair) and is_legal(*pair) and pair not in listed:
            chosen.add(pair)
    share = _share_bad(sorted(chosen))
    record_property("share of bad graphs, tried pairs off the table", share)
    assert share <= 0.15


def test_what_is_wrong_is_told_apart() -> None:
    assert try_pair("exp2", "prelu_weight").reason == "second_dead"
    assert try_pair("celu", "relu").reason == "first_dead"
    assert try_pair("abs", "sign").reason == "constant"
    assert try_pair("linear", "gelu").reason is None
