"""Shingles: overlapping runs of tokens, hashed, as sets whose Jaccard index is similarity."""

from __future__ import annotations

from collections.abc import Collection, Sequence, Set
from zlib import crc32

WIDTH = 4
"""Tokens in a shingle: a call with its name, its arguments and what comes next."""


def shingles(tokens: Sequence[str], width: int = WIDTH) -> frozenset[int]:
    """Return the 32-bit hashes of all runs of `width` tokens, the same in every process.

    Fewer tokens than `width` are one run; none at all give the empty set.
    """
    if not tokens:
        return frozenset()
    starts = range(max(len(tokens) - width, 0) + 1)
    return frozenset(crc32("\n".join(tokens[i : i + width]).encode()) for i in starts)


def jaccard(first: Set[int], second: Set[int]) -> float:
    """Return shared over all elements, 0 to 1; two empty sets are equal."""
    shared = len(first & second)
    union = len(first) + len(second) - shared
    return shared / union if union else 1.0


def jaccard_bound(first: Collection[int], second: Collection[int]) -> float:
    """Return the most that the Jaccard index of two sets can be, by their sizes alone."""
    low, high = len(first), len(second)
    if low > high:
        low, high = high, low
    return low / high if high else 1.0
