"""Fourier transforms that give back real tensors.

Complex tensors stay inside an op: what comes out is a magnitude, a real part,
or both parts side by side. The libraries behind have no kernels below float32.
"""

from __future__ import annotations

from math import prod
from typing import Any

from opsgen.ops.dims import Shape
from opsgen.ops.entry import Attrs, Draw, Kind, Op, Operand, Shapes, spell
from opsgen.ops.intervals import NONNEGATIVE

_ODD = frozenset({"odd"})
_EVEN = frozenset({"even"})


def _half(size: int) -> int:
    """Number of frequencies of a real signal."""
    return size // 2 + 1


def _whole(size: int) -> int:
    """Length of the real signal behind that many frequencies."""
    return 2 * (size - 1)


def _last(length: Any) -> Any:
    return lambda ins, attrs: (*ins[0][:-1], length(ins[0][-1]))


def _long_enough(least: int) -> Any:
    return lambda draw, ins: {} if ins[0][-1] >= least else None


def _transform(
    name: str, call: str, dims: int, *, qualified: str | None = None, **fields: Any
) -> Op:
    """A transform over the last `dims` dims; `qualified` where the call opens with another."""

    def flops(ins: Shapes, _attrs: Attrs, out: Shape) -> int:
        # 5 n log2 n, the count that FFTW's benchmarks use.
        count = prod(ins[0][-dims:])
        return 5 * max(prod(ins[0]), prod(out)) * int(count).bit_length()

    settings: dict[str, Any] = {
        "ranks": (2, 3, 4),
        "attrs": _long_enough(4),
        "terms": lambda ins, attrs: prod(ins[0][-dims:]),
        "flops": flops,
        # The complex intermediate is written and read.
        "passes": 4.0,
        "is_full_precision": True,
        **fields,
    }
    return Op(name, Kind.TRANSFORM, (spell(call, name=qualified),), **settings)


def _window(_draw: Draw, _ins: Shapes, attrs: Attrs) -> tuple[Operand, ...]:
    return (Operand((attrs["n_fft"],), NONNEGATIVE, name="window"),)


def _frame_attrs(draw: Draw, ins: Shapes) -> Attrs | None:
    # The ends are padded by reflection, which reads half a frame.
    return draw.pick(n_fft=[size for size in (8, 16, 64, 256) if size < ins[0][-1]])


def _frames(ins: Shapes, attrs: Attrs) -> Shape:
    return (ins[0][0], attrs["n_fft"] // 2 + 1, ins[0][1] // (attrs["n_fft"] // 4) + 1)


OPS = (
    _transform(
        "rfft_magnitude",
        "torch.fft.rfft({x}).abs()",
        1,
        out=_last(_half),
        range=NONNEGATIVE,
        props=_EVEN,
    ),
    _transform(
        "rfft_parts",
        "torch.view_as_real(torch.fft.rfft({x}))",
        1,
        qualified="torch.fft.rfft",
        ranks=(2, 3),
        out=lambda ins, attrs: (*ins[0][:-1], _half(ins[0][-1]), 2),
        props=_ODD,
    ),
    _transform(
        "rfft2_magnitude",
        "torch.fft.rfft2({x}).abs()",
        2,
        ranks=(3, 4),
        out=_last(_half),
        range=NONNEGATIVE,
        props=_EVEN,
    ),
    _transform("fft_real", "torch.fft.fft({x}).real.contiguous()", 1, props=_ODD),
    _transform("fft2_real", "torch.fft.fft2({x}).real.contiguous()", 2, ranks=(3, 4), props=_ODD),
    _transform(
        "fftn_magnitude",
        "torch.fft.fftn({x}, dim=(-3, -2, -1)).abs()",
        3,
        ranks=(4, 5),
        range=NONNEGATIVE,
        props=_EVEN,
    ),
    _transform("irfft", "torch.fft.irfft({x})", 1, out=_last(_whole), props=_ODD),
    _transform("irfft2", "torch.fft.irfft2({x})", 2, ranks=(3, 4), out=_last(_whole), props=_ODD),
    _transform("hfft", "torch.fft.hfft({x})", 1, out=_last(_whole), props=_ODD),
    _transform(
        "stft_magnitude",
        "torch.stft({x}, {n_fft}, window={y}, return_complex=True).abs()",
        1,
        ranks=(2,),
        layout="features",
        attrs=_frame_attrs,
        operands=_window,
        out=_frames,
        terms=lambda ins, attrs: attrs["n_fft"],
        range=NONNEGATIVE,
        props=_EVEN,
    ),
)
