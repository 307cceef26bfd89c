"""Lazy answers: what a candidate could return without doing the work."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Iterable, Iterator, Sequence
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
_FADED = 1e-3
Tolerances = tuple[Tolerance, ...]


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
        _LeafJudge.of(real_view(leaf), tolerance.value)
        for leaf, tolerance in zip(outputs, tolerances, strict=True)
    ]
    return tuple(_judge(name, judges, leaves) for name, leaves in answers)


def pooled_answers(
    reference: Reference, draws: Sequence[Inputs], seeds: Sequence[int], tolerances: Tolerances
) -> tuple[LazyAnswer, ...]:
    """Return how well each lazy answer does over pairs of draws and over weight seeds.

    An answer's margin is the least over weight seeds, since a task that is degenerate for one
    of them is, of the largest over pairs of draws, since a short output can be near by accident.
    Exact leaves are judged on the elements of all pairs together. It passes at 1e-2 if it does
    for every pair of some weight seed. `faded` is the replay at no less than a thousandth of
    the scale: what inputs hardly move. The state of the first seed is restored.

    Args:
        reference: The task.
        draws: At least two; each is answered from the one before it.
        seeds: Weight seeds; the first alone counts where there is no state.
        tolerances: The task's own.
    """
    chosen = seeds if reference.state.names else seeds[:1]
    found: dict[str, list[_Pool]] = {}
    for number, seed in enumerate(chosen):
        reference.state.redraw(seed)
        outputs = [reference.run(inputs) for inputs in draws]
        others = (seed, seeds[(number + 1) % len(seeds)])
        pools: dict[str, _Pool] = {}
        for place in range(1, len(draws)):
            ours, theirs = outputs[place], outputs[place - 1]
            judges = [
                _LeafJudge.of(real_view(leaf), tolerance.value)
                for leaf, tolerance in zip(ours, tolerances, strict=True)
            ]
            for name, leaves in lazy_answers(reference, draws[place], ours, theirs, others):
                pools.setdefault(name, _Pool(len(ours))).add(judges, leaves)
            faded = [dataclasses.replace(j, tolerance=max(j.tolerance, _FADED)) for j in judges]
            pools.setdefault("faded", _Pool(len(ours))).add(faded, theirs)
        for name, pool in pools.items():
            found.setdefault(name, []).append(pool)
    reference.state.redraw(seeds[0])
    return tuple(
        LazyAnswer(
            name=name,
            margin=min(pool.margin for pool in pools),
            passes_1e_2=name != "faded" and any(pool.passes for pool in pools),
        )
        for name, pools in found.items()
    )


class _Pool:
    """One answer at one weight seed, over pairs of draws."""

    def __init__(self, num_leaves: int) -> None:
        self._floating = 0.0
        self._wrong = [0] * num_leaves
        self._all = [0] * num_leaves
        self.passes = True

    def add(self, judges: list[_LeafJudge], leaves: Leaves) -> None:
        pairs = [(j, real_view(leaf)) for j, leaf in zip(judges, leaves, strict=True)]
        if any(judge.leaf.shape != leaf.shape for judge, leaf in pairs):
            self._floating, self.passes = math.inf, False
            return
        for place, (judge, leaf) in enumerate(pairs):
            if is_exact(judge.leaf):
                self._wrong[place] += judge.count_wrong(leaf)
                self._all[place] += judge.values.numel()
            else:
                self._floating = max(self._floating, judge.margin(leaf))
        self.passes = self.passes and all(judge.passes(leaf) for judge, leaf in pairs)

    @property
    def margin(self) -> float:
        shares = (wrong / max(1, all_) for wrong, all_ in zip(self._wrong, self._all, strict=True))
        return math.inf if any(share >= FAILING_SHARE for share in shares) else self._floating


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
    yield "zeros", tuple(torch.zeros_like(leaf) for leaf in outputs)
    yield "constant", tuple(_constant(leaf).expand(leaf.shape) for leaf in other)
    for axis in range(max(leaf.ndim for leaf in outputs)):
        if any(axis < leaf.ndim and leaf.shape[axis] > 1 for leaf in outputs):
            yield f"axis_mean_{axis}", tuple(_axis_mean(leaf, axis) for leaf in other)
    yield "replay", other
    yield from _copies(inputs, other)
    yield from _runs(reference, inputs, seeds)


def _runs(
    reference: Reference, inputs: Inputs, seeds: tuple[int, int]
) -> Iterator[tuple[str, Leaves]]:
    # A constant input may be outside the task's domain: then there is no such answer.
    with contextlib.suppress(TaskCodeError):
        yield "mean_inputs", reference.run(map_tensors(_mean_of, inputs))
    if reference.state.names:
        reference.state.redraw(seeds[1])
        answer = reference.run(inputs)
        reference.state.redraw(seeds[0])
        yield "other_weights", answer


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
class _LeafJudge:
    """One true leaf, its scale and the positions it is judged on."""

    leaf: Tensor
    where: tuple[Tensor, ...] | None
    values: Tensor
    scale: Tensor
    tolerance: float

    @classmethod
    def of(cls, leaf: Tensor, tolerance: float) -> _LeafJudge:
        where = None
        if leaf.numel() > _MAX_SAMPLE:
            generator = torch.Generator().manual_seed(leaf.numel())
            flat = torch.randint(leaf.numel(), (_MAX_SAMPLE,), generator=generator)
            where = torch.unravel_index(flat.to(leaf.device), leaf.shape)
        scale = torch.ones((), device=leaf.device)
        if not is_exact(leaf):
            scale = element_scale(leaf)
            if where is not None and scale.ndim:
                scale = scale.expand(leaf.shape)[where]
        return cls(leaf, where, _at(leaf, where), scale, tolerance)

    def margin(self, answer: Tensor) -> float:
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
        return int((_at(answer, self.where) != self.values).sum())

    def passes(self, answer: Tensor) -> bool:
        if not _is_close(_at(answer, self.where), self.values):
            return False
        return self.where is None or _is_close(answer, self.leaf)


def _judge(name: str, judges: list[_LeafJudge], leaves: Leaves) -> LazyAnswer:
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
