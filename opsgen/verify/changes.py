"""What is put in the place of a call's result, and inputs under which guards show."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from opsgen.verify.leaves import Inputs, count_nonfinite, tensors_of
from opsgen.verify.reference import Reference
from opsgen.verify.tapping import Moment, Tap

Change = Callable[[Moment], Any]


class Operation(Protocol):
    """What is done to a run.

    Attributes:
        index: The call that it changes.
        is_exact: All results of that call are integers or booleans.
    """

    index: int
    is_exact: bool

    def start(self, inputs: Inputs) -> Tap:
        """Return the tap of one run on these inputs."""
        ...


class At:
    """Applies a change to the call at one place."""

    def __init__(self, index: int, change: Change, *, is_exact: bool = False) -> None:
        self.index = index
        self.is_exact = is_exact
        self._change = change

    def start(self, _inputs: Inputs) -> Tap:
        """Return the tap of one run."""
        return self

    def __call__(self, moment: Moment) -> Any:
        """Return what shall have happened."""
        return self._change(moment) if moment.index == self.index else moment.result


class Delete:
    """Hands on one of the arguments that fit; a call in place is undone."""

    def __init__(self, choice: int) -> None:
        self._choice = choice

    def __call__(self, moment: Moment) -> Any:
        """Return what shall have happened."""
        written = moment.written
        if written is not None:
            assert moment.before is not None
            written.copy_(moment.before)
            return moment.result
        fitting = fitting_arguments(moment)
        if self._choice >= len(fitting):
            return moment.result
        (result,) = moment.leaves
        return fitting[self._choice].reshape(result.shape)


class Counting:
    """Counts the elements of each call's results that are not finite, under another tap."""

    def __init__(self, tap: Tap) -> None:
        self.counts: dict[int, int] = {}
        self._tap = tap

    def __call__(self, moment: Moment) -> Any:
        """Return what the other tap does."""
        self.counts[moment.index] = count_nonfinite(tuple(moment.leaves))
        return self._tap(moment)

    def exceeds(self, other: Counting) -> bool:
        """Whether a call has more of them here."""
        counts = other.counts.items()
        return any(self.counts.get(index, 0) > count for index, count in counts)


class Enlarge:
    """Hands on a multiple of the result, or of one of the arguments that fit."""

    def __init__(self, factor: float, choice: int | None) -> None:
        self._factor = factor
        self._choice = choice

    def __call__(self, moment: Moment) -> Any:
        """Return what shall have happened."""
        is_written = moment.written is not None
        value = moment.result if self._choice is None else Delete(self._choice)(moment)
        if is_written:
            return value.mul_(self._factor)
        return pytree.tree_map_only(Tensor, lambda leaf: leaf * self._factor, value)


class Freeze:
    """Puts a kept tensor in the place of one result; into memory where that was written."""

    def __init__(self, place: int, value: Tensor) -> None:
        self._place = place
        self._value = value

    def __call__(self, moment: Moment) -> Any:
        """Return what shall have happened."""
        written = moment.written
        if written is not None:
            written.copy_(self._value)
            return moment.result
        target = moment.leaves[self._place]
        if target.shape != self._value.shape:
            return moment.result
        value = torch.empty_like(target)  # with its strides, where it is dense
        value.copy_(self._value)
        return pytree.tree_map(lambda leaf: value if leaf is target else leaf, moment.result)


def fitting_arguments(moment: Moment) -> list[Tensor]:
    """Return arguments of the result's type and of its shape but for axes of one element."""
    if moment.written is not None:
        return [moment.args[0]]
    leaves = moment.leaves
    if len(leaves) != 1:
        return []
    (result,) = leaves
    wanted = [extent for extent in result.shape if extent != 1]
    return [
        argument
        for argument in moment.args
        if argument.dtype == result.dtype
        and argument is not result
        and not isinstance(argument, torch.nn.Parameter)
        and [extent for extent in argument.shape if extent != 1] == wanted
    ]


class Given:
    """Which memory depends on inputs, and which on neither inputs nor parameters."""

    def __init__(self, reference: Reference, inputs: Inputs) -> None:
        self._held: list[Tensor] = []
        self._constant = {memory_of(buffer) for buffer in reference.model.buffers()}
        self._inputs = {memory_of(tensor) for tensor in tensors_of(inputs)}

    def hold(self, leaves: list[Tensor]) -> None:
        """Keep memory from being used again under another name."""
        self._held += leaves

    def follow(self, moment: Moment) -> tuple[bool, bool]:
        """Return whether a result depends on anything given, and on inputs; remember both."""
        # What came out of no call that was seen, such as a cast by `.data`, counts as given.
        reads = [memory_of(argument) for argument in moment.args]
        is_module = moment.name.startswith("torch.nn.") and ".functional." not in moment.name
        results = {memory_of(leaf) for leaf in moment.leaves}
        if not (moment.reads or is_module or results.intersection(reads)):
            reads = []
        is_given = bool(reads) and (is_module or any(key not in self._constant for key in reads))
        reads_inputs = not self._inputs.isdisjoint(reads)
        self.hold(moment.leaves)
        for leaf in moment.leaves:
            for names, is_in in ((self._constant, not is_given), (self._inputs, reads_inputs)):
                (names.add if is_in else names.discard)(memory_of(leaf))
        return is_given, reads_inputs


def memory_of(tensor: Tensor) -> int:
    """Return what tells the memory of a living tensor from all other."""
    return int(tensor.untyped_storage()._cdata)


def doubled(tensor: Tensor) -> Tensor:
    """Return twice a tensor; of shares, which end at 1, the nearest end."""
    if not tensor.is_floating_point():
        return tensor.clone()
    is_share = bool(((tensor >= 0) & (tensor <= 1)).all())
    return tensor.round() if is_share else 2 * tensor


def _far(tensor: Tensor) -> Tensor:
    return tensor * 1e4 if tensor.is_floating_point() else tensor.clone()


def _tiny(tensor: Tensor) -> Tensor:
    return tensor * 1e-30 if tensor.is_floating_point() else tensor.clone()


def _none(tensor: Tensor) -> Tensor:
    return torch.zeros_like(tensor)


def _same(tensor: Tensor) -> Tensor:
    return torch.ones_like(tensor)


def _opposite(tensor: Tensor) -> Tensor:
    return -1e4 * tensor.abs() if tensor.is_floating_point() else tensor.clone()


STRESSES = (_far, _none, _tiny, _same, _opposite)
