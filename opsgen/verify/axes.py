"""What the axes of a task mean: equal sizes that hide a wrong one, and batches that mix."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import torch

from opsgen.records import Tolerance
from opsgen.source import assign_sizes, read_sizes
from opsgen.verify.comparison import comparison_margin
from opsgen.verify.leaves import Inputs, map_tensors, tensors_of
from opsgen.verify.reference import Reference, task_module
from opsgen.verify.running import TaskCodeError
from opsgen.verify.work import outline

MAX_PAIRS = 12
"""Pairs of equal sizes that are tried; a task with more is left alone."""


def check_axes(code: str) -> tuple[str, ...]:
    """Return the module-level sizes without whose equality to another one the code fails.

    Of each pair of equal sizes one is made larger by one and the code run on `meta`. Where
    both have to be equal for the code to run at all, a wrong axis would not show.
    """
    sizes = {name: value for name, value in read_sizes(code).items() if value > 1}
    pairs = [(a, b) for a, b in itertools.combinations(sizes, 2) if sizes[a] == sizes[b]]
    if len(pairs) > MAX_PAIRS:
        return ()
    names = dict.fromkeys(name for pair in pairs for name in pair)
    return tuple(name for name in names if not _runs(code, name, sizes[name] + 1))


def _runs(code: str, name: str, value: int) -> bool:
    try:
        with task_module(assign_sizes(code, {name: value})) as module:
            outline(module, count_flops=False)
    except (TaskCodeError, ValueError):  # a size that is assigned more than once cannot be set
        return False
    return True


def check_mixing(
    reference: Reference, inputs: Inputs, tolerances: tuple[Tolerance, ...]
) -> bool | None:
    """Whether swapping two elements of the first axis does more than swap those of the outputs.

    None where inputs and outputs share no first axis of at least two elements, and where the
    swapped inputs do not run.
    """
    outputs = reference.run(inputs)
    leaves = (*tensors_of(inputs), *outputs)
    extents = {leaf.shape[0] if leaf.ndim else 0 for leaf in leaves}
    if len(extents) != 1 or not leaves or (extent := extents.pop()) < 2:
        return None
    order = [extent - 1, *range(1, extent - 1), 0]
    try:
        swapped = reference.run(map_tensors(lambda tensor: _taken(tensor, order), inputs))
    except TaskCodeError:
        return None
    expected = tuple(_taken(leaf, order) for leaf in outputs)
    return not comparison_margin(swapped, expected, tolerances) <= 1


def _taken(tensor: torch.Tensor, order: Iterable[int]) -> torch.Tensor:
    return tensor[torch.tensor([*order], device=tensor.device)]
