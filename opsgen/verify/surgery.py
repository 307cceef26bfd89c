"""A model whose calls can be changed one at a time, on several draws of its inputs.

The calls are those that a run makes, since foreign code has no graph. A
call that guards against numbers the inputs do not usually hold, such as the
shift of a softmax, matters too: without it inputs that are far away, tiny or
zero give what is not finite.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
import torch
from torch import Tensor

from opsgen.records import Tolerance
from opsgen.verify.changes import (
    STRESSES,
    At,
    Counting,
    Delete,
    Enlarge,
    Freeze,
    Given,
    Operation,
    doubled,
    fitting_arguments,
    memory_of,
)
from opsgen.verify.comparison import comparison_margin
from opsgen.verify.leaves import Inputs, Leaves, equal_bits, is_exact, map_tensors
from opsgen.verify.reference import Reference
from opsgen.verify.running import TaskCodeError
from opsgen.verify.seeding import derive_seed
from opsgen.verify.tapping import CallTap, Moment, Tap

Tolerances = tuple[Tolerance, ...]
_CLEAR = 2.0
_FLOOR = 1e-4
"""What a change does below this share of the scale is an epsilon's doing or rounding."""
_PAIRS = ((0, 1), (2, 3), (1, 0), (3, 2), (4, 1), (5, 3), (6, 4), (7, 5))
"""Draws that are run, each with one that lends frozen values; what the first two show to be dead
is tried on the others: a maximum that happens to be positive needs no `abs`."""
_ABSORBABLE = 1e3
"""Margin up to which a missing factor may be all in the epsilon of a norm behind it."""
_LARGE = 1e3
_NEAR = 0.1


@dataclass(slots=True)
class Part:
    """One call or op as a run shows it.

    Attributes:
        index: Its place among all.
        name: Qualified name.
        shapes: Shape and type of each result.
        size_bytes: Of its results.
        is_output: Its result is what the model returns.
        is_given: It depends on an input or a parameter.
        reads_inputs: It depends on an input.
        is_exact: All results are integers or booleans.
        num_fitting: Arguments that could stand for its result.
        ops: Places of its aten ops.
    """

    index: int
    name: str
    shapes: tuple[tuple[torch.Size, torch.dtype], ...]
    size_bytes: int
    is_output: bool
    is_given: bool
    reads_inputs: bool
    is_exact: bool
    num_fitting: int
    ops: range


