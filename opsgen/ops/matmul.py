"""Linear layers and matrix products."""

from __future__ import annotations

from math import prod
from typing import Any

from opsgen.ops.dims import Shape
from opsgen.ops.entry import Attrs, Draw, Kind, Op, Operand, Shapes, Spelling, spell

_FEATURES = (32, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096)
_SCALES = {"alpha": (1, 1, 0.5, 2), "beta": (1, 1, 0.5)}
_BY_MATRIX = frozenset({"odd"})


def _columns(draw: Draw, _ins: Shapes) -> Attrs | None:
    return draw.size("out_features", _FEATURES)


def _rows(draw: Draw, _ins: Shapes) -> Attrs | None:
    return draw.size("out_rows", _FEATURES)


def _with_bias(draw: Draw, ins: Shapes) -> Attrs | None:
    out, bias = _columns(draw, ins), draw.pick(bias=(True, True, False))
    return None if out is None or bias is None else {**bias, **out}


def _scaled(draw: Draw, ins: Shapes) -> Attrs | None:
    out, scales = _columns(draw, ins), draw.pick(**_SCALES)
    return None if out is None or scales is None else {**scales, **out}


def _terms(ins: Shapes, _attrs: Attrs) -> int:
    return ins[0][-1]


def _flops(ins: Shapes, _attrs: Attrs, out: Shape) -> int:
    return 2 * prod(out) * ins[0][-1]


def _left_flops(ins: Shapes, _attrs: Attrs, out: Shape) -> int:
    return 2 * prod(out) * ins[0][-2]


def _out(ins: Shapes, attrs: Attrs) -> Shape:
    return (*ins[0][:-1], attrs["out_features"])


def _matrix(shape: Shape, name: str = "y") -> Operand:
    return Operand(shape, name=name)


def _product(name: str, *spellings: Spelling, **fields: Any) -> Op:
    settings: dict[str, Any] = {
        "attrs": _columns,
        "out": _out,
        "terms": _terms,
        "flops": _flops,
        **fields,
    }
    return Op(name, Kind.MATMUL, spellings, layout="features", **settings)


def _right(_draw: Draw, ins: Shapes, attrs: Attrs) -> tuple[Operand, ...]:
    return (_matrix((ins[0][-1], attrs["out_features"]), "weight"),)


def _transposed(_draw: Draw, ins: Shapes, attrs: Attrs) -> tuple[Operand, ...]:
    return (_matrix((attrs["out_features"], ins[0][-1]), "weight"),)


def _transposed_with_bias(draw: Draw, ins: Shapes, attrs: Attrs) -> tuple[Operand, ...]:
    bias = Operand((attrs["out_features"],), name="bias")
    return (*_transposed(draw, ins, attrs), bias)


def _batched(_draw: Draw, ins: Shapes, attrs: Attrs) -> tuple[Operand, ...]:
    return (_matrix((*ins[0][:-2], ins[0][-1], attrs["out_features"])),)


def _batched_transposed(_draw: Draw, ins: Shapes, attrs: Attrs) -> tuple[Operand, ...]:
    return (_matrix((*ins[0][:-2], attrs["out_features"], ins[0][-1])),)


def _with_addend(draw: Draw, ins: Shapes, attrs: Attrs) -> tuple[Operand, ...]:
    return (*_batched(draw, ins, attrs), Operand(_out(ins, attrs), name="addend"))


def _with_row_addend(draw: Draw, ins: Shapes, attrs: Attrs) -> tuple[Operand, ...]:
    return (*_right(draw, ins, attrs), Operand((attrs["out_features"],), name="addend"))


def _bilinear_operands(_draw: Draw, ins: Shapes, attrs: Attrs) -> tuple[Operand, ...]:
    return (Operand((*ins[0][:-1], attrs["in2_features"])),)


def _bilinear_attrs(draw: Draw, _ins: Shapes) -> Attrs | None:
    second = draw.size("in2_features", (8, 16, 32, 64))
    out = draw.size("out_features", (16, 32, 64, 128))
    bias = draw.pick(bias=(True, True, False))
    if second is None or out is None or bias is None:
        return None
    return {**bias, **second, **out}


