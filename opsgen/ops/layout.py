"""Fixed maps of elements: order, repetition, joining, masks of position.

Transposes and permutations are made contiguous, so that they move memory and
are not views that cost nothing.
"""

from __future__ import annotations

from math import prod
from typing import Any

from opsgen.ops.dims import Shape
from opsgen.ops.entry import Attrs, Draw, Kind, Op, Operand, Shapes, spell
from opsgen.ops.intervals import of_all, of_first, of_first_with_zero, of_weighted_sum
from opsgen.ops.reduction import single_dims
from opsgen.ops.windows import fits, padding_choices, window_counts, window_size


def _layout(name: str, *calls: str, init: str | None = None, **fields: Any) -> Op:
    module = (spell("{self}({x})", init),) if init else ()
    settings: dict[str, Any] = {
        "ranks": (2, 3, 4, 5),
        "range": of_first,
        "flops": lambda ins, attrs, out: 0,
        **fields,
    }
    return Op(name, Kind.LAYOUT, (*module, *[spell(call) for call in calls]), **settings)


_PAIRS = {
    2: ((0, 1),),
    3: ((1, 2), (0, 1)),
    4: ((1, 2), (2, 3), (1, 3)),
    5: ((1, 2), (3, 4), (2, 4)),
}


def _transpose_attrs(draw: Draw, ins: Shapes) -> Attrs | None:
    return draw.pick(dims=_PAIRS[len(ins[0])])


def _transpose_refs(_ins: Shapes, attrs: Attrs) -> Attrs:
    return dict(zip(("dim0", "dim1"), attrs["dims"], strict=True))


def _transpose_out(ins: Shapes, attrs: Attrs) -> Shape:
    shape = list(ins[0])
    first, second = attrs["dims"]
    shape[first], shape[second] = shape[second], shape[first]
    return tuple(shape)


_ORDERS = {3: ((2, 0, 1), (1, 2, 0)), 4: ((0, 2, 3, 1), (0, 3, 1, 2)), 5: ((0, 2, 3, 4, 1),)}


def _flip_attrs(draw: Draw, ins: Shapes) -> Attrs | None:
    dims: list[Any] = [(dim,) for dim in single_dims(ins[0])]
    if len(ins[0]) >= 4:
        dims.append((2, 3))
    return draw.pick(dim=dims)


def _roll_attrs(draw: Draw, ins: Shapes) -> Attrs | None:
    attrs = draw.pick(dim=single_dims(ins[0]), shifts=(1, 2, 3))
    return attrs if attrs and ins[0][attrs["dim"]] > attrs["shifts"] else None


def _rotated(ins: Shapes, attrs: Attrs) -> Shape:
    *outer, height, width = ins[0]
    return (*outer, height, width) if attrs["k"] == 2 else (*outer, width, height)


def _divisors(size: int, candidates: tuple[int, ...]) -> list[int]:
    return [number for number in candidates if size % number == 0 and size > number]


