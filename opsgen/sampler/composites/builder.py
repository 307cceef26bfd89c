"""The hand that a composite's recipe writes a graph with.

It steers the same machinery that grows random graphs: attributes that a recipe
fixes must be among those that the catalogue offers, the others are drawn,
operands must have the very shape and domain that the entry asks for.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from opsgen.errors import SampleError
from opsgen.ops import CATALOGUE, Attrs, Dim, Interval, Operand, Shape, same_shape
from opsgen.ops.intervals import REAL
from opsgen.records import Graph
from opsgen.sampler.choices import RandomDraw
from opsgen.sampler.draft import Draft, add_input
from opsgen.sampler.growth import append, choose, finish


@dataclass(frozen=True, slots=True)
class Composite:
    """A building block of models: one op to a reader, several in the catalogue.

    Attributes:
        name: Its name, unique among composites.
        family: Which part of a model it is: attention, mlp, norm, ...
        origin: Qualified public name, or the paper, that it follows.
        license: Licence of the public code; None for what is written from a paper.
        build: The recipe: adds inputs and nodes, the last of which is the output.
    """

    name: str
    family: str
    origin: str
    license: str | None
    build: Callable[[Builder], object]

    @property
    def public_name(self) -> str | None:
        """The public class or function that tests compare it with; None for papers."""
        return self.origin if self.license else None

    @property
    def qualified_name(self) -> str:
        """What a task's `ops` calls it: the public class that it equals, or our own name."""
        return self.public_name or f"opsgen.blocks.{self.name}"

    @property
    def credit(self) -> str:
        """What a task's `origin` says."""
        return f"after {self.origin} ({self.license or 'written from the paper'})"

    def grow(self, dtype: str, rng: random.Random) -> tuple[Graph, dict[str, int]]:
        """Return a graph of the composite and first values of its sizes.

        Raises:
            SampleError: The choices led to a dead end; draw again with another generator.
        """
        draft = Draft(RandomDraw(rng), dtype)
        self.build(Builder(draft))
        return finish(draft), draft.draw.sizes


class _Steered:
    """A draw with some of its answers given."""

    def __init__(self, draw: RandomDraw, given: Attrs) -> None:
        self._draw = draw
        self._given = given

    def pick(self, **choices: Sequence[Any]) -> Attrs | None:
        picked: Attrs = {}
        for name, candidates in choices.items():
            if name not in self._given:
                drawn = self._draw.pick(**{name: candidates})
                if drawn is None:
                    return None
                picked.update(drawn)
            elif self._given[name] in candidates:
                picked[name] = self._given[name]
            else:
                return None
        return picked

    def size(self, name: str, choices: Sequence[int], multiple_of: int = 1) -> Attrs | None:
        if name not in self._given:
            return self._draw.size(name, choices, multiple_of)
        value = self._given[name]
        return {name: value} if value % multiple_of == 0 else None


class Builder:
    """Adds inputs and nodes to a graph; values are handled by number."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft

    def pick(self, *options: Any) -> Any:
        """Return one of the options."""
        return options[int(self._draft.draw.rng.random() * len(options))]

    def size(self, name: str, *options: int) -> Dim:
        """Return a new size of the task, with one of the options as its first value."""
        return self._draft.draw.name_size(name, self.pick(*options))

    def shape(self, value: int) -> Shape:
        """Return the shape of a value."""
        return self._draft.values[value].shape

    def input(self, name: str, *shape: int, domain: Interval = REAL, **fields: Any) -> int:
        """Add a task input; `fields` are those of `opsgen.ops.Operand`."""
        return add_input(self._draft, Operand(shape, domain, name=name, **fields))

    def tokens(self, width: int | None = None, name: str = "x") -> int:
        """Add a task input of shape (batch_size, seq_len, features), or `width` of them."""
        features = width or self.size("features", 256, 384, 512, 768, 1024, 2048)
        return self.input(
            name, self.size("batch_size", 2, 4, 8), self.size("seq_len", 64, 128, 256), features
        )

    def image(self, *channels: int) -> int:
        """Add a task input of shape (batch_size, channels, height, width)."""
        return self.input(
            "x",
            self.size("batch_size", 2, 4, 8, 16),
            self.size("channels", *(channels or (32, 48, 64, 96, 128, 192, 256))),
            self.size("height", 14, 28, 32, 56),
            self.size("width", 14, 28, 32, 56),
        )

    def apply(self, name: str, first: int, *others: int, label: str = "", **given: Any) -> int:
        """Apply a catalogue op.

        Args:
            name: Name in the catalogue.
            first: Its first tensor.
            others: Its further tensors; task inputs are added for those that are missing.
            label: Name of its module, or of the task input that is added.
            given: Attributes and sizes that are not to be drawn.

        Returns:
            The number of the result.

        Raises:
            SampleError: The catalogue does not allow it.
        """
        op = CATALOGUE[name]
        attrs, operands = choose(self._draft, op, first, _Steered(self._draft.draw, given))
        assert given.items() <= attrs.items(), f"{name} has no choice of {given}"
        for other, operand in zip(others, operands, strict=False):
            self._check(name, other, operand)
        missing = [
            add_input(self._draft, _named(operand, label)) for operand in operands[len(others) :]
        ]
        result = append(self._draft, op, attrs, (first, *others, *missing))
        if label and not missing:
            self._draft.labels[len(self._draft.nodes) - 1] = label
        return result

    def linear(self, first: int, width: int, label: str, *, bias: bool = False) -> int:
        """Apply a linear layer whose module is called `label`."""
        return self.apply("linear", first, label=label, out_features=width, bias=bias)

    def _check(self, name: str, other: int, operand: Operand) -> None:
        value = self._draft.values[other]
        if not same_shape(value.shape, operand.shape):
            raise SampleError(f"shape: {name} wants {operand.shape}, not {value.shape}")
        if value.dtype != operand.dtype or not value.interval.within(operand.domain):
            raise SampleError(f"domain: {name} does not accept all it would see")


def _named(operand: Operand, name: str) -> Operand:
    return replace(operand, name=name) if name else operand