def _head_attrs(draw: Draw, _ins: Shapes) -> Attrs | None:
    heads, out = draw.size("out_heads", (4, 8, 12, 16)), draw.size("out_features", (32, 64, 128))
    return None if heads is None or out is None else {**heads, **out}


def _chain_attrs(draw: Draw, _ins: Shapes) -> Attrs | None:
    middle, out = draw.size("middle_features", _FEATURES), draw.size("out_features", _FEATURES)
    return None if middle is None or out is None else {**middle, **out}


OPS = (
    _product(
        "linear",
        spell("{self}({x})", "nn.Linear({D}, {out_features}{...}{dtype})"),
        ranks=(2, 3, 4),
        attrs=_with_bias,
        defaults={"bias": True},
        params=lambda ins, attrs: (ins[0][-1] + attrs["bias"]) * attrs["out_features"],
    ),
    _product(
        "linear_weight",
        spell("F.linear({x}, {y})"),
        spell("{x} @ {y}.t()", name="torch.matmul"),
        spell("torch.inner({x}, {y})"),
        operands=_transposed,
        props=_BY_MATRIX,
    ),
    _product(
        "linear_weight_bias", spell("F.linear({x}, {y}, {z})"), operands=_transposed_with_bias
    ),
    _product(
        "matmul",
        spell("torch.matmul({x}, {y})"),
        spell("{x} @ {y}", name="torch.matmul"),
        spell("{x}.matmul({y})"),
        spell("torch.linalg.matmul({x}, {y})"),
        operands=_right,
        props=_BY_MATRIX,
    ),
    _product(
        "matmul_left",
        spell("torch.matmul({y}, {x})"),
        spell("{y} @ {x}", name="torch.matmul"),
        attrs=_rows,
        operands=lambda draw, ins, attrs: (_matrix((attrs["out_rows"], ins[0][-2]), "weight"),),
        out=lambda ins, attrs: (*ins[0][:-2], attrs["out_rows"], ins[0][-1]),
        terms=lambda ins, attrs: ins[0][-2],
        flops=_left_flops,
        props=_BY_MATRIX,
    ),
    _product(
        "mm",
        spell("torch.mm({x}, {y})"),
        spell("{x}.mm({y})"),
        ranks=(2,),
        operands=_right,
        props=_BY_MATRIX,
    ),
    _product(
        "bmm",
        spell("torch.bmm({x}, {y})"),
        spell("{x}.bmm({y})"),
        spell('torch.einsum("bij,bjk->bik", {x}, {y})'),
        ranks=(3,),
        operands=_batched,
        props=_BY_MATRIX,
    ),
    _product(
        "bmm_transposed",
        spell("torch.bmm({x}, {y}.transpose(1, 2))"),
        spell('torch.einsum("bid,bjd->bij", {x}, {y})'),
        ranks=(3,),
        operands=_batched_transposed,
        props=_BY_MATRIX,
    ),
    _product(
        "head_scores",
        spell('torch.einsum("bhid,bhjd->bhij", {x}, {y})'),
        spell("torch.matmul({x}, {y}.transpose(-2, -1))"),
        ranks=(4,),
        operands=_batched_transposed,
        props=_BY_MATRIX,
    ),
    _product(
        "addmm",
        spell("torch.addmm({z}, {x}, {y}{...})"),
        ranks=(2,),
        attrs=_scaled,
        operands=_with_row_addend,
        defaults={"alpha": 1, "beta": 1},
    ),
    _product(
        "baddbmm",
        spell("torch.baddbmm({z}, {x}, {y}{...})"),
        ranks=(3,),
        attrs=_scaled,
        operands=_with_addend,
        defaults={"alpha": 1, "beta": 1},
    ),
    _product(
        "addbmm",
        spell("torch.addbmm({z}, {x}, {y}{...})"),
        ranks=(3,),
        attrs=_scaled,
        defaults={"alpha": 1, "beta": 1},
        operands=lambda draw, ins, attrs: (
            *_batched(draw, ins, attrs),
            Operand((ins[0][1], attrs["out_features"]), name="addend"),
        ),
        out=lambda ins, attrs: (ins[0][1], attrs["out_features"]),
        terms=lambda ins, attrs: ins[0][0] * ins[0][2],
        flops=lambda ins, attrs, out: 2 * prod(out) * ins[0][0] * ins[0][2],
    ),
    _product(
        "mv",
        spell("torch.mv({x}, {y})"),
        spell("{x}.mv({y})"),
        ranks=(2,),
        attrs=lambda draw, ins: {},
        out=lambda ins, attrs: ins[0][:1],
        operands=lambda draw, ins, attrs: (Operand((ins[0][1],), name="vector"),),
        props=_BY_MATRIX,
    ),
    _product(
        "addmv",
        spell("torch.addmv({z}, {x}, {y}{...})"),
        ranks=(2,),
        attrs=lambda draw, ins: draw.pick(**_SCALES),
        defaults={"alpha": 1, "beta": 1},
        out=lambda ins, attrs: ins[0][:1],
        operands=lambda draw, ins, attrs: (
            Operand((ins[0][1],), name="vector"),
            Operand(ins[0][:1], name="addend"),
        ),
    ),
    _product(
        "head_projection",
        spell('torch.einsum("bld,dhk->blhk", {x}, {y})'),
        ranks=(3,),
        attrs=_head_attrs,
        operands=lambda draw, ins, attrs: (
            _matrix((ins[0][-1], attrs["out_heads"], attrs["out_features"]), "weight"),
        ),
        out=lambda ins, attrs: (*ins[0][:-1], attrs["out_heads"], attrs["out_features"]),
        props=_BY_MATRIX,
    ),
    _product(
        "channel_mixing",
        spell('torch.einsum("bchw,oc->bohw", {x}, {y})'),
        ranks=(4,),
        attrs=lambda draw, ins: draw.size("out_channels", (16, 32, 64, 128, 256, 512)),
        operands=lambda draw, ins, attrs: (_matrix((attrs["out_channels"], ins[0][1]), "weight"),),
        out=lambda ins, attrs: (ins[0][0], attrs["out_channels"], *ins[0][2:]),
        terms=lambda ins, attrs: ins[0][1],
        flops=lambda ins, attrs, out: 2 * prod(out) * ins[0][1],
        props=_BY_MATRIX,
    ),
    _product(
        "tensordot",
        spell("torch.tensordot({x}, {y}, dims=2)"),
        ranks=(3, 4),
        props=_BY_MATRIX,
        operands=lambda draw, ins, attrs: (
            _matrix((*ins[0][-2:], attrs["out_features"]), "weight"),
        ),
        out=lambda ins, attrs: (*ins[0][:-2], attrs["out_features"]),
        terms=lambda ins, attrs: ins[0][-2] * ins[0][-1],
        flops=lambda ins, attrs, out: 2 * prod(out) * ins[0][-2] * ins[0][-1],
    ),
    _product(
        "bilinear",
        spell("{self}({x}, {y})", "nn.Bilinear({D}, {in2_features}, {out_features}{...}{dtype})"),
        ranks=(2, 3),
        attrs=_bilinear_attrs,
        operands=_bilinear_operands,
        defaults={"bias": True},
        params=lambda ins, attrs: (
            (ins[0][-1] * attrs["in2_features"] + attrs["bias"]) * attrs["out_features"]
        ),
        terms=lambda ins, attrs: ins[0][-1] * attrs["in2_features"],
        flops=lambda ins, attrs, out: 2 * prod(out) * (ins[0][-1] + 1) * attrs["in2_features"],
    ),
    _product(
        "matmul_chain",
        spell("{x} @ {y} @ {z}", name="torch.matmul"),
        attrs=_chain_attrs,
        operands=lambda draw, ins, attrs: (
            _matrix((ins[0][-1], attrs["middle_features"]), "down"),
            _matrix((attrs["middle_features"], attrs["out_features"]), "up"),
        ),
        terms=lambda ins, attrs: max(ins[0][-1], attrs["middle_features"]),
        flops=lambda ins, attrs, out: 2 * attrs["middle_features"] * (prod(ins[0]) + prod(out)),
        props=_BY_MATRIX,
    ),
)
