"""Which ops can stand in a task that returns gradients: lists made by hand, held by tests.

A gradient task needs every op to be differentiable, and at least one whose derivative
depends on where it is taken: through linear ops alone the gradient forgets the input.
"""

from __future__ import annotations

from opsgen.ops.entry import Attrs, Kind, Op

NOT_DIFFERENTIABLE: frozenset[str] = frozenset(
    {
        "airy_ai",
        "bessel_j0",
        "bessel_j1",
        "bessel_y0",
        "bessel_y1",
        "chebyshev_polynomial_t",
        "chebyshev_polynomial_u",
        "chebyshev_polynomial_v",
        "chebyshev_polynomial_w",
        "hermite_polynomial_h",
        "hermite_polynomial_he",
        "i0",
        "i1",
        "laguerre_polynomial_l",
        "legendre_polynomial_p",
        "modified_bessel_k0",
        "modified_bessel_k1",
        "scaled_modified_bessel_k0",
        "scaled_modified_bessel_k1",
        "shifted_chebyshev_polynomial_t",
        "shifted_chebyshev_polynomial_u",
        "shifted_chebyshev_polynomial_v",
        "shifted_chebyshev_polynomial_w",
        "spherical_bessel_j0",
    }
)
"""Entries with a spelling for which torch 2.13 has no derivative."""

STEEP: frozenset[str] = frozenset({"entr", "power", "sqrt"})
"""Entries whose derivative is infinite at an edge of their domain that inputs can hit."""

LINEAR: frozenset[str] = frozenset(
    {
        "add_scalar",
        "adaptive_avg_pool1d",
        "adaptive_avg_pool2d",
        "adaptive_avg_pool3d",
        "avg_pool1d",
        "avg_pool2d",
        "avg_pool3d",
        "cumsum",
        "cumulative_trapezoid",
        "deg2rad",
        "diff",
        "fft2_real",
        "fft_real",
        "gradient",
        "hfft",
        "irfft",
        "irfft2",
        "linear",
        "mean",
        "mul_scalar",
        "neg",
        "rad2deg",
        "rfft_parts",
        "rsub_scalar",
        "sum",
        "trapezoid",
    }
)
"""Entries whose derivative is the same everywhere, beside whole kinds: see `is_curved`."""

_SOMETIMES_LINEAR = frozenset({"hardsigmoid", "renorm"})
_LINEAR_KINDS = (Kind.LAYOUT, Kind.CONVOLUTION, Kind.RESAMPLE)
_ATOMIC_PADDINGS = ("reflect", "replicate")


def has_gradient(op: Op) -> bool:
    """Whether an op of one floating input may stand in a gradient task."""
    is_continuous = "jumps" not in op.props and op.in_dtype == op.out_dtype == "float"
    # Convolutions repeat backward unless they pad by reflection: see `repeats_backward`.
    repeats = op.is_backward_deterministic or op.kind is Kind.CONVOLUTION
    return is_continuous and repeats and op.name not in NOT_DIFFERENTIABLE | STEEP


def is_curved(op: Op) -> bool:
    """Whether its derivative depends on the input, for any attributes."""
    is_linear = op.kind in _LINEAR_KINDS or op.name in LINEAR
    return not is_linear and op.name not in _SOMETIMES_LINEAR


def repeats_backward(op: Op, attrs: Attrs) -> bool:
    """Whether the gradients of an op with these attributes repeat bitwise on a GPU."""
    if op.kind is Kind.CONVOLUTION:
        return attrs.get("padding_mode") not in _ATOMIC_PADDINGS
    return op.is_backward_deterministic
