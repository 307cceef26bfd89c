"""Calls that lead back to a value that was there before, such as a transform and its inverse.

None of them can be deleted alone, all together they can. Found here are those
that nobody else reads; whether the earlier value will do is for surgery to try.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from opsgen.verify.changes import fitting_arguments, memory_of
from opsgen.verify.leaves import Inputs, Leaves, real_view, tensors_of
from opsgen.verify.surgery import Surgery
from opsgen.verify.tapping import Moment, Tap

MAX_DETOURS = 6
_NUM_SAMPLED = 64
_NEAR = 1e-3
_GIVEN = -1
"""Stands in the place of a call for what the model is given."""


@dataclass(frozen=True, slots=True)
class Detour:
    """Calls between two equal values.

    Attributes:
        origin: Call and result, or `_GIVEN` and input, of the value that was there before.
        end: Call and result of the value that equals it.
        calls: Place and name of each call that serves nothing else.
        is_computed: The last call computes, and so all its results are in question.
    """

    origin: tuple[int, int]
    end: tuple[int, int]
    calls: tuple[tuple[int, str], ...]
    is_computed: bool

    @property
    def subject(self) -> str:
        """Return what it is called in evidence."""
        names = ", ".join(name for _, name in self.calls)
        first, last = self.calls[0][0], self.calls[-1][0]
        return f"call {first} ({names})" if first == last else f"calls {first} to {last} ({names})"


class Bypass:
    """Hands on the value that was there before; see `Operation`.

    Other results of the last call become those of another draw: they may not matter either.
    """

    is_exact = False

    def __init__(self, detour: Detour, surgery: Surgery) -> None:
        self.index, self._place = detour.end
        self._origin = detour.origin
        self._others: dict[int, Tensor] = {}
        if detour.is_computed:
            others = dict(enumerate(surgery.values(self.index, 1)))
            self._others = {place: other for place, other in others.items() if place != self._place}

    def start(self, inputs: Inputs) -> Tap:
        """Return the tap of one run."""
        call, place = self._origin
        kept = [tensors_of(inputs)[place].clone()] if call == _GIVEN else []

        def hand_on(moment: Moment) -> Any:
            if moment.index == call:
                kept.append(moment.leaves[place].detach().clone())
            return self._replaced(moment, kept[0]) if moment.index == self.index else moment.result

        return hand_on

    def _replaced(self, moment: Moment, value: Tensor) -> Any:
        if moment.written is not None:
            return moment.written.copy_(value)
        leaves = moment.leaves
        found = {id(leaves[self._place]): value}
        for place, other in self._others.items():
            if place < len(leaves) and leaves[place].shape == other.shape:
                found[id(leaves[place])] = other.clone()
        return pytree.tree_map(lambda leaf: found.get(id(leaf), leaf), moment.result)


def find_detours(surgery: Surgery) -> list[Detour]:
    """Return detours of a run on the first draw, at most `MAX_DETOURS`.

    Calls that copy count when they put elements in another order and back. What only changes
    type, layout or shape on its way does not, nor what can be deleted alone.
    """
    values = _Values()

    def follow(inputs: Inputs) -> Tap:
        values.give(inputs)
        return values.follow

    outputs = surgery.followed(follow)
    found: list[Detour] = []
    seen: set[tuple[int, str]] = set()
    for detour in values.detours(outputs):
        if seen.issuperset(detour.calls):
            continue
        found.append(detour)
        seen.update(detour.calls)
        if len(found) == MAX_DETOURS:
            break
    return found


@dataclass(slots=True)
class _Value:
    """One result, or one input, at the time when it was new."""

    call: int
    place: int
    name: str
    key: tuple[torch.Size, torch.dtype]
    sample: Tensor
    memory: int
    parents: frozenset[int]
    before: int
    is_computed: bool
    is_deletable: bool


class _Values:
    """All values of one run, and what they come from."""

    def __init__(self) -> None:
        self._values: list[_Value] = []
        self._held: list[Tensor] = []
        self._now: dict[int, int] = {}
        self._within: dict[int, list[int]] = {}

    def give(self, inputs: Inputs) -> None:
        """Note the inputs."""
        for place, leaf in enumerate(tensors_of(inputs)):
            self._add(leaf, (_GIVEN, place, "input"), frozenset(), (False, False))

    def follow(self, moment: Moment) -> Any:
        """Note the results of a call."""
        leaves = moment.leaves
        parents = frozenset(node for arg in moment.args for node in self._nodes_of(arg))
        is_deletable = moment.computes and len(leaves) == 1 and bool(fitting_arguments(moment))
        kinds = (moment.computes, is_deletable)
        if leaves and moment.args and leaves[0] is moment.args[0]:
            # All that shares the memory may have been written to.
            ids = self._within.get(memory_of(leaves[0]), [])
            parents |= {self._now[each] for each in ids}
            self._add(leaves[0], (moment.index, 0, moment.name), parents, kinds)
            self._now.update(dict.fromkeys(ids, len(self._values) - 1))
            return moment.result
        for place, leaf in enumerate(leaves):
            self._add(leaf, (moment.index, place, moment.name), parents, kinds)
        return moment.result

    def _nodes_of(self, tensor: Tensor) -> list[int]:
        if id(tensor) in self._now:
            return [self._now[id(tensor)]]
        return [self._now[each] for each in self._within.get(memory_of(tensor), ())]

    def _add(
        self,
        leaf: Tensor,
        where: tuple[int, int, str],
        parents: frozenset[int],
        kinds: tuple[bool, bool],
    ) -> None:
        before = 0
        for parent in parents:
            before |= self._values[parent].before | 1 << parent
        memory = memory_of(leaf)
        if id(leaf) not in self._now:
            self._held.append(leaf)
            self._within.setdefault(memory, []).append(id(leaf))
        self._now[id(leaf)] = len(self._values)
        key = (leaf.shape, leaf.dtype)
        self._values.append(_Value(*where, key, _sampled(leaf), memory, parents, before, *kinds))

    def detours(self, outputs: Leaves) -> Iterator[Detour]:
        """Yield for each value the detour from the first that equals it."""
        returned = {node for leaf in outputs for node in self._returned(leaf)}
        for end, value in enumerate(self._values):
            for origin in range(end):
                first = self._values[origin]
                if not value.before >> origin & 1 or first.key != value.key:
                    continue
                if _are_near(first.sample, value.sample):
                    calls = self._idle_calls(origin, end, returned)
                    if calls:
                        start, stop = (first.call, first.place), (value.call, value.place)
                        yield Detour(start, stop, calls, value.is_computed)
                        break

    def _returned(self, leaf: Tensor) -> list[int]:
        """Return the values in the memory of an output, which is detached and so no known one."""
        return [self._now[each] for each in self._within.get(memory_of(leaf), ())]

    def _idle_calls(self, origin: int, end: int, returned: set[int]) -> tuple[tuple[int, str], ...]:
        """Return the calls that lead from one value to another, if nobody else reads them."""
        first, last = self._values[origin], self._values[end]
        between = [
            node
            for node in range(origin + 1, end + 1)
            if (last.before >> node & 1 or node == end) and self._values[node].before >> origin & 1
        ]
        computed = {self._values[n].call for n in between if self._values[n].is_computed}
        if not computed and (first.memory == last.memory or not self._is_reordered(first, between)):
            return ()
        if len(computed) == 1 and any(self._values[n].is_deletable for n in between):
            return ()
        read = self._read(returned, end)
        idle = [node for node in between if self._values[node].call not in read]
        reached = {origin}
        for node in idle:
            if not reached.isdisjoint(self._values[node].parents):
                reached.add(node)
        if end not in reached:
            return ()
        calls = {self._values[n].call: self._values[n].name for n in reached - {origin}}
        return tuple(sorted(calls.items()))

    def _is_reordered(self, first: _Value, between: list[int]) -> bool:
        samples = (self._values[node] for node in between)
        return any(
            value.key[0].numel() == first.key[0].numel()
            and not _are_near(value.sample, first.sample)
            for value in samples
        )

    def _read(self, returned: set[int], end: int) -> set[int]:
        """Return the calls that are still read when a value, or all of its call, is replaced."""
        last = self._values[end]
        seen: set[int] = set()
        waiting = set(returned)
        while waiting:
            node = waiting.pop()
            value = self._values[node]
            is_replaced = node == end or (last.is_computed and value.call == last.call)
            if node in seen or is_replaced:
                continue
            seen.add(node)
            waiting |= value.parents
        return {self._values[node].call for node in seen}


def _sampled(leaf: Tensor) -> Tensor:
    """Return some elements in float64, at the same places of every tensor of a size."""
    flat = real_view(leaf.detach()).flatten()
    step = max(1, flat.numel() // _NUM_SAMPLED)
    return flat[::step].double()


def _are_near(left: Tensor, right: Tensor) -> bool:
    if left.shape != right.shape or not left.numel():
        return False
    scale = float(left.square().mean().sqrt())
    return bool((left - right).abs().max() <= _NEAR * scale)
