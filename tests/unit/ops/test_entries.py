"""Every entry against torch itself: shapes, dtypes, values, sizes, costs."""

from __future__ import annotations

import importlib

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from op_cases import Case, Runner, Spec, clipped, inputs, is_within, make_case
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from opsgen.ops import CATALOGUE, PROPS, Interval, Kind, Op, draws_within, evaluate, expression
from opsgen.ops.draws import DRAWS
from opsgen.sampler.choices import ReplayDraw

_DTYPES = {"float": torch.float32, "int64": torch.int64, "bool": torch.bool}
_CONTRACTIONS = [
    op.name
    for op in CATALOGUE.values()
    if op.kind in (Kind.CONVOLUTION, Kind.MATMUL, Kind.ATTENTION)
]
# The catalogue is wide: few examples for each entry, more under the larger profiles.
few = settings(max_examples=max(3, settings.default.max_examples // 8))
# Bounds that float32 holds exactly: at a bound some slopes are infinite.
sixteenths = st.integers(0, 16).map(lambda count: count / 16)
seeds = st.integers(min_value=0, max_value=2**32)
every_op = pytest.mark.parametrize("name", CATALOGUE)


def case_of(name: str, seed: int) -> Case:
    case = make_case(Spec(name, seed))
    assume(case is not None)
    assert case is not None
    assume(min(case.out, default=1) > 0)
    return case


def draws(case: Case, seed: int = 0) -> list[torch.Tensor]:
    return inputs(case, torch.Generator().manual_seed(seed))


@every_op
@few
@given(seed=seeds)
def test_every_spelling_gives_the_declared_shape_and_dtype(name: str, seed: int) -> None:
    case = case_of(name, seed)
    ins, attrs = case.plain()
    expected = case.op.out(ins, attrs)
    assert tuple(case.out) == expected
    assert tuple(evaluate(expression(size), case.sizes) for size in case.out) == expected
    tensors = [tensor.to("meta") for tensor in draws(case)]
    for spelling in case.op.spellings:
        runner = Runner(case, spelling, "meta")
        out = runner(*tensors)
        assert type(out) is torch.Tensor, runner.source
        assert tuple(out.shape) == expected, runner.source
        assert out.dtype == _DTYPES[case.op.out_dtype], runner.source
        params = list(runner.module.parameters()) if runner.module else []
        assert sum(param.numel() for param in params) == case.op.params(ins, attrs), runner.init


@every_op
@few
@given(seed=seeds)
def test_values_are_finite_in_range_and_equal_in_all_spellings(name: str, seed: int) -> None:
    case = case_of(name, seed)
    _, attrs = case.plain()
    tensors = draws(case, seed)
    before = [tensor.clone() for tensor in tensors]
    fixed = case.op.range
    interval = fixed if isinstance(fixed, Interval) else fixed(case.ranges(), attrs)
    first = None
    for spelling in case.op.spellings:
        runner = Runner(case, spelling)
        out = runner(*tensors)
        assert out.double().isfinite().all(), runner.source
        if case.op.out_dtype == "float":
            assert is_within(out, interval), (runner.source, out.min(), out.max(), interval)
        if first is None:
            first = out
        elif not any(True for _ in runner.module.parameters()) if runner.module else True:
            assert torch.allclose(out, first, rtol=1e-4, atol=1e-5), runner.source
    for tensor, kept in zip(tensors, before, strict=True):
        assert torch.equal(tensor, kept), f"{name} changes its input"


@pytest.mark.parametrize("name", [op.name for op in CATALOGUE.values() if op.in_dtype == "float"])
@few
@given(seed=seeds, low=sixteenths, high=sixteenths)
def test_narrower_inputs_stay_in_the_narrower_range(
    name: str, seed: int, low: float, high: float
) -> None:
    """What one op returns is narrower than the next one's domain: its image must hold too."""
    case = case_of(name, seed)
    if callable(case.op.range) and case.op.out_dtype == "float":
        whole = clipped(case.op.domain, 8.0)
        start, end = sorted(whole.low + share * (whole.high - whole.low) for share in (low, high))
        first = torch.rand(case.plain()[0][0], generator=torch.Generator().manual_seed(seed))
        out = Runner(case, case.op.spellings[0])(
            (first * (end - start) + start).clamp(start, end), *draws(case)[1:]
        )
        ranges = (Interval(start, end), *case.ranges()[1:])
        assert is_within(out, case.op.range(ranges, case.plain()[1]))


@every_op
@few
@given(seed=seeds, other=seeds)
def test_attributes_replay_on_other_sizes(name: str, seed: int, other: int) -> None:
    """Chosen attributes come back from the entry, on the same shape and wherever legal."""
    case = case_of(name, seed)
    ins, attrs = case.plain()
    assert case.op.attrs(ReplayDraw(attrs), ins[:1]) == attrs
    sizes = [2 + (other * (k + 3)) % 13 for k in range(5)]
    again = make_case(Spec(name, seed), dims=sizes)
    if again is None or len(again.ins[0]) != len(ins[0]):
        return
    replayed = case.op.attrs(ReplayDraw(attrs), again.plain()[0][:1])
    if replayed is None:
        return
    shapes = (again.plain()[0][0],)
    operands = case.op.operands(ReplayDraw(attrs), shapes, replayed)
    assert operands is not None
    moved = Case(case.op, replayed, (*shapes, *[o.shape for o in operands]), operands, {})
    assume(min(moved.out, default=1) > 0)
    out = Runner(moved, case.op.spellings[0], "meta")(*[t.to("meta") for t in draws(moved)])
    assert tuple(out.shape) == moved.out


def _bilinear_as_products(x: torch.Tensor, y: torch.Tensor, num_outs: int) -> torch.Tensor:
    rows, others = x.flatten(0, -2), y.flatten(0, -2)
    weight = torch.empty(x.shape[-1], num_outs * y.shape[-1], device="meta")
    return torch.bmm((rows @ weight).view(len(rows), num_outs, -1), others[:, :, None])


# torch's counter knows no formula for these ops; the same work as products that it counts.
_AS_PRODUCTS = {
    "addbmm": lambda out, x, y, z: torch.bmm(x, y),
    "addmv": lambda out, x, y, z: torch.mm(x, y[:, None]),
    "mv": lambda out, x, y: torch.mm(x, y[:, None]),
    "bilinear": lambda out, x, y: _bilinear_as_products(x, y, out[-1]),
}


@pytest.mark.parametrize("name", _CONTRACTIONS)
@few
@given(seed=seeds)
def test_contractions_cost_what_torch_counts(name: str, seed: int) -> None:
    case = case_of(name, seed)
    ins, attrs = case.plain()
    out = case.op.out(ins, attrs)
    tensors = [tensor.to("meta") for tensor in draws(case)]
    for spelling in case.op.spellings:
        with FlopCounterMode(display=False) as counter:
            if name in _AS_PRODUCTS:
                _AS_PRODUCTS[name](out, *tensors)
            else:
                Runner(case, spelling, "meta")(*tensors)
        assert case.op.flops(ins, attrs, out) == counter.get_total_flops()


@every_op
def test_torch_counts_nothing_of_other_ops(name: str) -> None:
    """Where torch counts, the count above holds: no op of another kind hides a product."""
    case = next(filter(None, (make_case(Spec(name, seed)) for seed in range(100))))
    tensors = [tensor.to("meta") for tensor in draws(case)]
    for spelling in case.op.spellings:
        with FlopCounterMode(display=False) as counter:
            Runner(case, spelling, "meta")(*tensors)
        assert not counter.get_total_flops() or name in _CONTRACTIONS


class _Tags(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, set[str]] = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        forbidden = {"nondeterministic_seeded", "dynamic_output_shape", "data_dependent_output"}
        tags = {tag.name for tag in func.tags} & forbidden
        if tags and "attention" not in str(func):
            self.found[str(func)] = tags
        return func(*args, **(kwargs or {}))


@every_op
def test_nothing_random_or_data_dependent_is_dispatched(name: str) -> None:
    case = next(filter(None, (make_case(Spec(name, seed)) for seed in range(100))))
    tensors = draws(case)
    for spelling in case.op.spellings:
        runner = Runner(case, spelling)
        with _Tags() as tags:
            runner(*tensors)
        assert not tags.found, runner.source


@every_op
def test_bfloat16_runs_unless_the_entry_says_otherwise(name: str) -> None:
    case = next(filter(None, (make_case(Spec(name, seed)) for seed in range(100))))
    if case.op.is_full_precision or case.op.out_dtype != "float":
        return
    tensors = [t.bfloat16() if t.is_floating_point() else t for t in draws(case)]
    for spelling in case.op.spellings:
        runner = Runner(case, spelling)
        if runner.module is not None:
            runner.module.bfloat16()
        assert runner(*tensors).dtype == torch.bfloat16, runner.source


@every_op
def test_entry_is_well_formed(name: str) -> None:
    op: Op = CATALOGUE[name]
    assert op.name == name
    assert op.props <= PROPS.keys()
    assert op.spellings
    for spelling in op.spellings:
        module, _, attribute = spelling.name.rpartition(".")
        owner = torch.Tensor if module == "torch.Tensor" else importlib.import_module(module)
        assert hasattr(owner, attribute), spelling.name
    for undone in op.undoes:
        assert undone in CATALOGUE
    case = next(filter(None, (make_case(Spec(name, seed)) for seed in range(100))))
    assert op.defaults.keys() <= case.attrs.keys()
    assert case.op.terms(*case.plain()) >= 1
    for operand in case.operands:
        assert operand.draw is None or operand.draw in DRAWS
        assert operand.dtype != "float" or draws_within(operand.domain)
    assert op.in_dtype != "float" or draws_within(op.domain)


@pytest.mark.check
@every_op
def test_compiles_without_graph_breaks(name: str) -> None:
    case = next(filter(None, (make_case(Spec(name, seed)) for seed in range(100))))
    tensors = draws(case)
    for spelling in case.op.spellings:
        runner = Runner(case, spelling)
        # The source as a function, so that the compiler sees what a task would hold.
        names = ("x", "y", "z", "w")[: len(tensors)]
        space = {"torch": torch, "F": torch.nn.functional, "module": runner.module}
        exec(f"def call({', '.join(names)}):\n    return {runner.source}", space)
        torch.compiler.reset()
        compiled = torch.compile(space["call"], fullgraph=True, backend="eager")
        assert torch.equal(compiled(*tensors), runner(*tensors)), runner.source
