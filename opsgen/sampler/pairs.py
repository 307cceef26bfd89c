"""Two tables of op pairs: those that running showed to be bad, and those that models hold.

`opsgen/tables/pairs.toml` lists pairs that domains and algebra allow and that are degenerate
all the same; `cooccurrence.toml` counts in how many model classes of public packages one op
reads what another made. Both are facts taken offline by the scripts in `tests/tables`. Here
they are only read: nothing is inferred for pairs that they do not list.
"""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

from opsgen.records import digest

REASONS: dict[str, str] = {
    "ungrown": "growths of a graph end in dead ends",
    "nonfinite": "an output held NaN or infinite elements",
    "raises": "the rendered source did not run",
    "constant": "the output hardly depends on any input",
    "identity": "both ops may be left out",
    "first_dead": "leaving the first op out, or freezing it, changes nothing",
    "second_dead": "leaving the second op out, or freezing it, changes nothing",
    "part_dead": "an operand or a parameter changes nothing",
    "lazy": "an answer that does no work passes",
    "unjudgeable": "rounding alone moves the output by its own scale",
}
"""Why a pair is listed: the sections of `pairs.toml`, worst first."""


def is_degenerate(first: str, second: str) -> bool:
    """Whether most graphs in which `second` reads `first` were seen to be bad.

    False for pairs that were never tried, those with ops of users among them.
    """
    return second in _degenerate().get(first, ())


def reason_of(first: str, second: str) -> str | None:
    """Return which of `REASONS` a pair is listed for; None if it is not."""
    return _degenerate().get(first, {}).get(second)


def num_seen(first: str, second: str) -> int:
    """Return the number of model classes in which `second` reads what `first` made.

    0 for pairs that were never seen, those with ops of users among them.
    """
    return _seen().get(first, {}).get(second, 0)


def degenerate_pairs() -> dict[tuple[str, str], str]:
    """Return all listed pairs with their reasons."""
    return {(a, b): why for a, known in _degenerate().items() for b, why in known.items()}


def seen_pairs() -> dict[tuple[str, str], int]:
    """Return all pairs seen in model classes with the number of these."""
    return {(a, b): count for a, known in _seen().items() for b, count in known.items()}


@cache
def pairs_digest() -> str:
    """Return a digest of what both tables say; comments and the counts of tries are left out."""
    return digest(sorted(degenerate_pairs().items()), sorted(seen_pairs().items()))


@cache
def _degenerate() -> dict[str, dict[str, str]]:
    table = _load("pairs.toml")
    found: dict[str, dict[str, str]] = {}
    for reason in REASONS:
        for first, seconds in table.get(reason, {}).items():
            found.setdefault(first, {}).update(dict.fromkeys(seconds.split(), reason))
    return found


@cache
def _seen() -> dict[str, dict[str, int]]:
    seen: dict[str, dict[str, int]] = _load("cooccurrence.toml").get("seen", {})
    return seen


def _load(name: str) -> dict[str, Any]:
    text = (files("opsgen") / "tables" / name).read_text(encoding="utf-8")
    return tomllib.loads(text)
