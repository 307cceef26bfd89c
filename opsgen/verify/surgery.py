"""Whether every call of foreign code matters: each is deleted, and frozen at another value.

Like `node_effects`, without a graph: the calls are those that a run makes. A
call that guards against numbers the inputs do not usually hold, such as the
shift of a softmax, matters too: without it inputs that are far away, tiny or
zero give what is not finite.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec
import torch
from torch import Tensor

from opsgen.records import Effect, Tolerance
from opsgen.verify.changes import (
    STRESSES,
    At,
    Change,
    Delete,
    Freeze,
    Given,
    doubled,
    fitting_arguments,
    memory_of,
)
from opsgen.verify.comparison import comparison_margin
from opsgen.verify.leaves import Inputs, Leaves, equal_bits, is_exact, map_tensors
from opsgen.verify.reference import Reference
from opsgen.verify.running import TaskCodeError
from opsgen.verify.tapping import CallTap, Moment, OpTap, Tap

Tolerances = tuple[Tolerance, ...]
MAX_CALLS = 64
MAX_S = 2.0
"""Processor seconds that the calls of one task may take; what does not fit is left out, evenly."""
_MAX_KEPT_BYTES = 512 * 2**20
_CLEAR = 2.0
_FLOOR = 1e-4
"""What a change does below this share of the scale is an epsilon's doing or rounding."""


class _Running(Protocol):
    def running(self) -> AbstractContextManager[None]: ...


Tapping = Callable[[Reference, Tap, int | None], _Running]


def tap_calls(reference: Reference, tap: Tap, watched: int | None) -> _Running:
    """Stand between a model and its outermost calls."""
    return CallTap(reference.model, tap, watched=watched)


def tap_ops(reference: Reference, tap: Tap, watched: int | None) -> _Running:
    """Stand between a model and its aten ops."""
    return OpTap(reference.model, tap)


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


@dataclass(slots=True)
class Surgery:
    """Changes to single calls of a reference, on draws of its inputs.

    Attributes:
        reference: The task, at the state of the first seed.
        draws: At least two: the first is run, the second lends frozen values.
        tolerances: The task's own.
        seeds: Seed of the present state and others, for what inputs do not change.
        tapping: What counts as a part.
    """

    reference: Reference
    draws: list[Inputs]
    tolerances: Tolerances
    seeds: tuple[int, ...]
    tapping: Tapping = tap_calls
    _outputs: dict[int, Leaves] = field(default_factory=dict)
    _stress: list[tuple[Inputs, Leaves]] | None = None
    _tails: tuple[Inputs, Leaves] | None = None

    def parts(self) -> list[Part]:
        """Run once and return the parts that make new values, in order."""
        found: list[tuple[Part, list[int]]] = []
        inputs = _own(self.draws[0])
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
                )
                found.append((part, [memory_of(leaf) for leaf in leaves]))
            return moment.result

        outputs = self._run_on(inputs, look)
        returned = {memory_of(leaf) for leaf in outputs}
        for part, storages in found:
            part.is_output = len(storages) == 1 and not returned.isdisjoint(storages)
        last = [part for part, storages in found if part.is_output]
        for part in last[: -len(outputs)]:  # written to later on
            part.is_output = False
        return [part for part, _ in found]

    def deleted(self, part: Part) -> float | None:
        """Return the least margin of handing on an argument; None without a fitting one."""
        margins = []
        for choice in range(part.num_fitting):
            change = Delete(choice)
            margin = self._margin(0, part, change)
            if margin < _CLEAR and len(self.draws) > 2:
                margin = max(margin, self._margin(2, part, change))
            if margin <= 1 and self._is_guard(part, change):
                margin = math.inf
            if margin <= 1:
                margin = max(margin, self._margin_of_tails(part, change))
            margins.append(margin)
            if margin <= 1:
                break
        return min(margins, default=None)

    def frozen(self, part: Part) -> list[float]:
        """Return the margin of freezing each result; empty where no state changes it either.

        What comes of inputs and is the same for another draw is frozen as it is.
        """
        ours = self._values(part, 0)
        theirs = self._values(part, 1)
        if not ours:
            return []
        if _are_equal(ours, theirs):
            if part.reads_inputs:
                return [math.inf if self._is_guard(part, Freeze(0, ours[0])) else 0.0]
            self.reference.state.redraw(self.seeds[1])
            theirs = self._values(part, 0)
            self.reference.state.redraw(self.seeds[0])
        if [t.shape for t in theirs] != [o.shape for o in ours]:
            return []
        margins = []
        for place, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
            if equal_bits((mine,), (other,)):
                continue
            change = Freeze(place, other)
            margin = self._margin(0, part, change)
            if margin < _CLEAR and len(self.draws) > 3:
                more = self._values(part, 3)
                if len(more) == len(ours) and more[place].shape == mine.shape:
                    margin = max(margin, self._margin(2, part, Freeze(place, more[place])))
            if margin <= 1 and self._is_guard(part, change):
                margin = math.inf
            margins.append(margin)
        return margins

    def _margin_of_tails(self, part: Part, change: Change) -> float:
        """Return the margin on inputs twice as large, in place of the tails of more elements.

        A clamp that acts on one of a million elements does not act on a twin's few hundred.
        """
        if self._tails is None:
            inputs = map_tensors(doubled, self.draws[0])
            try:
                self._tails = (inputs, _copied(self.reference.run(_own(inputs))))
            except TaskCodeError:
                return 0.0
        inputs, output = self._tails
        try:
            changed = self._run(inputs, At(part.index, change), part.index)
        except TaskCodeError:
            return 0.0
        return comparison_margin(changed, output, _loosened(self.tolerances))

    def _is_guard(self, part: Part, change: Change) -> bool:
        """Whether unusual inputs need the part: without it they give what is not finite.

        Of a predicate it is enough that it changes what they give.
        """
        for inputs, output in self._stressed():
            try:
                changed = self._run(inputs, At(part.index, change), part.index)
            except TaskCodeError:
                continue
            if part.is_exact and comparison_margin(changed, output, self.tolerances) > 1:
                return True
            for left, right in zip(changed, output, strict=False):
                if left.shape == right.shape and not is_exact(right):
                    broken = ~left.isfinite() & right.isfinite()
                    if bool(broken.any()):
                        return True
        return False

    def _stressed(self) -> list[tuple[Inputs, Leaves]]:
        if self._stress is None:
            self._stress = []
            for change in STRESSES:
                inputs = map_tensors(change, self.draws[0])
                try:
                    self._stress.append((inputs, _copied(self.reference.run(_own(inputs)))))
                except TaskCodeError:
                    continue
        return self._stress

    def _margin(self, draw: int, part: Part, change: Change) -> float:
        if draw not in self._outputs:
            self._outputs[draw] = _copied(self.reference.run(_own(self.draws[draw])))
        try:
            changed = self._run(self.draws[draw], At(part.index, change), part.index)
        except TaskCodeError:
            return math.inf
        return comparison_margin(changed, self._outputs[draw], _loosened(self.tolerances))

    def _values(self, part: Part, draw: int) -> list[Tensor]:
        return self._values_on(part, self.draws[draw])

    def _values_on(self, part: Part, inputs: Inputs) -> list[Tensor]:
        kept: list[Tensor] = []

        def keep(moment: Moment) -> Any:
            if moment.index == part.index:
                kept.extend(leaf.detach().clone() for leaf in moment.leaves)
            return moment.result

        try:
            self._run(inputs, keep)
        except TaskCodeError:
            return []
        return kept

    def _run(self, inputs: Inputs, tap: Tap, watched: int | None = None) -> Leaves:
        return self._run_on(_own(inputs), tap, watched)

    def _run_on(self, inputs: Inputs, tap: Tap, watched: int | None = None) -> Leaves:
        with self.tapping(self.reference, tap, watched).running():
            return self.reference.run(inputs)


