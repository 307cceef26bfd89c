"""Tasks of a shipped recipe, straight from its plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from opsgen.recipe import Recipe, read_recipe
from opsgen.records import Task
from opsgen.render import render_task
from opsgen.sampler import Plan

PIPELINES = Path(__file__).parents[2] / "pipelines"


@pytest.fixture
def planned() -> Callable[[Recipe, int], Iterator[Task | None]]:
    """Return a function from a recipe and a number of lines to their tasks.

    Classes have the recipe's proportions; a line without a graph gives None.
    """

    def tasks(recipe: Recipe, num_lines: int) -> Iterator[Task | None]:
        plan = Plan(recipe.seed, recipe.sample)
        want = recipe.release.want
        for data_source, number in want.items():
            for line in range(round(num_lines * number / sum(want.values())) or 1):
                made = plan.line(data_source, line)
                yield render_task(made) if made.sampled else None

    return tasks


@pytest.fixture
def shipped() -> Callable[..., Recipe]:
    """Return a function from the name of a shipped recipe to it, with some classes or all.

    The legal tables of long classes take seconds to enumerate.
    """

    def recipe(name: str, *classes: str) -> Recipe:
        whole = read_recipe(PIPELINES / f"{name}.toml")
        want = {key: whole.release.want[key] for key in classes or whole.release.want}
        return replace(whole, release=replace(whole.release, want=want))

    return recipe
