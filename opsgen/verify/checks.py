"""Claims about a reference that runs on one device can settle."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from torch.utils import _pytree as pytree

from opsgen.records import Tolerance
from opsgen.verify.comparison import comparison_margin
from opsgen.verify.leaves import (
    Fingerprint,
    Inputs,
    Leaves,
    equal_bits,
    fingerprint,
    specs_of,
    tensors_of,
)
from opsgen.verify.reference import Reference
from opsgen.verify.running import TaskCodeError, task_code, task_fault

NUM_REPEATS = 3


class CallWatch:
    """What calls must leave as it is, seen before the first of them.

    Taken on a fresh draw and fresh state: after a first call a write that stores the same
    again would no longer show.
    """

    def __init__(self, reference: Reference, inputs: Inputs) -> None:
        self._reference = reference
        self._inputs = inputs
        self._before = self._look()

    def check_pure(self) -> bool:
        """Whether inputs, parameters and buffers are as they were."""
        return self._look() == self._before

    def _look(self) -> tuple[tuple[str, ...], Fingerprint]:
        model = self._reference.model
        # Asked of the model each time: a call may have put other tensors in their place.
        state = dict(model.named_parameters()) | dict(model.named_buffers())
        return tuple(state), fingerprint((*tensors_of(self._inputs), *state.values()))


def check_repeatable(
    reference: Reference, inputs: Inputs, outputs: Leaves, seeds: Sequence[int]
) -> bool:
    """Whether further runs on `inputs` equal `outputs` in every bit under other global seeds."""
    return all(equal_bits(outputs, reference.run(inputs, seed)) for seed in seeds)


def describe_sharing(reference: Reference, outputs: Leaves, inputs: Inputs) -> str | None:
    """Return which output is memory of the inputs or the state, or None: nothing computed it."""
    given = (*tensors_of(inputs), *reference.state.tensors)
    pointers = {tensor.untyped_storage().data_ptr() for tensor in given}
    for position, leaf in enumerate(outputs):
        if leaf.untyped_storage().data_ptr() in pointers:
            return f"output {position} shares memory with an input or the state"
    return None


def describe_change(first: Leaves, second: Leaves, what: str) -> str | None:
    """Return how the structure of two draws' `what` leaves differs, or None."""
    ours, theirs = specs_of(first), specs_of(second)
    if len(ours) != len(theirs):
        return f"{len(ours)} {what} leaves for one draw, {len(theirs)} for another"
    for position, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        if one != other:
            return (
                f"{what} {position} is {one.dtype} {list(one.shape)} for one draw, "
                f"{other.dtype} {list(other.shape)} for another"
            )
    return None


def validate_draws(draws: Sequence[Inputs], stage: str) -> None:
    """Hold that draws have one structure, without which nothing can be compared.

    Raises:
        TaskCodeError: They differ.
    """
    for other in draws[1:]:
        change = describe_change(tensors_of(draws[0]), tensors_of(other), "input")
        if change is None and pytree.tree_structure(other) != pytree.tree_structure(draws[0]):
            change = "the nesting of inputs differs between draws"
        if change is not None:
            raise task_fault("stable_inputs", change, stage)


def validate_outputs(first: Leaves, second: Leaves, stage: str) -> None:
    """Hold that outputs of two draws have one structure, whatever the values drawn.

    Raises:
        TaskCodeError: They differ.
    """
    change = describe_change(first, second, "output")
    if change is not None:
        raise task_fault("executes", change, stage)


def check_stable_inputs(draws: Sequence[Inputs]) -> bool:
    """Whether draws have one structure and every floating input varies between them.

    Fixed floats belong into buffers. A task without floating inputs is judged by whether any
    tensor varies.
    """
    leaves = [tensors_of(inputs) for inputs in draws]
    if any(specs_of(other) != specs_of(leaves[0]) for other in leaves):
        return False
    floating = [i for i, leaf in enumerate(leaves[0]) if leaf.is_floating_point()]
    varies = [
        any(not equal_bits((a[i],), (b[i],)) for a, b in itertools.pairwise(leaves))
        for i in floating or range(len(leaves[0]))
    ]
    return all(varies) if floating else any(varies)


def check_mode(
    reference: Reference, inputs: Inputs, tolerances: tuple[Tolerance, ...]
) -> str | None:
    """Return what train mode does against eval mode.

    `mutates`: a call writes to the state; `differs`: its output leaves the tolerance, or it
    does not run at all; `same` otherwise. None where the model cannot be copied.
    """
    expected = reference.run(inputs)
    try:
        trained = reference.copied()
    except TaskCodeError:
        return None
    watch = CallWatch(trained, inputs)
    try:
        with task_code(reference.stage):
            trained.model.train()
        outputs = trained.run(inputs, seed=0)
    except TaskCodeError:
        return "differs"
    if not watch.check_pure():
        return "mutates"
    is_same = comparison_margin(outputs, expected, tolerances) <= 1
    return "same" if is_same else "differs"
