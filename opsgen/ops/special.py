"""Special functions of one and two tensors, orthogonal polynomials among them.

Left out: functions whose results leave the range of a float32 on ordinary
inputs, and those with poles that no interval keeps away. Their kernels are
compiled for float32 and float64 only.
"""

from __future__ import annotations

import math
from typing import Any

from opsgen.ops.binary import elementwise
from opsgen.ops.entry import Kind, Op, spell
from opsgen.ops.intervals import (
    AWAY_FROM_ZERO,
    NEAR_SIGNED_UNIT,
    OPEN_UNIT,
    SIGNED_EXPONENT,
    SIGNED_UNIT,
    UNIT,
    Interval,
    Range,
)

_INCREASING = frozenset({"increasing"})
_EVEN = frozenset({"even"})
_ODD = frozenset({"odd"})
_ORDERS = (2, 3, 4)


def _special(name: str, *calls: str, **fields: Any) -> Op:
    """An op spelled `torch.special.<name>`, or as `calls` say."""
    spellings = tuple(spell(call) for call in calls or (f"torch.special.{name}({{x}})",))
    settings: dict[str, Any] = {"is_full_precision": True, **fields}
    # Rational and asymptotic approximations: tens of operations for each element.
    return Op(
        name,
        Kind.POINTWISE,
        spellings,
        ranks=(2, 3, 4, 5),
        flops=lambda ins, attrs, out: 20 * math.prod(out),
        **settings,
    )


def _decreasing_from(high: float) -> Range:
    """Range of a positive function that falls from `high` at 0.1 and underflows to zero."""
    return Interval(0.0, high)


_BESSEL = (
    _special("airy_ai", range=Interval(-0.43, 0.54)),
    _special("bessel_y0", domain=AWAY_FROM_ZERO, range=Interval(-1.54, 0.53)),
    _special("bessel_y1", domain=AWAY_FROM_ZERO, range=Interval(-6.47, 0.42)),
    _special(
        "i0",
        "torch.i0({x})",
        "torch.special.i0({x})",
        "{x}.i0()",
        "torch.special.modified_bessel_i0({x})",
        domain=SIGNED_EXPONENT,
        range=Interval(1.0, 2816.0),
        props=_EVEN,
    ),
    _special(
        "i1",
        "torch.special.i1({x})",
        "torch.special.modified_bessel_i1({x})",
        domain=SIGNED_EXPONENT,
        range=Interval(-2671.0, 2671.0),
        props=_ODD | _INCREASING,
    ),
    _special("modified_bessel_k0", domain=AWAY_FROM_ZERO, range=_decreasing_from(2.43)),
    _special("modified_bessel_k1", domain=AWAY_FROM_ZERO, range=_decreasing_from(9.86)),
    _special("scaled_modified_bessel_k0", domain=AWAY_FROM_ZERO, range=_decreasing_from(2.69)),
    _special("scaled_modified_bessel_k1", domain=AWAY_FROM_ZERO, range=_decreasing_from(10.9)),
    _special("spherical_bessel_j0", range=Interval(-0.22, 1.001), props=_EVEN),
)

_ERROR_AND_GAMMA = (
    _special(
        "erfcx",
        # exp(x * x) * erfc(x) grows without bounds to the left.
        domain=Interval(-2.0, math.inf),
        range=_decreasing_from(110.0),
    ),
    _special("ndtri", domain=OPEN_UNIT, props=_INCREASING),
    _special(
        "polygamma",
        "torch.polygamma({n}, {x})",
        "torch.special.polygamma({n}, {x})",
        "{x}.polygamma({n})",
        attrs=lambda draw, ins: draw.pick(n=(1, 2)),
        domain=AWAY_FROM_ZERO,
        range=Interval(-2010.0, 102.0),
    ),
    _special(
        "multigammaln",
        "torch.mvlgamma({x}, {p})",
        "torch.special.multigammaln({x}, {p})",
        "{x}.mvlgamma({p})",
        attrs=lambda draw, ins: draw.pick(p=(2, 3)),
        # Defined above (p - 1) / 2.
        domain=Interval(1.1, math.inf),
        passes=6.0,
    ),
    elementwise(
        "zeta",
        spell("torch.special.zeta({x}, {y})"),
        domain=Interval(1.1, 4.0),
        operands=(("q", Interval(0.5, 10.0)),),
        range=Interval(0.0, 20.0),
        is_full_precision=True,
    ),
    elementwise(
        "gammainc",
        spell("torch.special.gammainc({x}, {y})"),
        spell("torch.igamma({x}, {y})"),
        spell("{x}.igamma({y})"),
        domain=AWAY_FROM_ZERO,
        operands=(("y", AWAY_FROM_ZERO),),
        range=UNIT,
        is_full_precision=True,
    ),
    elementwise(
        "gammaincc",
        spell("torch.special.gammaincc({x}, {y})"),
        spell("torch.igammac({x}, {y})"),
        spell("{x}.igammac({y})"),
        domain=AWAY_FROM_ZERO,
        operands=(("y", AWAY_FROM_ZERO),),
        range=UNIT,
        is_full_precision=True,
    ),
)


def _polynomial(name: str, domain: Interval, range_: Interval) -> Op:
    """A family of orthogonal polynomials on `domain`, of the first few orders."""
    return _special(
        name,
        f"torch.special.{name}({{x}}, {{n}})",
        attrs=lambda draw, ins: draw.pick(n=_ORDERS),
        domain=domain,
        range=range_,
    )


# Of order 4 at the ends of the domain, where the four kinds are largest.
_CHEBYSHEV = {
    "t": NEAR_SIGNED_UNIT,
    "u": Interval(-5.01, 5.01),
    "v": Interval(-9.01, 9.01),
    "w": Interval(-9.01, 9.01),
}

_POLYNOMIALS = (
    *[
        _polynomial(f"{prefix}chebyshev_polynomial_{kind}", domain, range_)
        for prefix, domain in (("", SIGNED_UNIT), ("shifted_", UNIT))
        for kind, range_ in _CHEBYSHEV.items()
    ],
    _polynomial("hermite_polynomial_h", SIGNED_UNIT, Interval(-20.1, 12.1)),
    _polynomial("hermite_polynomial_he", SIGNED_UNIT, Interval(-2.01, 3.01)),
    _polynomial("laguerre_polynomial_l", SIGNED_UNIT, Interval(-0.71, 8.8)),
    _polynomial("legendre_polynomial_p", SIGNED_UNIT, NEAR_SIGNED_UNIT),
)

OPS = (*_BESSEL, *_ERROR_AND_GAMMA, *_POLYNOMIALS)
