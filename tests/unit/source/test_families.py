"""Families: what belongs together, what does not, and that order does not matter."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from collections import Counter
from functools import cache
from itertools import combinations

import pytest
from disguises import add_identity, disguise, resize
from hypothesis import given
from hypothesis import strategies as st

from opsgen.records import Task
from opsgen.source import chance
from opsgen.source.families import SAME_OPS_SIMILARITY, SIMILARITY, Families
from opsgen.source.normalise import read_form
from opsgen.source.shingles import jaccard, jaccard_bound, shingles

sets = st.frozensets(st.integers(0, 12), max_size=8)


@cache
def two_ops(num_tasks: int) -> list[Task]:
    """Sampled tasks of two ops whose graphs differ by more than attributes."""
    drawn = chance.draw_tasks(round(1.1 * num_tasks / chance.SHARES["torch#2"]))
    tasks = {task.family: task for task in drawn if task.data_source == "torch#2"}
    return list(tasks.values())[:num_tasks]


def families_of(codes: list[str], *keys: str) -> list[str]:
    families = Families()
    for code in codes:
        families.add(code, *keys)
    return [families.family_of(code) for code in codes]


@pytest.mark.check
def test_two_thousand_graphs_of_two_ops_stay_apart(record_property) -> None:
    tasks = two_ops(2000)
    sizes = Counter(families_of([task.code for task in tasks]))
    largest = sizes.most_common(1)[0]
    record_property("families of 2,000 graphs of two ops", len(sizes))
    record_property("largest family", largest[1])
    assert len(tasks) == 2000
    assert len(sizes) > 1900
    assert largest[1] <= 6


@given(st.integers(0, 29), st.integers(0, 2**32).map(random.Random))
def test_near_duplicates_join(place: int, rng: random.Random) -> None:
    others = [task.code for task in two_ops(100)[:30]]
    code = others[place]
    twins = [
        disguise(resize(code, rng), rng),
        add_identity(code),
        disguise(add_identity(resize(code, rng)), rng),
        re.sub(r"(?<=[(, =])\d+(?=[,)])", lambda found: str(int(found[0]) + 1), code),
    ]
    found = families_of([code, *twins, *others])
    assert len(set(found[: 1 + len(twins)])) == 1
    assert found.count(found[0]) == 1 + len(twins) + 1  # and nothing of the others


MODEL = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3)
        self.norm = nn.GroupNorm(4, channels)

    def forward(self, x):
        x = self.conv(x)
        x = self.norm(x)
        return torch.relu(x)


def get_inputs():
    return [torch.rand(8, 32, 64, 64)]


def get_init_inputs():
    return [32]
"""


@pytest.mark.parametrize(
    ("old", "new", "joins"),
    [
        ("channels, 3)", "channels, 5, padding=2)", True),
        ("x = self.norm(x)\n", "x = self.norm(x)\n        x = x * 1.0\n", True),
        ("torch.rand(8,", "torch.randn(4,", True),
        ("x = self.norm(x)\n", "x = self.norm(x)\n        x = nn.Identity()(x)\n", True),
        ("torch.relu(x)", "torch.tanh(x)", False),
        ("Conv2d", "ConvTranspose2d", False),
        ("x = self.norm(x)\n", "x = self.norm(x)\n        x = x.softmax(1)\n", False),
    ],
)
def test_what_joins_and_what_does_not(old: str, new: str, joins: bool) -> None:
    assert MODEL.count(old) == 1
    first, second = families_of([MODEL, MODEL.replace(old, new)])
    assert (first == second) is joins


@given(st.permutations(range(24)), st.data())
def test_order_and_repetition_do_not_matter(order: list[int], data: st.DataObject) -> None:
    rng = random.Random(3)
    codes = [task.code for task in two_ops(100)[:12]]
    codes += [add_identity(resize(code, rng)) for code in codes]
    keys = [f"key{number % 19}" for number in range(len(codes))]
    again = data.draw(st.lists(st.sampled_from(order), max_size=10))
    names = []
    for places in (range(24), [*order, *again]):
        families = Families()
        for place in places:
            families.add(codes[place], keys[place])
        names.append([families.family_of(code) for code in codes])
    assert names[0] == names[1]
    assert len(set(names[0])) < 12  # twins, and what a key joins


def test_asking_between_additions_changes_nothing() -> None:
    codes = [task.code for task in two_ops(100)[:6]]
    families = Families()
    for code in codes:
        shape = families.add(code)
        assert families.family(shape) == families.family_of(code)
    families.add(add_identity(codes[0]), "a key")
    families.add(codes[1], "a key")
    assert families.family_of(codes[0]) == families.family_of(codes[1])
    with pytest.raises(KeyError):
        families.family_of(MODEL)


def test_families_are_the_components_of_all_pairs() -> None:
    tasks = [*two_ops(100), *(task for task in chance.draw_tasks(400) if task.level == 1)]
    codes = [task.code for task in tasks]
    forms = [read_form(code) for code in codes]
    grams = [shingles(form.model_tokens) for form in forms]
    names = families_of(codes)
    for first, second in combinations(range(len(codes)), 2):
        if jaccard(grams[first], grams[second]) >= SIMILARITY:
            assert names[first] == names[second]
    for name, size in Counter(names).items():
        members = [place for place, each in enumerate(names) if each == name]
        for place in members if size > 1 else ():
            others = [other for other in members if other != place]
            closest = max(jaccard(grams[place], grams[other]) for other in others)
            assert closest >= SAME_OPS_SIMILARITY


def test_what_does_not_parse_is_like_its_equals_only() -> None:
    names = families_of(["def f(:", "def f(:", "def g(:", "\0"])
    assert names[0] == names[1]
    assert len(set(names)) == 3


@given(sets, sets)
def test_jaccard_is_shared_over_all(first: frozenset[int], second: frozenset[int]) -> None:
    union = first | second
    expected = sum(each in first and each in second for each in union) / len(union) if union else 1
    assert jaccard(first, second) == expected <= jaccard_bound(first, second)


@given(st.lists(st.text(max_size=3), max_size=12), st.integers(1, 5))
def test_there_is_a_shingle_for_each_run(tokens: list[str], width: int) -> None:
    runs = {tuple(tokens[i : i + width]) for i in range(max(len(tokens) - width, 0) + 1)}
    assert len(shingles(tokens, width)) == (len(runs) if tokens else 0)
    assert all(0 <= gram < 2**32 for gram in shingles(tokens, width))


def test_shingles_are_the_same_in_every_process() -> None:
    script = "from opsgen.source.shingles import shingles; print(sorted(shingles('abcdefgh')))"
    seen = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={"PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert seen == {f"{sorted(shingles('abcdefgh'))}\n".encode()}
