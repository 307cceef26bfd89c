"""Splits that never divide a family."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from opsgen.records import digest


def assign_splits(families: Iterable[str], shares: Mapping[str, float]) -> dict[str, str]:
    """Put every family into one split.

    Each split but the largest takes whole families in an order of its own (a
    hash of split and family) as long as they fit into its quota, and one more
    if that brings it nearer; the largest split takes the rest. So a split
    misses its quota by at most half the size of the smallest family left, and
    a growing release mostly moves families out of the largest split.

    Args:
        families: The family of every task.
        shares: Relative size of each split.

    Returns:
        The split of each family.
    """
    sizes = Counter(families)
    quotas = _divide(sizes.total(), shares)
    largest = max(shares, key=lambda name: shares[name])
    assigned: dict[str, str] = {}
    for name in sorted(quotas, key=lambda name: (quotas[name], name)):
        if name != largest:
            free = sorted(family for family in sizes if family not in assigned)
            free.sort(key=lambda family: digest(name, family))
            assigned |= dict.fromkeys(_fill(free, sizes, quotas[name]), name)
    return {family: assigned.get(family, largest) for family in sizes}


def _fill(free: Sequence[str], sizes: Mapping[str, int], quota: int) -> list[str]:
    taken: list[str] = []
    lacking = quota
    for family in free:
        if sizes[family] <= lacking:
            taken.append(family)
            lacking -= sizes[family]
    is_taken = set(taken)
    left = (family for family in free if lacking and family not in is_taken)
    nearest = min(left, key=lambda family: sizes[family], default=None)
    if nearest is not None and sizes[nearest] - lacking < lacking:
        taken.append(nearest)
    return taken


def _divide(total: int, shares: Mapping[str, float]) -> dict[str, int]:
    """Divide `total` by largest remainders; the quotas add up to it."""
    whole = sum(shares.values())
    exact = {name: total * share / whole for name, share in shares.items()}
    quotas = {name: int(value) for name, value in exact.items()}
    by_remainder = sorted(exact, key=lambda name: quotas[name] - exact[name])
    for name in by_remainder[: total - sum(quotas.values())]:
        quotas[name] += 1
    return quotas
