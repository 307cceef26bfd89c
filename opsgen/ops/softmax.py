"""Exponentials normalised along a dim."""

from __future__ import annotations

from typing import Any

from opsgen.ops.entry import Attrs, Draw, Kind, Op, Shapes, spell
from opsgen.ops.intervals import NONPOSITIVE, UNIT
from opsgen.ops.reduction import folded_terms, input_flops, single_dims


def _along(draw: Draw, ins: Shapes) -> Attrs | None:
    return draw.pick(dim=single_dims(ins[0]))


def _softmax(name: str, module: str, *calls: str, **fields: Any) -> Op:
    spellings = (
        spell("{self}({x})", f"nn.{module}(dim={{dim}})"),
        *[spell(call) for call in calls],
    )
    return Op(
        name,
        Kind.SOFTMAX,
        spellings,
        ranks=(2, 3, 4, 5),
        attrs=_along,
        terms=folded_terms,
        flops=lambda ins, attrs, out: 5 * input_flops(ins, attrs, out),
        passes=2.0,
        **fields,
    )


OPS = (
    _softmax(
        "softmax",
        "Softmax",
        "F.softmax({x}, dim={dim})",
        "torch.softmax({x}, dim={dim})",
        "{x}.softmax(dim={dim})",
        "torch.special.softmax({x}, dim={dim})",
        range=UNIT,
        props=frozenset({"shift_invariant", "sums_to_one", "keeps_order"}),
    ),
    _softmax(
        "log_softmax",
        "LogSoftmax",
        "F.log_softmax({x}, dim={dim})",
        "torch.log_softmax({x}, dim={dim})",
        "{x}.log_softmax(dim={dim})",
        "torch.special.log_softmax({x}, dim={dim})",
        range=NONPOSITIVE,
        props=frozenset({"shift_invariant", "keeps_order", "idempotent"}),
    ),
    _softmax(
        "softmin",
        "Softmin",
        "F.softmin({x}, dim={dim})",
        range=UNIT,
        props=frozenset({"shift_invariant", "sums_to_one"}),
    ),
)
