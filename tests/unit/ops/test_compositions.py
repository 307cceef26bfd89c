"""Chains of ops joined where range meets domain: nothing overflows and no range is left."""

from __future__ import annotations

import random

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from op_cases import Case, Runner, SmallDraw, is_within

from opsgen.ops import CATALOGUE, DRAWS, Dim, Interval, Op, Operand, draws_within
from opsgen.verify.seeding import seeded

_NAMES = [name for name, op in CATALOGUE.items() if op.in_dtype == "float"]
_WIDTHS = (2, 3, 8, 12, 16)
_Drawn = tuple[torch.Tensor, Interval]


def _draw(operand: Operand, rng: random.Random) -> _Drawn:
    """Draw an input as a task would, with the range that its draw declares."""
    names = {"int64": ("index",), "bool": ("mask",)}.get(operand.dtype)
    name = operand.draw or rng.choice(names or draws_within(operand.domain))
    shape = ", ".join(str(int(size)) for size in operand.shape)
    text = DRAWS[name].source.format(shape=shape, dtype="", high=int(operand.high or 0))
    return eval(text, {"torch": torch}), DRAWS[name].range


def _reads(op: Op, value: _Drawn) -> bool:
    return value[0].dim() in op.ranks and value[1].within(op.domain)


def _apply(op: Op, value: _Drawn, rng: random.Random) -> _Drawn | None:
    draw, shape = SmallDraw(rng), tuple(value[0].shape)
    attrs = op.attrs(draw, (shape,))
    operands = None if attrs is None else op.operands(draw, (shape,), attrs)
    if attrs is None or operands is None:
        return None
    attrs = {key: int(item) if isinstance(item, Dim) else item for key, item in attrs.items()}
    more = [_draw(operand, rng) for operand in operands]
    case = Case(op, attrs, (shape, *[tuple(t.shape) for t, _ in more]), tuple(operands), {})
    if min(case.out, default=1) < 1:
        return None
    ranges = (value[1], *[interval for _, interval in more])
    interval = op.range if isinstance(op.range, Interval) else op.range(ranges, attrs)
    with torch.no_grad():
        out = Runner(case, rng.choice(op.spellings))(value[0], *[tensor for tensor, _ in more])
    return out, interval


@settings(max_examples=10 * settings.default.max_examples)
@given(seed=st.integers(min_value=0, max_value=2**32))
def test_legal_chains_stay_finite_and_in_range(seed: int) -> None:
    rng = random.Random(seed)
    op = CATALOGUE[rng.choice(_NAMES)]
    shape = tuple(rng.choice(_WIDTHS) for _ in range(rng.choice(op.ranks)))
    with seeded(seed):
        value = _draw(Operand(shape, op.domain), rng)
        for _ in range(4):
            made = _apply(op, value, rng)
            if made is not None:
                assert made[0].double().isfinite().all(), op.name
                assert is_within(made[0], made[1]) or op.out_dtype != "float", op.name
                if op.out_dtype != "float":
                    return
                value = made
            legal = [name for name in _NAMES if _reads(CATALOGUE[name], value)]
            if not legal:
                return
            op = CATALOGUE[rng.choice(legal)]