@dataclass(slots=True)
class Surgery:
    """Changes to single calls of a reference, on draws of its inputs.

    Attributes:
        reference: The task, at the state of the first seed.
        draws: At least two: the first is run, the second lends frozen values. More are drawn and
            added where these leave doubt.
        tolerances: The task's own.
        seeds: Seed of the present state and others, for what inputs do not change.
        idle: Parts whose result may be that of any draw, as far as they have been tried.
    """

    reference: Reference
    draws: list[Inputs]
    tolerances: Tolerances
    seeds: tuple[int, ...]
    idle: list[Part] = field(default_factory=list)
    _outputs: dict[int, Leaves] = field(default_factory=dict)
    _stress: list[tuple[Inputs, Leaves, Counting]] | None = None
    _tails: tuple[Inputs, Leaves] | None = None

    def parts(self) -> list[Part]:
        """Run once and return the parts that make new values, in order."""
        found: list[tuple[Part, list[int]]] = []
        inputs = _own(self._draw(0))
        given = Given(self.reference, inputs)

        def look(moment: Moment) -> Any:
            is_given, reads_inputs = given.follow(moment)
            if moment.computes and moment.leaves:
                leaves = moment.leaves
                part = Part(
                    index=moment.index,
                    name=moment.name,
                    shapes=tuple((leaf.shape, leaf.dtype) for leaf in leaves),
                    size_bytes=sum(leaf.nbytes for leaf in leaves),
                    is_output=False,
                    is_given=is_given,
                    reads_inputs=reads_inputs,
                    is_exact=all(is_exact(leaf) for leaf in leaves),
                    num_fitting=len(fitting_arguments(moment)),
                    ops=moment.ops,
                )
                found.append((part, [memory_of(leaf) for leaf in leaves]))
            return moment.result

        outputs = self.run(inputs, look)
        returned = {memory_of(leaf) for leaf in outputs}
        for part, storages in found:
            part.is_output = len(storages) == 1 and not returned.isdisjoint(storages)
        last = [part for part, storages in found if part.is_output]
        for part in last[: -len(outputs)]:  # written to later on
            part.is_output = False
        return [part for part, _ in found]

    def deleted(self, part: Part) -> float | None:
        """Return the least margin of handing on an argument; None without a fitting one.

        What only scales it for somebody who divides that out again hands on the argument, too.
        """
        margins = []
        for choice in range(part.num_fitting):
            change = At(part.index, Delete(choice), is_exact=part.is_exact)
            margin = self.margin(change)
            if 1 < margin < _ABSORBABLE:
                margin = min(margin, self._margin_enlarged(part, choice, margin))
            margins.append(margin)
            if margin <= 1:
                break
        return min(margins, default=None)

    def margin(self, operation: Operation) -> float:
        """Return what an operation changes; where that is little, over more and odder inputs."""
        margin = self._margin(0, operation)
        if margin < _CLEAR:
            margin = max(margin, self._margin(2, operation))
        if margin <= 1 and self._is_guard(operation):
            margin = math.inf
        if margin <= 1:
            margin = max(margin, self._margin_of_tails(operation))
        for draw, _ in _PAIRS[2:]:
            if margin > 1:
                break
            margin = max(margin, self._margin(draw, operation))
        return margin

    def _margin_enlarged(self, part: Part, choice: int, natural: float) -> float:
        """Return what handing on an argument changes where it and the result are large.

        Then no epsilon tells them apart. Infinite where a large result is not as good as the
        result itself, and where the difference is not next to nothing beside `natural`.
        """
        ours = At(part.index, Enlarge(_LARGE, None))
        theirs = At(part.index, Enlarge(_LARGE, choice))
        worst = 0.0
        for draw in (0, 2):
            inputs = self._draw(draw)
            try:
                large, changed = self._changed(inputs, ours), self._changed(inputs, theirs)
            except TaskCodeError:
                return math.inf
            near = loosened(self.tolerances, _NEAR)
            if comparison_margin(large, self._output(draw), near) > 1:
                return math.inf
            worst = max(worst, comparison_margin(changed, large, loosened(self.tolerances)))
        is_absorbed = worst <= min(1.0, natural / 10)
        change = At(part.index, Delete(choice), is_exact=part.is_exact)
        return worst if is_absorbed and not self._is_guard(change) else math.inf

    def frozen(self, part: Part) -> list[float]:
        """Return the margin of freezing each result; empty where no state changes it either.

        What comes of inputs and is the same for every draw is frozen as it is.
        """
        values = functools.cache(lambda draw: self.values(part.index, draw))
        ours, theirs = values(0), values(1)
        if not ours or [t.shape for t in theirs] != [o.shape for o in ours]:
            return []
        if not part.reads_inputs and _are_equal(ours, theirs):
            return self._frozen_states(part, ours)
        margins = [self._frozen_result(part, place, values) for place in range(len(ours))]
        found = [margin for margin in margins if margin is not None]
        if found:
            return found
        change = At(part.index, Freeze(0, ours[0]), is_exact=part.is_exact)
        return [math.inf if self._is_guard(change) else 0.0]

    def _frozen_states(self, part: Part, ours: list[Tensor]) -> list[float]:
        """Return the margin of freezing each result at its value for other weights."""
        self.reference.state.redraw(self.seeds[1])
        theirs = self.values(part.index, 0)
        self.reference.state.redraw(self.seeds[0])
        if [t.shape for t in theirs] != [o.shape for o in ours]:
            return []
        changes = [
            At(part.index, Freeze(place, other), is_exact=part.is_exact)
            for place, (mine, other) in enumerate(zip(ours, theirs, strict=True))
            if not equal_bits((mine,), (other,))
        ]
        margins = [self._margin(0, change) for change in changes]
        return [
            math.inf if margin <= 1 and self._is_guard(change) else margin
            for margin, change in zip(margins, changes, strict=True)
        ]

    def _frozen_result(
        self, part: Part, place: int, values: Callable[[int], list[Tensor]]
    ) -> float | None:
        """Return the largest margin over pairs of draws; None where it is the same in all."""
        margin, change = None, None
        for ours, theirs in _PAIRS:
            mine, other = values(ours)[place : place + 1], values(theirs)[place : place + 1]
            if [t.shape for t in mine] != [t.shape for t in other] or _are_equal(mine, other):
                continue
            change = At(part.index, Freeze(place, other[0]), is_exact=part.is_exact)
            margin = max(margin or 0.0, self._margin(ours, change))
            if margin >= _CLEAR:
                break
        if margin is not None and margin <= 1 and change is not None and self._is_guard(change):
            return math.inf
        return margin

    def _margin_of_tails(self, operation: Operation) -> float:
        """Return the margin on inputs twice as large, in place of the tails of more elements.

        A clamp that acts on one of a million elements does not act on a twin's few hundred.
        """
        if self._tails is None:
            inputs = map_tensors(doubled, self._draw(0))
            try:
                self._tails = (inputs, _copied(self.reference.run(_own(inputs))))
            except TaskCodeError:
                return 0.0
        inputs, output = self._tails
        try:
            changed = self._changed(inputs, operation)
        except TaskCodeError:
            return 0.0
        return comparison_margin(changed, output, loosened(self.tolerances))

    def _is_guard(self, operation: Operation) -> bool:
        """Whether unusual inputs need the part: some call gives what is not finite without it.

        Of a predicate it is enough that it changes what they give.
        """
        for inputs, output, before in self._stressed():
            own = _own(inputs)
            after = Counting(operation.start(own))
            try:
                changed = self.run(own, after, operation.index)
            except TaskCodeError:
                continue
            if operation.is_exact and comparison_margin(changed, output, self.tolerances) > 1:
                return True
            if after.exceeds(before):
                return True
            for left, right in zip(changed, output, strict=False):
                if left.shape == right.shape and not is_exact(right):
                    broken = ~left.isfinite() & right.isfinite()
                    if bool(broken.any()):
                        return True
        return False

    def _stressed(self) -> list[tuple[Inputs, Leaves, Counting]]:
        if self._stress is None:
            self._stress = []
            for change in STRESSES:
                inputs = map_tensors(change, self._draw(0))
                counting = Counting(lambda moment: moment.result)
                try:
                    output = _copied(self.run(_own(inputs), counting))
                except TaskCodeError:
                    continue
                self._stress.append((inputs, output, counting))
        return self._stress

    def _margin(self, draw: int, operation: Operation) -> float:
        output = self._output(draw)
        try:
            changed = self._changed(self._draw(draw), operation)
        except TaskCodeError:
            return math.inf
        return comparison_margin(changed, output, loosened(self.tolerances))

    def _draw(self, draw: int) -> Inputs:
        while len(self.draws) <= draw:
            seed = derive_seed(self.seeds[0], "further", len(self.draws))
            self.draws.append(self.reference.draw(seed))
        return self.draws[draw]

    def _output(self, draw: int) -> Leaves:
        if draw not in self._outputs:
            self._outputs[draw] = _copied(self.reference.run(_own(self._draw(draw))))
        return self._outputs[draw]

    def values(self, index: int, draw: int) -> list[Tensor]:
        """Return copies of the results of one call; empty where the run fails."""
        kept: list[Tensor] = []

        def keep(moment: Moment) -> Any:
            if moment.index == index:
                kept.extend(leaf.detach().clone() for leaf in moment.leaves)
            return moment.result

        try:
            self.run(_own(self._draw(draw)), keep)
        except TaskCodeError:
            return []
        return kept

    def followed(self, follow: Callable[[Inputs], Tap]) -> Leaves:
        """Return the output of the first draw, run under the tap that `follow` makes for it."""
        inputs = _own(self._draw(0))
        return self.run(inputs, follow(inputs))

    def _changed(self, inputs: Inputs, operation: Operation) -> Leaves:
        own = _own(inputs)
        return self.run(own, operation.start(own), operation.index)

    def run(self, inputs: Inputs, tap: Tap, watched: int | None = None) -> Leaves:
        """Run inputs, which calls in place may write to, under a tap."""
        with CallTap(self.reference.model, tap, watched=watched).running():
            return self.reference.run(inputs)


def loosened(tolerances: Tolerances, least: float = _FLOOR) -> Tolerances:
    """Return tolerances of at least `least`."""
    return tuple(
        msgspec.structs.replace(tolerance, value=max(tolerance.value, least))
        for tolerance in tolerances
    )


def _own(inputs: Inputs) -> Inputs:
    """Return copies, which calls in place may write to."""
    return map_tensors(lambda tensor: tensor.clone(), inputs)


def _copied(leaves: Leaves) -> Leaves:
    return tuple(leaf.clone() for leaf in leaves)


def _are_equal(left: list[Tensor], right: list[Tensor]) -> bool:
    return equal_bits(tuple(left), tuple(right))
