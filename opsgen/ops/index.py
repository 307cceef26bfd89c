"""Selection and placement by index tensors."""

from __future__ import annotations

from math import prod
from typing import Any

from opsgen.ops.dims import Shape
from opsgen.ops.entry import Attrs, Draw, Kind, Op, Operand, Shapes, spell
from opsgen.ops.intervals import REAL, UNIT, Interval, hull, of_all, of_first
from opsgen.ops.reduction import single_dims

_PICKED = (16, 32, 64, 128, 256, 512, 1024)


def _indexing(name: str, *calls: str, **fields: Any) -> Op:
    settings: dict[str, Any] = {"flops": lambda ins, attrs, out: 0, **fields}
    return Op(name, Kind.INDEX, tuple(spell(call) for call in calls), **settings)


def _index(shape: Shape, high: int) -> Operand:
    return Operand(shape, REAL, dtype="int64", high=high, name="index", can_join=False)


def _along(draw: Draw, ins: Shapes) -> Attrs | None:
    return draw.pick(dim=single_dims(ins[0]))


def _picked(draw: Draw, ins: Shapes) -> Attrs | None:
    attrs, size = _along(draw, ins), draw.size("num_picked", _PICKED)
    return None if attrs is None or size is None else {**attrs, **size}


def _replaced(shape: Shape, dim: int, size: int) -> Shape:
    changed = dim % len(shape)
    return tuple(size if index == changed else old for index, old in enumerate(shape))


def _selected(ins: Shapes, attrs: Attrs) -> Shape:
    return _replaced(ins[0], attrs["dim"], attrs["num_picked"])


def _same_index(_draw: Draw, ins: Shapes, attrs: Attrs) -> tuple[Operand, ...]:
    return (_index(ins[0], ins[0][attrs["dim"]]),)


def _vector_index(_draw: Draw, ins: Shapes, attrs: Attrs) -> tuple[Operand, ...]:
    return (_index((attrs["num_picked"],), ins[0][attrs["dim"]]),)


def _index_and_source(draw: Draw, ins: Shapes, attrs: Attrs) -> tuple[Operand, ...]:
    source = Operand(_selected(ins, attrs), name="source")
    return (*_vector_index(draw, ins, attrs), source)


def _dense_index_and_source(draw: Draw, ins: Shapes, attrs: Attrs) -> tuple[Operand, ...]:
    return (*_same_index(draw, ins, attrs), Operand(ins[0], name="source"))


def _fill_attrs(draw: Draw, ins: Shapes) -> Attrs | None:
    # A fixed few positions, so that most of a long dim survives.
    value = draw.pick(value=(0.0, -1.0, 1.0), num_filled=(2, 3, 4))
    dims = [dim for dim in single_dims(ins[0]) if ins[0][dim] >= 8]
    dim = draw.pick(dim=dims)
    return None if value is None or dim is None else {**value, **dim}


def _with_value(ranges: tuple[Interval, ...], attrs: Attrs) -> Interval:
    return hull(ranges[0], Interval(attrs["value"], attrs["value"]))


def _mask_operand(_draw: Draw, ins: Shapes, attrs: Attrs) -> tuple[Operand, ...]:
    shape = ins[0] if attrs["meets"] == "same" else ins[0][-2:]
    return (Operand(shape, UNIT, dtype="bool", name="mask", can_join=False),)


def _part_attrs(draw: Draw, ins: Shapes) -> Attrs | None:
    attrs = draw.pick(dim=single_dims(ins[0]), start=(0, 1, 2), length=(1, 2, 4))
    if attrs is None or attrs["start"] + attrs["length"] >= ins[0][attrs["dim"]]:
        return None
    return attrs


def _part(_draw: Draw, ins: Shapes, attrs: Attrs) -> tuple[Operand, ...]:
    return (Operand(_replaced(ins[0], attrs["dim"], attrs["length"]), name="source"),)


def _layer_attrs(draw: Draw, ins: Shapes) -> Attrs | None:
    return draw.pick(dim=single_dims(ins[0]), index=(0, 1, -1))


def _layer(_draw: Draw, ins: Shapes, attrs: Attrs) -> tuple[Operand, ...]:
    left_out = attrs["dim"] % len(ins[0])
    shape = tuple(size for dim, size in enumerate(ins[0]) if dim != left_out)
    return (Operand(shape, name="source"),)


def _table_attrs(draw: Draw, _ins: Shapes) -> Attrs | None:
    table = draw.size("num_embeddings", (512, 1000, 4096, 10000, 32000))
    width = draw.size("embedding_dim", (32, 64, 128, 256, 512, 768))
    return None if table is None or width is None else {**table, **width}


def _bag_attrs(draw: Draw, ins: Shapes) -> Attrs | None:
    table, mode = _table_attrs(draw, ins), draw.pick(mode=("mean", "sum", "max"))
    return None if table is None or mode is None else {**table, **mode}


