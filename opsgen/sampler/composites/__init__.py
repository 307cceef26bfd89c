"""Composites: building blocks of today's models as recipes over the catalogue.

`builder` holds the form of a recipe and the hand it writes with; one file for
each family holds the recipes. A composite counts as one op to a task's level
and as several to everything that looks into its graph.
"""

from opsgen.sampler.composites.attention import ATTENTION
from opsgen.sampler.composites.builder import Builder, Composite
from opsgen.sampler.composites.mixer import MIXER
from opsgen.sampler.composites.mlp import MLP
from opsgen.sampler.composites.norm import NORM
from opsgen.sampler.composites.position import POSITION
from opsgen.sampler.composites.routing import ROUTING
from opsgen.sampler.composites.vision import VISION

COMPOSITES: dict[str, Composite] = {
    composite.name: composite
    for composite in sorted(
        (*MLP, *NORM, *POSITION, *ATTENTION, *ROUTING, *MIXER, *VISION),
        key=lambda composite: composite.name,
    )
}

_PREFIX = "blocks."  # an op of the catalogue may bear the name of a composite


def sequence_of(composite: str) -> tuple[str, ...]:
    """Return what a plan's line has as its sequence for a composite."""
    return (_PREFIX + composite,)


def composite_of(sequence: tuple[str, ...]) -> Composite | None:
    """Return the composite that a line's sequence names; None for a sequence of ops."""
    name = sequence[0].removeprefix(_PREFIX)
    return COMPOSITES[name] if name != sequence[0] else None


__all__ = ["COMPOSITES", "Builder", "Composite", "composite_of", "sequence_of"]
