"""The catalogue against OpInfo, the database that torch tests its own operators with.

An entry is covered if one of its names has an OpInfo entry and some of that
entry's own sample inputs can be written with it. There the spelling must give
what OpInfo's call gives, and the shape rule its shape. Entries without
attributes have nothing to choose: they must agree on every sample whose shapes
they take. For the others, attributes are drawn until one call is the sample's.
Where torch's own counter counts floating-point operations of OpInfo's call, the
entry's closed form must count as many.
"""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from itertools import islice

import pytest
import torch
from op_cases import Case, Runner, SmallDraw, Spec, inputs, make_case
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode

from opsgen.ops import CATALOGUE, Dim, Kind, Op, Spelling
from opsgen.ops.counting import reachable_ops
from opsgen.ops.entry import no_attrs

_NUM_SAMPLES = 8  # of each rank
_NUM_DRAWS = 24
_NUM_AGREEING = 6  # samples, which is enough
_NUM_NAMED = 311  # entries that OpInfo has, by one of their names
_NUM_COVERED = 221  # of these, by samples that can be written with them
_NUM_COUNTED = 9  # of these, with samples of which torch counts the operations
_NUM_REACHING = 290  # entries whose call is the function object that OpInfo tests
_SLOTS = re.compile(r"\{([xyzw])\}")
_DTYPES = {"float": torch.float32, "int64": torch.int64, "bool": torch.bool}

Tensors = tuple[torch.Tensor, ...]


@cache
def infos() -> dict[str, list]:
    from torch.testing._internal.common_methods_invocations import op_db

    found: dict[str, list] = defaultdict(list)
    for info in op_db:
        for name in (info.name, *[alias.name for alias in info.aliases]):
            found[f"torch.{name}"].append(info)
    return found


def infos_of(op: Op) -> Iterator[tuple[Spelling, object]]:
    for spelling in op.spellings:
        name = spelling.name.replace("torch.Tensor.", "torch.")
        for info in infos().get(name, ()):
            if info.supports_dtype(torch.float32, "cpu"):
                yield spelling, info


def samples_of(info: object) -> list:
    """The first samples of each rank, so that all ranks get a turn."""
    by_rank: dict[int, list] = defaultdict(list)
    for sample in islice(info.sample_inputs("cpu", torch.float32), 60):
        tensors = tensors_of(sample)
        if tensors and len(by_rank[tensors[0].dim()]) < _NUM_SAMPLES:
            by_rank[tensors[0].dim()].append(sample)
    return [sample for samples in by_rank.values() for sample in samples]


def tensors_of(sample: object) -> Tensors:
    parts = sample.input if isinstance(sample.input, list | tuple) else [sample.input]
    more = [*sample.args, *sample.kwargs.values()]
    return tuple(part for part in (*parts, *more) if isinstance(part, torch.Tensor))


def orders_of(spelling: Spelling, tensors: Tensors) -> Iterator[Tensors]:
    """The tensors by the entry's own order: as the call writes them, or as they stand."""
    slots = list(dict.fromkeys(_SLOTS.findall(spelling.call)))
    if len(slots) == len(tensors) and set(slots) == set("xyzw"[: len(tensors)]):
        yield tuple(tensors[slots.index(slot)] for slot in "xyzw"[: len(tensors)])
    yield tensors


def application(op: Op, tensors: Tensors, rng: random.Random) -> Case | None:
    """Apply an op with some attributes to the shapes of these tensors, if it can be."""
    first = tensors[0]
    if first.dim() not in op.ranks or first.dtype != _DTYPES[op.in_dtype]:
        return None
    shape = tuple(first.shape)
    draw = _TakenFrom(rng, sorted({size for tensor in tensors for size in tensor.shape}))
    attrs = op.attrs(draw, (shape,)) if min(shape, default=1) > 0 else None
    operands = None if attrs is None else op.operands(draw, (shape,), attrs)
    if attrs is None or operands is None:
        return None
    wanted = [(tuple(map(int, operand.shape)), _DTYPES[operand.dtype]) for operand in operands]
    if wanted != [(tuple(tensor.shape), tensor.dtype) for tensor in tensors[1:]]:
        return None
    plain = {key: int(v) if isinstance(v, Dim) else v for key, v in attrs.items()}
    return Case(op, plain, tuple(tuple(tensor.shape) for tensor in tensors), operands, {})


class _TakenFrom(SmallDraw):
    """Draws new sizes among those that the sample has."""

    def __init__(self, rng: random.Random, sizes: list[int]) -> None:
        super().__init__(rng)
        self._choices = sizes

    def size(self, name: str, choices: object, multiple_of: int = 1) -> dict | None:
        legal = [size for size in self._choices if size and size % multiple_of == 0]
        return {name: self.name_size(name, self.rng.choice(legal))} if legal else None