def _table(name: str, init: str, **fields: Any) -> Op:
    return Op(
        name,
        Kind.INDEX,
        (spell("{self}({x})", init),),
        ranks=(2,),
        layout="features",
        params=lambda ins, attrs: attrs["num_embeddings"] * attrs["embedding_dim"],
        in_dtype="int64",
        high=lambda ins, attrs: attrs["num_embeddings"],
        **fields,
    )


OPS = (
    _table(
        "embedding",
        "nn.Embedding({num_embeddings}, {embedding_dim}{dtype})",
        attrs=_table_attrs,
        out=lambda ins, attrs: (*ins[0], attrs["embedding_dim"]),
        flops=lambda ins, attrs, out: 0,
    ),
    _table(
        "embedding_bag",
        "nn.EmbeddingBag({num_embeddings}, {embedding_dim}{...}{dtype})",
        attrs=_bag_attrs,
        defaults={"mode": "mean"},
        out=lambda ins, attrs: (ins[0][0], attrs["embedding_dim"]),
        terms=lambda ins, attrs: ins[0][1],
        flops=lambda ins, attrs, out: prod(out) * ins[0][1],
    ),
    _indexing(
        "gather",
        "torch.gather({x}, {dim}, {y})",
        "{x}.gather({dim}, {y})",
        "torch.take_along_dim({x}, {y}, dim={dim})",
        attrs=_along,
        operands=_same_index,
        range=of_first,
    ),
    _indexing(
        "index_select",
        "torch.index_select({x}, {dim}, {y})",
        "{x}.index_select({dim}, {y})",
        attrs=_picked,
        operands=_vector_index,
        out=_selected,
        range=of_first,
    ),
    _indexing(
        "masked_fill",
        "torch.masked_fill({x}, {y}, {value})",
        "{x}.masked_fill({y}, {value})",
        ranks=(2, 3, 4, 5),
        attrs=lambda draw, ins: draw.pick(value=(0.0, -1.0, -10.0), meets=("same", "matrix")),
        operands=_mask_operand,
        range=_with_value,
    ),
    _indexing(
        "index_fill",
        "torch.index_fill({x}, {dim}, {y}, {value})",
        "{x}.index_fill({dim}, {y}, {value})",
        attrs=_fill_attrs,
        range=_with_value,
        operands=lambda draw, ins, attrs: (_index((attrs["num_filled"],), ins[0][attrs["dim"]]),),
    ),
    _indexing(
        "take",
        "torch.take({x}, {y})",
        "{x}.take({y})",
        attrs=lambda draw, ins: draw.size("num_picked", (1024, 4096, 16384)),
        operands=lambda draw, ins, attrs: (_index((attrs["num_picked"],), prod(ins[0])),),
        out=lambda ins, attrs: (attrs["num_picked"],),
        range=of_first,
    ),
    _indexing(
        "slice_scatter",
        "torch.slice_scatter({x}, {y}, dim={dim}, start={start}, end={end})",
        "{x}.slice_scatter({y}, dim={dim}, start={start}, end={end})",
        attrs=_part_attrs,
        operands=_part,
        refs=lambda ins, attrs: {"end": attrs["start"] + attrs["length"]},
        range=of_all,
    ),
    _indexing(
        "select_scatter",
        "torch.select_scatter({x}, {y}, {dim}, {index})",
        "{x}.select_scatter({y}, {dim}, {index})",
        attrs=_layer_attrs,
        operands=_layer,
        range=of_all,
    ),
    _indexing(
        "scatter_amin",
        'torch.scatter_reduce({x}, {dim}, {y}, {z}, reduce="amin")',
        '{x}.scatter_reduce({dim}, {y}, {z}, reduce="amin")',
        attrs=_along,
        operands=_dense_index_and_source,
        flops=lambda ins, attrs, out: prod(out),
        range=lambda ranges, attrs: hull(ranges[0], ranges[2]),
    ),
    _indexing(
        "index_add",
        "torch.index_add({x}, {dim}, {y}, {z})",
        "{x}.index_add({dim}, {y}, {z})",
        attrs=_picked,
        operands=_index_and_source,
        flops=lambda ins, attrs, out: prod(out),
        is_deterministic=False,
    ),
    _indexing(
        "scatter_add",
        "torch.scatter_add({x}, {dim}, {y}, {z})",
        "{x}.scatter_add({dim}, {y}, {z})",
        attrs=_along,
        operands=_dense_index_and_source,
        flops=lambda ins, attrs, out: prod(out),
        is_deterministic=False,
    ),
    _indexing(
        "scatter_amax",
        'torch.scatter_reduce({x}, {dim}, {y}, {z}, reduce="amax")',
        '{x}.scatter_reduce({dim}, {y}, {z}, reduce="amax")',
        attrs=_along,
        operands=_dense_index_and_source,
        flops=lambda ins, attrs, out: prod(out),
        # A maximum does not depend on the order in which atomics arrive.
        range=lambda ranges, attrs: hull(ranges[0], ranges[2]),
    ),
)
