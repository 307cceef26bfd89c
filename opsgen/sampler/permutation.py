"""A keyed permutation of `range(size)`: random order without a list and without repeats.

A four-round Feistel network over the next power of four, walked along its
cycles until it falls into the range (Black and Rogaway, Ciphers with
arbitrary finite domains, CT-RSA 2002).
"""

from __future__ import annotations

import hashlib

_NUM_ROUNDS = 4


def permute(index: int, size: int, key: str) -> int:
    """Return the place of `index` under the permutation of `range(size)` that `key` names.

    Raises:
        ValueError: `index` lies outside the range.
    """
    if not 0 <= index < size:
        raise ValueError(f"index {index} outside range({size})")
    half_bits = max(1, (size - 1).bit_length() + 1 >> 1)
    while True:
        index = _encrypt(index, half_bits, key)
        if index < size:
            return index


def _encrypt(value: int, half_bits: int, key: str) -> int:
    mask = (1 << half_bits) - 1
    left, right = value >> half_bits, value & mask
    for step in range(_NUM_ROUNDS):
        text = f"{key}:{step}:{right}".encode()
        mixed = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")
        left, right = right, left ^ (mixed & mask)
    return left << half_bits | right