def _shuffled(ins: Shapes, attrs: Attrs) -> Shape:
    batch, channels, height, width = ins[0]
    factor = attrs["factor"]
    return (batch, channels // (factor * factor), height * factor, width * factor)


def _unshuffled(ins: Shapes, attrs: Attrs) -> Shape:
    batch, channels, height, width = ins[0]
    factor = attrs["factor"]
    return (batch, channels * (factor * factor), height // factor, width // factor)


def _shuffle_attrs(draw: Draw, ins: Shapes) -> Attrs | None:
    return draw.pick(factor=[f for f in (2, 3, 4) if ins[0][1] % (f * f) == 0])


def _unshuffle_attrs(draw: Draw, ins: Shapes) -> Attrs | None:
    _, _, height, width = ins[0]
    return draw.pick(factor=[f for f in (2, 3, 4) if height % f == 0 and width % f == 0])


def _unfold_attrs(draw: Draw, ins: Shapes) -> Attrs | None:
    attrs = draw.pick(kernel_size=(2, 3, 3), stride=(1, 2), dilation=(1, 1, 2))
    if attrs is None:
        return None
    padding = draw.pick(padding=padding_choices(attrs, 2))
    if padding is None or not fits(ins[0][2:], {**attrs, **padding}):
        return None
    return {**attrs, **padding}


def _unfolded(ins: Shapes, attrs: Attrs) -> Shape:
    channels = ins[0][1] * window_size(attrs["kernel_size"], 2)
    return (ins[0][0], channels, prod(window_counts(ins[0][2:], attrs)))


def _repeat_attrs(draw: Draw, ins: Shapes) -> Attrs | None:
    return draw.pick(repeats=(2, 3, 4), dim=(-1, *range(1, len(ins[0]) - 1)))


def scaled_dim(shape: Shape, dim: int, factor: int) -> Shape:
    """Shape with one dim `factor` times as long."""
    grown = dim % len(shape)
    return tuple(size * factor if index == grown else size for index, size in enumerate(shape))


_TILES = {
    2: ((1, 2), (1, 3), (1, 4)),
    3: ((1, 2, 1), (1, 1, 2), (1, 2, 2)),
    4: ((1, 2, 1, 1), (1, 1, 2, 2), (1, 1, 1, 3)),
}


def _windows_attrs(draw: Draw, ins: Shapes) -> Attrs | None:
    attrs = draw.pick(size=(2, 4, 8), step=(1, 2, 4))
    return attrs if attrs and ins[0][-1] >= attrs["size"] >= attrs["step"] else None


def _windows_out(ins: Shapes, attrs: Attrs) -> Shape:
    count = (ins[0][-1] - attrs["size"]) // attrs["step"] + 1
    return (*ins[0][:-1], count, attrs["size"])


def _triangle(name: str) -> Op:
    return _layout(
        name,
        f"torch.{name}({{x}}{{...}})",
        f"{{x}}.{name}({{...}})",
        attrs=lambda draw, ins: draw.pick(diagonal=(0, 0, 1, -1)),
        defaults={"diagonal": 0},
        range=of_first_with_zero,
        props=frozenset({"idempotent", "odd"}),
    )


def _same(_draw: Draw, ins: Shapes, _attrs: Attrs) -> tuple[Operand, ...]:
    return (Operand(ins[0]),)


def _narrow_attrs(draw: Draw, ins: Shapes) -> Attrs | None:
    attrs = draw.pick(dim=single_dims(ins[0]), start=(1, 2, 3))
    return attrs if attrs and ins[0][attrs["dim"]] > attrs["start"] else None


def _narrowed(ins: Shapes, attrs: Attrs) -> Shape:
    cut = attrs["dim"] % len(ins[0])
    return tuple(s - attrs["start"] if dim == cut else s for dim, s in enumerate(ins[0]))


def _select_attrs(draw: Draw, ins: Shapes) -> Attrs | None:
    return draw.pick(dim=single_dims(ins[0]), index=(0, 1, -1))


def _selected(ins: Shapes, attrs: Attrs) -> Shape:
    left_out = attrs["dim"] % len(ins[0])
    return tuple(size for dim, size in enumerate(ins[0]) if dim != left_out)


def _embedded(ins: Shapes, attrs: Attrs) -> Shape:
    side = ins[0][-1] + abs(attrs["offset"])
    return (*ins[0][:-1], side, side)


def _overlap_attrs(draw: Draw, ins: Shapes) -> Attrs | None:
    attrs = draw.pick(kernel=_divisors(ins[0][1], (2, 4, 8)), stride=(1, 2))
    return attrs if attrs and ins[0][2] > 1 else None


def _overlap_width(ins: Shapes, attrs: Attrs) -> int:
    return (ins[0][2] - 1) * attrs["stride"] + attrs["kernel"]  # type: ignore[no-any-return]


_FURTHER = (
    _layout(
        "narrow",
        "torch.narrow({x}, {dim}, {start}, {length}).contiguous()",
        "{x}.narrow({dim}, {start}, {length}).contiguous()",
        attrs=_narrow_attrs,
        refs=lambda ins, attrs: {"length": ins[0][attrs["dim"]] - attrs["start"]},
        out=_narrowed,
        props=frozenset({"odd"}),
    ),
    _layout(
        "select",
        "torch.select({x}, {dim}, {index}).contiguous()",
        "{x}.select({dim}, {index}).contiguous()",
        attrs=_select_attrs,
        out=_selected,
        folds=lambda ins, attrs: (),
        needs_contiguous=True,
    ),
    _layout(
        "diag_embed",
        "torch.diag_embed({x}{...})",
        "{x}.diag_embed({...})",
        ranks=(2, 3),
        attrs=lambda draw, ins: draw.pick(offset=(0, 0, 1, -1)),
        defaults={"offset": 0},
        out=_embedded,
        range=of_first_with_zero,
        props=frozenset({"odd"}),
    ),
    _layout(
        "block_diag",
        "torch.block_diag({x}, {y})",
        ranks=(2,),
        operands=_same,
        range=lambda ranges, attrs: of_first_with_zero((of_all(ranges, attrs),), attrs),
        out=lambda ins, attrs: (2 * ins[0][0], 2 * ins[0][1]),
    ),
    # The inverse of unfolding, in one dim: frames are added up where they overlap.
    _layout(
        "fold",
        "F.fold({x}, (1, {width}), (1, {kernel}), stride=(1, {stride}))",
        init="nn.Fold((1, {width}), (1, {kernel}), stride=(1, {stride}))",
        ranks=(3,),
        layout="channels",
        attrs=_overlap_attrs,
        refs=lambda ins, attrs: {"width": _overlap_width(ins, attrs)},
        out=lambda ins, attrs: (
            ins[0][0],
            ins[0][1] // attrs["kernel"],
            1,
            _overlap_width(ins, attrs),
        ),
        terms=lambda ins, attrs: -(-attrs["kernel"] // attrs["stride"]),
        flops=lambda ins, attrs, out: prod(ins[0]),
        range=of_weighted_sum,
        props=frozenset({"odd"}),
    ),
)

OPS = (
    *_FURTHER,
    _layout(
        "transpose",
        "torch.transpose({x}, {dim0}, {dim1}).contiguous()",
        "{x}.transpose({dim0}, {dim1}).contiguous()",
        "torch.swapaxes({x}, {dim0}, {dim1}).contiguous()",
        "torch.swapdims({x}, {dim0}, {dim1}).contiguous()",
        attrs=_transpose_attrs,
        refs=_transpose_refs,
        out=_transpose_out,
        needs_contiguous=True,
        props=frozenset({"involution"}),
    ),
    _layout(
        "permute",
        "torch.permute({x}, {order}).contiguous()",
        "{x}.permute({order}).contiguous()",
        ranks=(3, 4, 5),
        attrs=lambda draw, ins: draw.pick(order=_ORDERS[len(ins[0])]),
        out=lambda ins, attrs: tuple(ins[0][dim] for dim in attrs["order"]),
        needs_contiguous=True,
    ),
    _layout(
        "flip",
        "torch.flip({x}, {dim})",
        "{x}.flip({dim})",
        attrs=_flip_attrs,
        props=frozenset({"involution", "permutes"}),
    ),
    _layout(
        "roll",
        "torch.roll({x}, {shifts}, {dim})",
        "{x}.roll({shifts}, {dim})",
        attrs=_roll_attrs,
        props=frozenset({"permutes"}),
    ),
    _layout(
        "rot90",
        "torch.rot90({x}, {k}, (-2, -1))",
        "{x}.rot90({k}, (-2, -1))",
        attrs=lambda draw, ins: draw.pick(k=(1, 2, 3)),
        out=_rotated,
    ),
    _layout(
        "pixel_shuffle",
        "F.pixel_shuffle({x}, {factor})",
        init="nn.PixelShuffle({factor})",
        ranks=(4,),
        layout="channels",
        attrs=_shuffle_attrs,
        out=_shuffled,
        undoes=("pixel_unshuffle",),
    ),
    _layout(
        "pixel_unshuffle",
        "F.pixel_unshuffle({x}, {factor})",
        init="nn.PixelUnshuffle({factor})",
        ranks=(4,),
        layout="channels",
        attrs=_unshuffle_attrs,
        out=_unshuffled,
        undoes=("pixel_shuffle",),
    ),
    _layout(
        "channel_shuffle",
        "F.channel_shuffle({x}, {groups})",
        init="nn.ChannelShuffle({groups})",
        ranks=(3, 4, 5),
        layout="channels",
        attrs=lambda draw, ins: draw.pick(groups=_divisors(ins[0][1], (2, 4, 8))),
        props=frozenset({"permutes"}),
        folds=lambda ins, attrs: (1,),
    ),
    _layout(
        "flatten",
        "torch.flatten({x}, {start_dim})",
        "{x}.flatten({start_dim})",
        init="nn.Flatten({start_dim})",
        ranks=(3, 4, 5),
        attrs=lambda draw, ins: draw.pick(start_dim=(1, 2) if len(ins[0]) > 3 else (1,)),
        out=lambda ins, attrs: (
            *ins[0][: attrs["start_dim"]],
            prod(ins[0][attrs["start_dim"] :]),
        ),
        # A view: it costs nothing, but its consumers see other rows.
        passes=0.0,
    ),
    _layout(
        "unfold",
        "F.unfold({x}, {kernel_size}{...})",
        init="nn.Unfold({kernel_size}{...})",
        ranks=(4,),
        layout="channels",
        attrs=_unfold_attrs,
        out=_unfolded,
        defaults={"dilation": 1, "padding": 0, "stride": 1},
        range=of_first_with_zero,
    ),
    _layout(
        "windows",
        "{x}.unfold(-1, {size}, {step}).contiguous()",
        ranks=(2, 3),
        attrs=_windows_attrs,
        out=_windows_out,
    ),
    _layout(
        "repeat_interleave",
        "torch.repeat_interleave({x}, {repeats}, dim={dim})",
        "{x}.repeat_interleave({repeats}, dim={dim})",
        attrs=_repeat_attrs,
        out=lambda ins, attrs: scaled_dim(ins[0], attrs["dim"], attrs["repeats"]),
    ),
    _layout(
        "tile",
        "torch.tile({x}, {dims})",
        "{x}.repeat({dims})",
        ranks=(2, 3, 4),
        attrs=lambda draw, ins: draw.pick(dims=_TILES[len(ins[0])]),
        out=lambda ins, attrs: tuple(
            size * times for size, times in zip(ins[0], attrs["dims"], strict=True)
        ),
    ),
    _triangle("tril"),
    _triangle("triu"),
    _layout(
        "cat",
        "torch.cat([{x}, {y}], dim={dim})",
        "torch.concat([{x}, {y}], dim={dim})",
        "torch.concatenate([{x}, {y}], dim={dim})",
        attrs=lambda draw, ins: draw.pick(dim=(-1, *range(1, len(ins[0]) - 1))),
        operands=_same,
        range=of_all,
        out=lambda ins, attrs: scaled_dim(ins[0], attrs["dim"], 2),
    ),
    _layout(
        "stack",
        "torch.stack([{x}, {y}], dim={dim})",
        ranks=(2, 3, 4),
        attrs=lambda draw, ins: draw.pick(dim=tuple(range(1, len(ins[0])))),
        operands=_same,
        range=of_all,
        out=lambda ins, attrs: (*ins[0][: attrs["dim"]], 2, *ins[0][attrs["dim"] :]),
        folds=lambda ins, attrs: (),
    ),
)
