"""Folds over one or more dims."""

from __future__ import annotations

from math import prod

from opsgen.ops.dims import Shape
from opsgen.ops.entry import Attrs, Draw, Kind, Op, Shapes, spell
from opsgen.ops.intervals import of_first, of_sum


def dim_attrs(draw: Draw, ins: Shapes) -> Attrs | None:
    """Choose the dim or dims to fold, and whether they stay as size 1."""
    rank = len(ins[0])
    dims: list[int | tuple[int, ...]] = [dim for dim in (-1, 1, 2) if dim < rank]
    if rank == 4:
        dims.append((2, 3))
    dims = [dim for dim in dims if folded_count(ins[0], dim) > 1]
    return draw.pick(dim=dims, keepdim=(False, False, True))


def folded_count(shape: Shape, dim: int | tuple[int, ...]) -> int:
    """Number of elements folded into one."""
    return prod(shape[d] for d in ((dim,) if isinstance(dim, int) else dim))


def folded_shape(ins: Shapes, attrs: Attrs) -> Shape:
    """Shape after folding `dim`, with or without the dims of size 1."""
    shape = ins[0]
    dims = (attrs["dim"],) if isinstance(attrs["dim"], int) else attrs["dim"]
    folded = {dim % len(shape) for dim in dims}
    if attrs["keepdim"]:
        return tuple(1 if index in folded else size for index, size in enumerate(shape))
    return tuple(size for index, size in enumerate(shape) if index not in folded)


def folded_terms(ins: Shapes, attrs: Attrs) -> int:
    """Additions behind one output element."""
    return folded_count(ins[0], attrs["dim"])


def input_flops(ins: Shapes, _attrs: Attrs, _out: Shape) -> int:
    """One operation for every input element."""
    return prod(ins[0])


OPS = (
    Op(
        "sum",
        Kind.REDUCTION,
        (spell("torch.sum({x}, dim={dim}{...})"), spell("{x}.sum(dim={dim}{...})")),
        attrs=dim_attrs,
        defaults={"keepdim": False},
        out=folded_shape,
        terms=folded_terms,
        flops=input_flops,
        range=of_sum,
    ),
    Op(
        "mean",
        Kind.REDUCTION,
        (spell("torch.mean({x}, dim={dim}{...})"), spell("{x}.mean(dim={dim}{...})")),
        attrs=dim_attrs,
        defaults={"keepdim": False},
        out=folded_shape,
        terms=folded_terms,
        flops=input_flops,
        range=of_first,
    ),
)