def _loosened(tolerances: Tolerances) -> Tolerances:
    return tuple(
        msgspec.structs.replace(tolerance, value=max(tolerance.value, _FLOOR))
        for tolerance in tolerances
    )


def _own(inputs: Inputs) -> Inputs:
    """Return copies, which calls in place may write to."""
    return map_tensors(lambda tensor: tensor.clone(), inputs)


def _copied(leaves: Leaves) -> Leaves:
    return tuple(leaf.clone() for leaf in leaves)


def _are_equal(left: list[Tensor], right: list[Tensor]) -> bool:
    return equal_bits(tuple(left), tuple(right))


def call_effects(surgery: Surgery) -> tuple[Effect, ...]:
    """Return what deleting and freezing each call of a task does.

    Not judged are calls that follow from constants alone, and freezing what is returned as it
    is: that is the replay answer. At most `MAX_CALLS` calls and about `MAX_S` seconds.
    """
    parts = [part for part in surgery.parts() if part.is_given]
    start_s = time.process_time()
    effects: list[Effect] = []
    for part in evenly(parts, MAX_CALLS):
        if time.process_time() - start_s > MAX_S:
            break
        if part.size_bytes > _MAX_KEPT_BYTES:
            continue
        subject = f"call {part.index} ({part.name})"
        margin = confirmed(surgery, functools.partial(_deleted, part))
        if margin is not None:
            effects.append(Effect(subject=subject, change="deleted", margin=margin))
        if part.is_output:
            continue
        margin = confirmed(surgery, functools.partial(any_frozen, part))
        if margin is not None:
            effects.append(Effect(subject=subject, change="frozen", margin=margin))
    return tuple(effects)


def _deleted(part: Part, surgery: Surgery) -> float | None:
    return surgery.deleted(part)


def any_frozen(part: Part, surgery: Surgery) -> float | None:
    """Return the largest margin of freezing a result of a part: some may be there for nobody."""
    return max(surgery.frozen(part), default=None)


def confirmed(surgery: Surgery, judge: Callable[[Surgery], float | None]) -> float | None:
    """Return a margin, and where it is that of a dead part the largest over weight seeds.

    Of a narrow twin's few channels one draw of the weights may well leave all on one side.
    """
    margin = judge(surgery)
    reference, (first, *others) = surgery.reference, surgery.seeds
    for place, seed in enumerate(others if reference.state.names else ()):
        if margin is None or margin > 1:
            break
        reference.state.redraw(seed)
        seeds = (seed, first, *others[:place], *others[place + 1 :])
        elsewhere = dataclasses.replace(
            surgery, seeds=seeds, _outputs={}, _stress=None, _tails=None
        )
        again = judge(elsewhere)
        margin = margin if again is None else max(margin, again)
        reference.state.redraw(first)
    return margin


def evenly(parts: list[Part], count: int) -> Iterator[Part]:
    """Yield `count` parts in an order in which any beginning is spread over all."""
    step = max(1, math.ceil(len(parts) / count))
    chosen = parts[::step]
    for stride in (4, 2, 1):
        for place in range(0, len(chosen), stride):
            if stride == 4 or place % (2 * stride):
                yield chosen[place]
