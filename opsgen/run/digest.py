"""The digest that names a run: everything that determines what is sampled and seen."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

import msgspec

import opsgen
from opsgen.recipe import Recipe
from opsgen.records import digest
from opsgen.sampler import calibration_digest, pairs_digest
from opsgen.source.fingerprints import load_table

# Rooms whose source determines tasks or evidence. What is built on evidence is left out:
# verdicts and releases are made anew from it.
_ROOMS = ("ops", "sampler", "render", "source", "verify", "device", "jobs")


def run_digest(recipe: Recipe) -> str:
    """Return a digest of all that determines evidence: not numbers wanted, nor worker counts.

    Raises:
        UsageError: The recipe names a benchmark that there is no table of.
    """
    tables = tuple(load_table(name).digest for name in recipe.probe.benchmarks)
    return digest(
        recipe.seed,
        recipe.sample,
        msgspec.structs.replace(recipe.probe, benchmarks=tables),
        recipe.measure,
        recipe.fleet.deadlines_s,
        recipe.fleet.memory_limit_gib,
        calibration_digest(recipe.sample.calibration),
        pairs_digest(),
        source_digest(),
        opsgen.__version__,
    )


@cache
def source_digest() -> str:
    """Return a digest of the source that samples and looks.

    Runs made before a change of it are kept apart from runs made after it: the
    same line could be another task, or the same task be seen with other eyes.
    """
    root = Path(__file__).parents[1]
    state = hashlib.blake2b(digest_size=8)
    for room in _ROOMS:
        for path in sorted((root / room).rglob("*.py")):
            state.update(path.read_bytes())
    return state.hexdigest()
