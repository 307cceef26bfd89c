"""Claims about a reference that runs on one device can settle."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Sequence

from opsgen.records import Tolerance
from opsgen.verify.comparison import comparison_margin
from opsgen.verify.leaves import Inputs, Leaves, equal_bits, fingerprint, specs_of, tensors_of
from opsgen.verify.reference import Reference
from opsgen.verify.running import TaskCodeError, task_code
from opsgen.verify.seeding import seeded

NUM_REPEATS = 3


def check_repeatable(reference: Reference, inputs: Inputs, seeds: Sequence[int]) -> bool:
    """Whether runs on one input agree in every bit under different global seeds."""
    first: Leaves | None = None
    for seed in seeds:
        with seeded(seed, reference.device):
            outputs = reference.run(inputs)
        if first is None:
            first = outputs
        elif not equal_bits(first, outputs):
            return False
    return True


def check_pure(reference: Reference, inputs: Inputs) -> bool:
    """Whether a call leaves inputs, parameters and buffers as they are."""
    tensors = (*tensors_of(inputs), *reference.state.tensors)
    before = fingerprint(tensors)
    reference.run(inputs)
    return fingerprint(tensors) == before


def check_stable_inputs(draws: Sequence[Inputs]) -> bool:
    """Whether draws have one structure and a floating input varies between them.

    A task without floating inputs is judged by whether any tensor varies.
    """
    leaves = [tensors_of(inputs) for inputs in draws]
    if any(specs_of(other) != specs_of(leaves[0]) for other in leaves):
        return False
    if any(len(inputs) != len(draws[0]) for inputs in draws):
        return False
    floating = [i for i, leaf in enumerate(leaves[0]) if leaf.is_floating_point()]
    return any(
        not equal_bits((first[i],), (other[i],))
        for i in floating or range(len(leaves[0]))
        for first, other in itertools.pairwise(leaves)
    )


def check_mode(reference: Reference, inputs: Inputs, tolerances: tuple[Tolerance, ...]) -> str:
    """Return what train mode does against eval mode.

    `mutates`: a call writes to the state; `differs`: its output leaves the tolerance, or it
    does not run at all; `same` otherwise.
    """
    expected = reference.run(inputs)
    with task_code(reference.stage):
        model = copy.deepcopy(reference.model).train()
    trained = Reference(reference.module, model, reference.device)
    before = trained.state.fingerprint()
    try:
        with seeded(0, reference.device):
            outputs = trained.run(inputs)
    except TaskCodeError:
        return "differs"
    if trained.state.fingerprint() != before:
        return "mutates"
    is_same = comparison_margin(outputs, expected, tolerances) <= 1
    return "same" if is_same else "differs"
