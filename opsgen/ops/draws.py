"""Input distributions that `get_inputs` can use, with the values they produce."""

from __future__ import annotations

from dataclasses import dataclass

from opsgen.ops.intervals import NONNEGATIVE, POSITIVE, REAL, SIGNED_UNIT, UNIT, Interval


@dataclass(frozen=True, slots=True)
class InputDraw:
    """One way to draw an input.

    Attributes:
        source: Template over `{shape}`, `{dtype}` (empty or `, dtype=...`) and `{high}`.
        range: Values that it produces.
        kind: `float`, `int64` or `bool`.
    """

    source: str
    range: Interval
    kind: str = "float"


# torch.rand includes 0: the affine maps below keep strictly inside open domains.
DRAWS: dict[str, InputDraw] = {
    "normal": InputDraw("torch.randn({shape}{dtype})", REAL),
    "unit": InputDraw("torch.rand({shape}{dtype})", Interval(0.0, 1.0, open_high=True)),
    "open_unit": InputDraw("torch.rand({shape}{dtype}) * 0.98 + 0.01", Interval(0.01, 0.99)),
    "signed_unit": InputDraw("torch.rand({shape}{dtype}) * 1.9 - 0.95", Interval(-0.96, 0.96)),
    "positive": InputDraw("torch.rand({shape}{dtype}) + 0.5", Interval(0.5, 1.5)),
    "above_one": InputDraw("torch.rand({shape}{dtype}) + 1.1", Interval(1.1, 2.1)),
    "negative": InputDraw("torch.rand({shape}{dtype}) * -4.0 - 0.1", Interval(-4.1, -0.1)),
    "wide": InputDraw("torch.randn({shape}{dtype}) * 3", REAL),
    "shifted": InputDraw("torch.randn({shape}{dtype}) + 1", REAL),
    "heavy_tailed": InputDraw("torch.randn({shape}{dtype}) ** 3", REAL),
    "rectified": InputDraw("torch.randn({shape}{dtype}).relu()", NONNEGATIVE),
    "lognormal": InputDraw("torch.randn({shape}{dtype}).exp()", POSITIVE),
    "sign": InputDraw("torch.rand({shape}{dtype}).round() * 2 - 1", SIGNED_UNIT),
    "ascending": InputDraw("torch.randn({shape}{dtype}).sort()[0]", REAL),
    "index": InputDraw("torch.randint(0, {high}, ({shape},))", REAL, "int64"),
    "mask": InputDraw("torch.rand({shape}) > 0.5", UNIT, "bool"),
}

_FLOAT_PREFERENCE = (
    "normal",
    "signed_unit",
    "unit",
    "positive",
    "open_unit",
    "above_one",
    "negative",
    "wide",
    "shifted",
    "heavy_tailed",
    "rectified",
    "lognormal",
)


def draws_within(domain: Interval) -> tuple[str, ...]:
    """Return the names of floating draws whose values all lie in `domain`, the usual one first."""
    return tuple(name for name in _FLOAT_PREFERENCE if DRAWS[name].range.within(domain))
