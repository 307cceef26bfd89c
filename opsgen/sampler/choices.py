"""Where attributes come from: fresh random choices, or recorded ones replayed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from opsgen.ops import Attrs, Dim

_ODD_SHARE = 0.4
_ODD_STEPS = (-3, -1, 1, 3, 4, 7)


class RandomDraw:
    """Chooses attributes and names new sizes while a graph grows.

    A size that an op brings along is the larger of two choices, because growing a small
    input is work that costs nothing to create: `torch.randn` of a gigabyte takes seconds.

    Args:
        rng: Source of every choice.
        has_odd_sizes: Sizes that need not be a multiple of anything may leave the choices.

    Attributes:
        sizes: Every size named so far with its value, task inputs included.
    """

    def __init__(self, rng: random.Random, has_odd_sizes: bool = False) -> None:
        self.rng = rng
        self.has_odd_sizes = has_odd_sizes
        self.sizes: dict[str, int] = {}

    def pick(self, **choices: Sequence[Any]) -> Attrs | None:
        """Choose uniformly; entries repeat candidates to weigh them."""
        picked: Attrs = {}
        for name, candidates in choices.items():
            if not candidates:
                return None
            picked[name] = candidates[int(self.rng.random() * len(candidates))]
        return picked

    def size(self, name: str, choices: Sequence[int], multiple_of: int = 1) -> Attrs | None:
        """Choose a value and give it a name of its own among the task's sizes."""
        legal = [value for value in choices if value % multiple_of == 0]
        if not legal:
            return None
        value = max(legal[int(self.rng.random() * len(legal))] for _ in range(2))
        if self.has_odd_sizes and multiple_of == 1 and self.rng.random() < _ODD_SHARE:
            value += self.rng.choice(_ODD_STEPS)
        return {name: self.name_size(name, max(1, value))}

    def name_size(self, name: str, value: int) -> Dim:
        """Register a size under the first free variant of `name`."""
        unique, number = name, 2
        while unique in self.sizes:
            unique, number = f"{name}_{number}", number + 1
        self.sizes[unique] = value
        return Dim.named(unique, value)


class ReplayDraw:
    """Answers with recorded attributes, or with None where they are no longer legal."""

    def __init__(self, attrs: Attrs) -> None:
        self.attrs = attrs

    def pick(self, **choices: Sequence[Any]) -> Attrs | None:
        """Return the recorded attributes if each is still a candidate."""
        for name, candidates in choices.items():
            if self.attrs[name] not in candidates:
                return None
        return {name: self.attrs[name] for name in choices}

    def size(self, name: str, choices: Sequence[int], multiple_of: int = 1) -> Attrs | None:
        """Return the recorded size if it is still a multiple; any value is a size."""
        value = self.attrs[name]
        return {name: value} if value % multiple_of == 0 else None
