"""Outer products: every element of one tensor times every element of another."""

from __future__ import annotations

from math import prod
from typing import Any

from opsgen.ops.entry import Attrs, Draw, Kind, Op, Operand, Shapes, Spelling, spell
from opsgen.ops.intervals import times


def _outer(name: str, *spellings: Spelling, **fields: Any) -> Op:
    settings: dict[str, Any] = {
        "layout": "features",
        "range": lambda ranges, attrs: times(ranges[0], ranges[1]),
        "props": frozenset({"odd"}),
        **fields,
    }
    return Op(name, Kind.BINARY, spellings, **settings)


def _columns(draw: Draw, _ins: Shapes) -> Attrs | None:
    return draw.size("num_columns", (64, 128, 256, 512, 1024))


def _block_attrs(draw: Draw, _ins: Shapes) -> Attrs | None:
    rows, columns = draw.size("block_rows", (2, 4, 8)), draw.size("block_columns", (2, 4, 8))
    return None if rows is None or columns is None else {**rows, **columns}


def _vectors(_draw: Draw, ins: Shapes, _attrs: Attrs) -> tuple[Operand, ...]:
    return (Operand(ins[0][:1], name="rows"), Operand(ins[0][1:], name="columns"))


OPS = (
    _outer(
        "outer",
        spell("torch.outer({x}, {y})"),
        spell("{x}.outer({y})"),
        spell("torch.ger({x}, {y})"),
        ranks=(1,),
        attrs=_columns,
        operands=lambda draw, ins, attrs: (Operand((attrs["num_columns"],)),),
        out=lambda ins, attrs: (*ins[0], attrs["num_columns"]),
    ),
    _outer(
        "outer_rows",
        spell('torch.einsum("bi,bj->bij", {x}, {y})'),
        ranks=(2,),
        attrs=_columns,
        operands=lambda draw, ins, attrs: (Operand((ins[0][0], attrs["num_columns"])),),
        out=lambda ins, attrs: (*ins[0], attrs["num_columns"]),
    ),
    _outer(
        "kron",
        spell("torch.kron({x}, {y})"),
        spell("{x}.kron({y})"),
        needs_contiguous=True,
        ranks=(2,),
        attrs=_block_attrs,
        operands=lambda draw, ins, attrs: (Operand((attrs["block_rows"], attrs["block_columns"])),),
        out=lambda ins, attrs: (
            ins[0][0] * attrs["block_rows"],
            ins[0][1] * attrs["block_columns"],
        ),
    ),
    Op(
        "addr",
        Kind.BINARY,
        (spell("torch.addr({x}, {y}, {z}{...})"), spell("{x}.addr({y}, {z}{...})")),
        ranks=(2,),
        layout="features",
        attrs=lambda draw, ins: draw.pick(alpha=(1, 1, 0.5, 2), beta=(1, 1, 0.5)),
        operands=_vectors,
        defaults={"alpha": 1, "beta": 1},
        terms=lambda ins, attrs: 2,
        flops=lambda ins, attrs, out: 3 * prod(out),
    ),
)
