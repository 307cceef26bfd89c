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

__all__ = ["COMPOSITES", "Builder", "Composite"]