def may_agree(case: Case, theirs: object) -> bool:
    return isinstance(theirs, torch.Tensor) and tuple(theirs.shape) == case.out


def agrees(ours: torch.Tensor, theirs: object) -> bool:
    return (
        isinstance(theirs, torch.Tensor)
        and (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        and torch.allclose(ours.double(), theirs.double(), rtol=1e-5, atol=1e-6, equal_nan=True)
    )


def matches(op: Op, spelling: Spelling, info: object, sample: object) -> tuple[list[bool], int]:
    """Whether each application that the sample allows gives what OpInfo's call gives.

    And how many operations torch counted of that call.
    """
    rng = random.Random(0)
    found = []
    counter = FlopCounterMode(display=False)
    with counter:
        theirs = info.op(sample.input, *sample.args, **sample.kwargs)
    counted = counter.get_total_flops()
    if isinstance(theirs, tuple | list):
        theirs = theirs[0]
    given = tensors_of(sample)
    if op.kind is Kind.POINTWISE and len(given) == given[0].dim() == 1:
        # Most samples of functions of one element have one dim, which entries do not take.
        given, theirs = (given[0][None],), theirs[None]
    for tensors in orders_of(spelling, given):
        for _ in range(1 if op.attrs is no_attrs else _NUM_DRAWS):
            case = application(op, tensors, rng)
            if case is None or not may_agree(case, theirs):
                found += [False] * (case is not None)
                continue
            out = Runner(case, spelling)(*tensors)
            assert tuple(out.shape) == case.out
            found.append(agrees(out, theirs))
            if found[-1]:
                assert counted in (0, op.flops(case.ins, case.attrs, case.out)), case
                return found, counted
    return found, 0


@cache
def coverage(name: str) -> tuple[int, int, int]:
    """How many samples an entry agrees with, and on how many it has nothing to choose and fails.

    And of how many of the first torch counted the operations, which agree too.
    """
    op = CATALOGUE[name]
    num_agreeing = num_wrong = num_counted = 0
    for spelling, info in infos_of(op):
        if spelling.init is not None:  # a module of the same name is never OpInfo's call
            continue
        for sample in samples_of(info):
            # Some kwargs are no tensors: without attributes such a sample is another call.
            is_plain = all(isinstance(p, torch.Tensor) for p in sample.args) and not sample.kwargs
            found, counted = matches(op, spelling, info, sample)
            num_agreeing += any(found)
            num_counted += counted > 0
            if num_agreeing >= _NUM_AGREEING:
                return num_agreeing, num_wrong, num_counted
            num_wrong += bool(found) and is_plain and op.attrs is no_attrs and not any(found)
    return num_agreeing, num_wrong, num_counted


@pytest.mark.check
def test_entries_agree_with_opinfo_on_its_own_samples() -> None:
    named = [op.name for op in reachable_ops() if any(True for _ in infos_of(op))]
    results = {name: coverage(name) for name in named}
    wrong = {name: found for name, found in results.items() if found[1]}
    assert not wrong
    covered = {name for name, (num_agreeing, _, _) in results.items() if num_agreeing}
    counted = {name for name, (_, _, num_counted) in results.items() if num_counted}
    assert len(named) >= _NUM_NAMED
    assert len(covered) >= _NUM_COVERED
    assert len(counted) >= _NUM_COUNTED, sorted(counted)


class _Calls(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.functions: set[object] = set()

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.functions.add(func)
        return func(*args, **(kwargs or {}))


# OpInfo calls these through a lambda of its own, which reorders their arguments.
_WRAPPED = {
    "torch.einsum",
    "torch.nn.functional.embedding",
    "torch.nn.functional.embedding_bag",
    "torch.nn.functional.scaled_dot_product_attention",
    "torch.polygamma",
    "torch.special.polygamma",
    "torch.where",
}


@pytest.mark.check
def test_names_reach_the_very_function_that_opinfo_tests() -> None:
    reached = missed = 0
    for op in reachable_ops():
        pairs = [
            (spelling, info)
            for spelling, info in infos_of(op)
            if spelling.init is None and "Tensor" not in spelling.name
            # Operators: `x @ y` calls the method of the tensor.
            if spelling.call.startswith(("torch.", "F.")) and spelling.name not in _WRAPPED
        ]
        if not pairs:
            continue
        case = next(filter(None, (make_case(Spec(op.name, seed)) for seed in range(100))))
        tensors = inputs(case, torch.Generator().manual_seed(0))
        found = False
        for spelling, info in pairs:
            with _Calls() as calls:
                Runner(case, spelling)(*tensors)
            found |= not calls.functions.isdisjoint({info.op, *[a.op for a in info.aliases]})
        reached, missed = reached + found, missed + (not found)
    assert missed == 0
    assert reached >= _NUM_REACHING
