"""What the axes of a task mean: equal sizes that hide a wrong one, and batches that mix."""

from __future__ import annotations

import itertools

import torch

from opsgen.records import Tolerance
from opsgen.source import assign_sizes, read_sizes
from opsgen.verify.comparison import comparison_margin
from opsgen.verify.leaves import Inputs, Leaves, equal_bits, map_tensors, specs_of, tensors_of
from opsgen.verify.reference import Reference, task_module
from opsgen.verify.running import TaskCodeError
from opsgen.verify.seeding import derive_seed
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
    """Whether the first element of the first axis and the others influence each other.

    The axis is that of the first output whose extent, at least two, an input has there too. In
    all inputs that have it, first one element comes from another draw, then all but this one:
    what the outputs that have it hold for the elements left alone must stay. The second shows
    mixing that a single element moves little, such as a mean over the batch. Mixing among the
    others only is not seen.

    None where inputs and outputs share no such axis, where the other draw is equal in it, and
    where the mixed inputs do not run or give outputs of other shapes.
    """
    expected = reference.run(inputs)
    extents = {_extent(tensor) for tensor in tensors_of(inputs)}
    extent = next((_extent(o) for o in expected if _extent(o) > 1 and _extent(o) in extents), None)
    if extent is None:
        return None
    results = []
    try:
        other = reference.draw(derive_seed("mixing"))
        for part in (slice(0, 1), slice(1, None)):
            mixed = _mixed_inputs(inputs, other, extent, part)
            if mixed is not None:
                results.append((part, reference.run(mixed)))
    except TaskCodeError:
        return None
    if not results or any(specs_of(actual) != specs_of(expected) for _, actual in results):
        return None
    lefts = [_unmixed(actual, expected, extent, part) for part, actual in results]
    return not all(comparison_margin(left, expected, tolerances) <= 1 for left in lefts)


def _extent(tensor: torch.Tensor) -> int:
    return tensor.shape[0] if tensor.ndim else 0


def _mixed_inputs(inputs: Inputs, other: Inputs, extent: int, part: slice) -> Inputs | None:
    """Return `inputs` with a part of the axis from `other`; None where that changes nothing."""
    ours, theirs = tensors_of(inputs), tensors_of(other)
    if specs_of(ours) != specs_of(theirs):
        return None
    mixed = tuple(
        _patched(a, b, part) if _extent(a) == extent else a
        for a, b in zip(ours, theirs, strict=True)
    )
    leaves = iter(mixed)
    return None if equal_bits(mixed, ours) else map_tensors(lambda _: next(leaves), inputs)


def _unmixed(actual: Leaves, expected: Leaves, extent: int, part: slice) -> Leaves:
    """Return `actual` with all that may have changed from `expected`: the part, other axes."""
    return tuple(
        _patched(a, e, part) if _extent(e) == extent else e
        for a, e in zip(actual, expected, strict=True)
    )


def _patched(ours: torch.Tensor, theirs: torch.Tensor, part: slice) -> torch.Tensor:
    patched = ours.clone()
    patched[part] = theirs[part]
    return patched
