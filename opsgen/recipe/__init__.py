"""The recipe: a TOML file that is strict about its keys.

`schema` holds the sections with their defaults, `reading` turns a file and
overrides into a `Recipe` or one clear line. Nothing here reads the catalogue
or touches a device. Imports `records` and `errors` only.
"""

from opsgen.recipe.reading import convert_recipe, read_recipe, write_recipe
from opsgen.recipe.schema import (
    AdmitConfig,
    FleetConfig,
    MeasureConfig,
    ProbeConfig,
    Recipe,
    ReleaseConfig,
    SampleConfig,
)

__all__ = [
    "AdmitConfig",
    "FleetConfig",
    "MeasureConfig",
    "ProbeConfig",
    "Recipe",
    "ReleaseConfig",
    "SampleConfig",
    "convert_recipe",
    "read_recipe",
    "write_recipe",
]
