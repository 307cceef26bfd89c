"""Lazy answers: what a candidate could return without doing the work."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from opsgen.records import LazyAnswer, Tolerance
from opsgen.verify.comparison import divided_error, element_scale, kth_largest, over_tolerance
from opsgen.verify.leaves import Inputs, Leaves, is_exact, map_tensors, real_view, tensors_of
from opsgen.verify.reference import Reference
from opsgen.verify.running import TaskCodeError

FAILING_SHARE = 0.05
_MAX_SAMPLE = 1 << 20
_LOOSE = 1e-2


def judge_answers(
    outputs: Leaves, tolerances: tuple[Tolerance, ...], answers: Iterable[tuple[str, Leaves]]
) -> tuple[LazyAnswer, ...]:
    """Return how well each named answer does against `outputs`.

    A margin is the largest multiple of the tolerance at which 5 % of a leaf's elements, and at
    least one, still fail; the largest over leaves, since one failing leaf fails the answer. An
    exact leaf counts as infinite when 5 % of its elements differ, as 0 otherwise. Leaves of
    more than 2**20 elements are judged on that many positions drawn with a fixed seed, except
    that an answer only passes at 1e-2 when all elements do.
    """
    judges = [
        LeafJudge.of(real_view(leaf), tolerance.value)
        for leaf, tolerance in zip(outputs, tolerances, strict=True)
    ]
    return tuple(_judge(name, judges, leaves) for name, leaves in answers)


def lazy_answers(
    reference: Reference, inputs: Inputs, outputs: Leaves, other: Leaves, seeds: tuple[int, int]
) -> Iterator[tuple[str, Leaves]]:
    """Yield every lazy answer to `inputs` by name.

    Constants and means are taken from the output of another draw, as an answer that never
    looks at its input must. An answer that cannot be formed is left out.

    Args:
        reference: The task, at the state of the first seed.
        inputs: What the answers pretend to have computed on.
        outputs: The true outputs, for their shapes.
        other: Outputs for another draw.
        seeds: Seed of the present state, which is restored, and of another one.
    """
    yield from still_answers(inputs, outputs, other)
    yield from mean_answer(reference, inputs)
    if reference.state.names:
        reference.state.redraw(seeds[1])
        answer = reference.run(inputs)
        reference.state.redraw(seeds[0])
        yield "other_weights", answer


def still_answers(inputs: Inputs, outputs: Leaves, other: Leaves) -> Iterator[tuple[str, Leaves]]:
    """Yield the lazy answers that need no run of their own; see `lazy_answers`."""
    yield "zeros", tuple(torch.zeros_like(leaf) for leaf in outputs)
    yield "constant", tuple(_constant(leaf).expand(leaf.shape) for leaf in other)
    for axis in range(max(leaf.ndim for leaf in outputs)):
        if any(axis < leaf.ndim and leaf.shape[axis] > 1 for leaf in outputs):
            yield f"axis_mean_{axis}", tuple(_axis_mean(leaf, axis) for leaf in other)
    yield "replay", other
    yield from _copies(inputs, other)


def mean_answer(reference: Reference, inputs: Inputs) -> Iterator[tuple[str, Leaves]]:
    """Yield what comes of the inputs' means; nothing where they are outside the task's domain."""
    with contextlib.suppress(TaskCodeError):
        yield "mean_inputs", reference.run(map_tensors(_mean_of, inputs))


def _copies(inputs: Inputs, other: Leaves) -> Iterator[tuple[str, Leaves]]:
    for position, tensor in enumerate(tensors_of(inputs)):
        fits = [tensor.numel() == leaf.numel() for leaf in other]
        if any(fits):
            yield (
                f"input_{position}",
                tuple(
                    _as_type(tensor.reshape(leaf.shape), leaf.dtype) if fit else leaf
                    for leaf, fit in zip(other, fits, strict=True)
                ),
            )


def _as_type(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    # torch warns of a lost imaginary part.
    real = tensor.real if tensor.is_complex() and not dtype.is_complex else tensor
    return real.to(dtype)


@dataclass(frozen=True, slots=True)
class LeafJudge:
    """One true leaf, its scale and the positions it is judged on; see `judge_answers`."""

    leaf: Tensor
    where: tuple[Tensor, ...] | None
    values: Tensor
    scale: Tensor
    tolerance: float

    @classmethod
    def of(cls, leaf: Tensor, tolerance: float) -> LeafJudge:
        """Return the judge of a real leaf."""
        where = None
        if leaf.numel() > _MAX_SAMPLE:
            # On the leaf's device: a CPU takes 5 ms for it, in which a GPU would be held.
            generator = torch.Generator(leaf.device).manual_seed(leaf.numel())
            flat = torch.randint(
                leaf.numel(), (_MAX_SAMPLE,), generator=generator, device=leaf.device
            )
            where = torch.unravel_index(flat, leaf.shape)
        scale = torch.ones((), device=leaf.device)
        if not is_exact(leaf):
            scale = element_scale(leaf)
            if where is not None and scale.ndim:
                scale = scale.expand(leaf.shape)[where]
        return cls(leaf, where, _at(leaf, where), scale, tolerance)

    def margin(self, answer: Tensor) -> float:
        """Return the largest multiple of the tolerance at which 5 % of the elements fail."""
        actual = _at(answer, self.where)
        if self.values.numel() == 0:
            return 0.0
        if is_exact(self.leaf):
            share = self.count_wrong(answer) / self.values.numel()
            return math.inf if share >= FAILING_SHARE else 0.0
        errors = divided_error(actual, self.values, self.scale)
        num_failing = max(1, math.ceil(FAILING_SHARE * errors.numel()))
        return over_tolerance(kth_largest(errors, num_failing), self.tolerance)

    def count_wrong(self, answer: Tensor) -> int:
        """Return how many elements differ at all."""
        return int((_at(answer, self.where) != self.values).sum())

    def passes(self, answer: Tensor) -> bool:
        """Whether every element is within 1e-2, absolute plus relative."""
        if not _is_close(_at(answer, self.where), self.values):
            return False
        return self.where is None or _is_close(answer, self.leaf)


def _judge(name: str, judges: list[LeafJudge], leaves: Leaves) -> LazyAnswer:
    if [real_view(leaf).shape for leaf in leaves] != [judge.leaf.shape for judge in judges]:
        return LazyAnswer(name=name, margin=math.inf, passes_1e_2=False)
    pairs = [(j, real_view(leaf)) for j, leaf in zip(judges, leaves, strict=True)]
    return LazyAnswer(
        name=name,
        margin=max(judge.margin(leaf) for judge, leaf in pairs),
        passes_1e_2=all(judge.passes(leaf) for judge, leaf in pairs),
    )


def _is_close(actual: Tensor, expected: Tensor) -> bool:
    return torch.allclose(_numeric(actual), _numeric(expected), rtol=_LOOSE, atol=_LOOSE)


def _numeric(tensor: Tensor) -> Tensor:
    return tensor.double() if is_exact(tensor) else tensor


def _at(tensor: Tensor, where: tuple[Tensor, ...] | None) -> Tensor:
    return tensor if where is None else tensor[where]


def _constant(leaf: Tensor) -> Tensor:
    if not is_exact(leaf):
        return leaf.mean()
    sample = leaf.flatten()[:: max(1, leaf.numel() // _MAX_SAMPLE)]
    return sample.to(torch.int64).mode().values.to(leaf.dtype)


def _axis_mean(leaf: Tensor, axis: int) -> Tensor:
    if is_exact(leaf) or axis >= leaf.ndim:
        return _constant(leaf).expand(leaf.shape)
    return leaf.mean(axis, keepdim=True).expand(leaf.shape)


def _mean_of(tensor: Tensor) -> Tensor:
    if not tensor.numel():
        return tensor
    # A rounded mean lies between smallest and largest: as legal an index as any that was drawn.
    if is_exact(tensor):
        mean = tensor.double().mean().round()
    elif tensor.is_complex() or tensor.itemsize > 2:
        mean = tensor.mean()
    else:  # not every short type can sum
        mean = tensor.float().mean()
    return mean.to(tensor.dtype).expand(tensor.shape).clone()
