"""What a planted task is: honest source, and the same source with one defect put in.

The honest source is the near neighbour: everything but the defect is equal, so
what tells the two apart is the defect alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Pattern:
    """One kind of bad task with an example and its near neighbour.

    Attributes:
        number: Which of the 55 patterns.
        name: Which variant of it.
        criterion: What the bad one must fail first, unless something earlier fails too.
        bad: Source with the defect.
        good: Source without it, to be admitted.
        stage: What shows the defect: `probe`, or `measure` where it takes the full size or a
            compiled run.
        witness: Text that the witness has to hold: the part that is at fault.
        earlier: Criteria that the defect breaks as well, and that are looked at before.
        admit: Thresholds that stand in for those of the harness, by key.
    """

    number: int
    name: str
    criterion: str
    bad: str
    good: str
    stage: str = "probe"
    witness: str = ""
    earlier: tuple[str, ...] = ()
    admit: tuple[tuple[str, object], ...] = ()

    def __str__(self) -> str:
        return f"{self.number}-{self.name}"


def swapped(source: str, *swaps: tuple[str, str]) -> str:
    """Return `source` with each old text, which stands there once, replaced by the new one."""
    for old, new in swaps:
        assert source.count(old) == 1, f"{old!r} stands there {source.count(old)} times"
        source = source.replace(old, new)
    return source


def planted(
    number: int, name: str, criterion: str, good: str, *swaps: tuple[str, str], **more: Any
) -> Pattern:
    """Return a pattern whose bad source is `good` after `swaps`; `more` are further fields."""
    return Pattern(number, name, criterion, swapped(good, *swaps), good, **more)
