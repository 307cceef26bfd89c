"""Declared properties, on data: the triviality algebra rests on them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from op_cases import Case, Runner, Spec, clipped, inputs, make_case

from opsgen.ops import CATALOGUE, PROPS, Interval
from opsgen.sampler.choices import ReplayDraw

few = settings(max_examples=max(3, settings.default.max_examples // 8))
seeds = st.integers(min_value=0, max_value=2**32)


@dataclass
class Subject:
    """An op in one application, as a function of its first input."""

    case: Case
    tensors: list[torch.Tensor]
    generator: torch.Generator
    runner: Runner

    def __call__(self, first: torch.Tensor) -> torch.Tensor:
        return self.runner(first, *self.tensors[1:])

    @property
    def x(self) -> torch.Tensor:
        return self.tensors[0]

    @property
    def folds(self) -> tuple[int, ...]:
        return self.case.op.folds(*self.case.plain())

    def constant(self, low: float, high: float) -> torch.Tensor:
        """Random values that are constant along the folded dims."""
        shape = [1 if dim in self.folds else size for dim, size in enumerate(self.x.shape)]
        return torch.rand(shape, generator=self.generator) * (high - low) + low


def subject(name: str, seed: int, bound: float = 3.0) -> Subject:
    case = make_case(Spec(name, seed))
    assume(case is not None)
    assert case is not None
    assume(min(case.out, default=1) > 0)
    generator = torch.Generator().manual_seed(seed)
    tensors = inputs(case, generator, bound)
    return Subject(case, tensors, generator, Runner(case, case.op.spellings[0]))


def same(left: torch.Tensor, right: torch.Tensor, slack: float = 1e-4) -> bool:
    return torch.allclose(left.double(), right.double(), rtol=slack, atol=slack)


def _idempotent(f: Subject) -> bool:
    once = f(f.x)
    return same(f(once), once)


def _involution(f: Subject) -> bool:
    return torch.equal(f(f(f.x)), f.x) or same(f(f(f.x)), f.x)


def _increasing(f: Subject) -> bool:
    domain = clipped(f.case.op.domain, 3.0)
    step = 0.05 * (domain.high - domain.low)
    lower = domain.low + (f.x - domain.low) * 0.9
    return bool((f(lower + step) > f(lower)).all())


def _odd(f: Subject) -> bool:
    return same(f(-f.x), -f(f.x))


def _even(f: Subject) -> bool:
    return same(f(-f.x), f(f.x))


def _shift(f: Subject) -> bool:
    added = f(f.x) - f.x
    return same(added, added.flatten()[0])


def _scale(f: Subject) -> bool:
    ones = f(torch.ones_like(f.x))
    return bool((ones > 0).all()) and same(f(f.x), f.x * ones.flatten()[0])


def _shift_invariant(f: Subject) -> bool:
    return same(f(f.x + f.constant(-1.0, 1.0)), f(f.x), 1e-3)


def _scale_invariant(f: Subject) -> bool:
    # Where values are large, so that the epsilon of a norm does not show.
    x = f.x * 1e4
    return same(f(x * f.constant(0.5, 2.0)), f(x), 1e-3)


def _order_only(f: Subject) -> bool:
    return torch.equal(f(f.x**3 + f.x), f(f.x))


def _ranks(x: torch.Tensor, dim: int) -> torch.Tensor:
    return x.argsort(dim=dim, stable=True)


def _keeps_order(f: Subject) -> bool:
    out = f(f.x)
    return out.shape == f.x.shape and all(
        bool((out.gather(dim, _ranks(f.x, dim)).diff(dim=dim) >= -1e-7).all()) for dim in f.folds
    )


def _shuffled(f: Subject) -> torch.Tensor:
    x = f.x
    for dim in f.folds:
        x = x.index_select(dim, torch.randperm(x.shape[dim], generator=f.generator))
    return x


def _symmetric(f: Subject) -> bool:
    return same(f(_shuffled(f)), f(f.x))


def _rows(f: Subject, x: torch.Tensor) -> torch.Tensor:
    """The folded dims as one last dim."""
    kept = [dim for dim in range(x.dim()) if dim not in f.folds]
    return x.permute(*kept, *f.folds).flatten(len(kept))


def _permutes(f: Subject) -> bool:
    return torch.equal(_rows(f, f(f.x)).sort(-1)[0], _rows(f, f.x).sort(-1)[0])


def _sums_to_one(f: Subject) -> bool:
    return same(_rows(f, f(f.x)).sum(-1), torch.tensor(1.0))


def _zero_mean(f: Subject) -> bool:
    return same(_rows(f, f(f.x)).mean(-1), torch.tensor(0.0), 1e-3)


def _unit_variance(f: Subject) -> bool:
    rows = _rows(f, f(f.x * 1000.0))
    return same(rows.var(-1, correction=0), torch.tensor(1.0), 1e-2)


def _unit_norm(f: Subject) -> bool:
    rows = _rows(f, f(f.x * 1000.0))
    norms = torch.linalg.vector_norm(rows, ord=f.case.attrs.get("p", 2), dim=-1)
    return same(norms, norms.flatten()[0], 1e-3)


def _commutative(f: Subject) -> bool:
    x, y = f.tensors
    return same(f.runner(x, y), f.runner(y, x))


_CHECKS: dict[str, Callable[[Subject], bool]] = {
    "idempotent": _idempotent,
    "involution": _involution,
    "increasing": _increasing,
    "odd": _odd,
    "even": _even,
    "shift": _shift,
    "scale": _scale,
    "shift_invariant": _shift_invariant,
    "scale_invariant": _scale_invariant,
    "order_only": _order_only,
    "keeps_order": _keeps_order,
    "symmetric": _symmetric,
    "permutes": _permutes,
    "sums_to_one": _sums_to_one,
    "zero_mean": _zero_mean,
    "unit_variance": _unit_variance,
    "unit_norm": _unit_norm,
    "commutative": _commutative,
}
_DECLARED = [(op.name, prop) for op in CATALOGUE.values() for prop in sorted(op.props - {"jumps"})]
_CONTINUOUS = [
    op.name
    for op in CATALOGUE.values()
    if op.in_dtype == op.out_dtype == "float" and "jumps" not in op.props
]


def test_every_property_has_a_check() -> None:
    assert _CHECKS.keys() | {"jumps"} == PROPS.keys()


@pytest.mark.parametrize(("name", "prop"), _DECLARED)
@few
@given(seed=seeds)
def test_declared_property_holds(name: str, prop: str, seed: int) -> None:
    assert _CHECKS[prop](subject(name, seed))


@pytest.mark.parametrize("name", _CONTINUOUS)
@few
@given(seed=seeds)
def test_ops_that_do_not_jump_are_continuous(name: str, seed: int) -> None:
    f = subject(name, seed)
    domain = clipped(f.case.op.domain, 3.0)
    nudge = torch.rand(f.x.shape, generator=f.generator) * 2e-6 - 1e-6
    nudged = (f.x + nudge).clamp(domain.low, domain.high)
    out = f(f.x)
    scale = max(1.0, out.abs().max().item())
    assert (f(nudged) - out).abs().max().item() < 1e-3 * scale


def _values_in(interval: Interval, shape: torch.Size, generator: torch.Generator) -> torch.Tensor:
    part = clipped(interval, 9.0)
    return torch.rand(shape, generator=generator) * (part.high - part.low) + part.low


@pytest.mark.parametrize("name", [op.name for op in CATALOGUE.values() if op.fixes])
@few
@given(seed=seeds)
def test_fixed_values_come_back(name: str, seed: int) -> None:
    f = subject(name, seed)
    fixes = f.case.op.fixes
    interval = fixes(f.case.attrs) if callable(fixes) else fixes
    assert interval is not None
    x = _values_in(interval, f.x.shape, f.generator)
    assert torch.allclose(f(x), x, rtol=1e-6, atol=0.0)


@pytest.mark.parametrize("name", [op.name for op in CATALOGUE.values() if op.flattens])
@few
@given(seed=seeds)
def test_flattened_values_become_one(name: str, seed: int) -> None:
    f = subject(name, seed)
    for interval in f.case.op.flattens:
        out = f(_values_in(interval, f.x.shape, f.generator))
        assert math.isclose(out.min().item(), out.max().item())


_UNDONE = [(op.name, first) for op in CATALOGUE.values() for first in op.undoes]


@pytest.mark.parametrize(("name", "first"), _UNDONE)
@few
@given(seed=seeds)
def test_an_op_undoes_what_it_says(name: str, first: str, seed: int) -> None:
    f = subject(first, seed)
    made = f(f.x)
    shape = (tuple(made.shape),)
    attrs = CATALOGUE[name].attrs(ReplayDraw(f.case.attrs), shape)
    assert attrs is not None
    back = Case(CATALOGUE[name], attrs, shape, (), {})
    assert same(Runner(back, back.op.spellings[0])(made), f.x, 1e-3)
