"""Splits: families stay whole, quotas are met as closely as whole families allow."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from opsgen.release import assign_splits

SHARES = {"train": 0.9, "validation": 0.05, "test": 0.05}
FAMILIES = st.lists(st.text("abcdef", min_size=1, max_size=3), max_size=80)


@given(families=FAMILIES, data=st.data())
def test_every_family_is_in_one_split_whatever_the_order(
    families: list[str], data: st.DataObject
) -> None:
    splits = assign_splits(families, SHARES)
    assert set(splits) == set(families)
    assert set(splits.values()) <= set(SHARES)
    assert assign_splits(data.draw(st.permutations(families)), SHARES) == splits


@given(num_tasks=st.integers(0, 200))
def test_single_tasks_meet_the_quotas_exactly(num_tasks: int) -> None:
    counts = Counter(assign_splits(map(str, range(num_tasks)), SHARES).values())
    for name, share in SHARES.items():
        assert abs(counts[name] - num_tasks * share) < 1.0


def test_forty_single_tasks_split_as_the_quickstart_wants() -> None:
    counts = Counter(assign_splits(map(str, range(40)), SHARES).values())
    assert counts == {"train": 36, "validation": 2, "test": 2}


@given(families=FAMILIES)
def test_small_splits_miss_by_half_a_family_at_most(families: list[str]) -> None:
    splits = assign_splits(families, SHARES)
    counts = Counter(splits[family] for family in families)
    sizes = Counter(families)
    left = [sizes[family] for family, name in splits.items() if name == "train"]
    if left:
        for name in ("validation", "test"):
            assert abs(counts[name] - 0.05 * len(families)) <= max(min(left) / 2, 0) + 1.0
