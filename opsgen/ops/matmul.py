"""Linear layers and matrix products."""

from __future__ import annotations

from math import prod

from opsgen.ops.dims import Shape
from opsgen.ops.entry import Attrs, Draw, Kind, Op, Operand, Shapes, spell

_FEATURES = (32, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096)


def _linear_attrs(draw: Draw, _ins: Shapes) -> Attrs | None:
    out = draw.size("out_features", _FEATURES)
    bias = draw.pick(bias=(True, True, False))
    return None if out is None or bias is None else {**bias, **out}


def _product_terms(ins: Shapes, _attrs: Attrs) -> int:
    return ins[0][-1]


def _product_flops(ins: Shapes, _attrs: Attrs, out: Shape) -> int:
    return 2 * prod(out) * ins[0][-1]


def _product_out(ins: Shapes, attrs: Attrs) -> Shape:
    return (*ins[0][:-1], attrs["out_features"])


OPS = (
    Op(
        "linear",
        Kind.MATMUL,
        (spell("{self}({x})", "nn.Linear({D}, {out_features}{...}{dtype})"),),
        layout="features",
        attrs=_linear_attrs,
        out=_product_out,
        defaults={"bias": True},
        params=lambda ins, attrs: (ins[0][-1] + attrs["bias"]) * attrs["out_features"],
        terms=_product_terms,
        flops=_product_flops,
    ),
    Op(
        "matmul",
        Kind.MATMUL,
        (spell("torch.matmul({x}, {y})"), spell("{x} @ {y}", name="torch.matmul")),
        layout="features",
        attrs=lambda draw, ins: draw.size("out_features", _FEATURES),
        operands=lambda draw, ins, attrs: (Operand((ins[0][-1], attrs["out_features"])),),
        out=_product_out,
        terms=_product_terms,
        flops=_product_flops,
    ),
)
