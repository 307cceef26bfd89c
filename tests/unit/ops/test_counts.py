"""The catalogue is as wide as it says, counted without counting anything twice."""

from __future__ import annotations

import torch

from opsgen.ops import CATALOGUE
from opsgen.ops.counting import VARIANTS, computing_ops, is_view, qualified_names, reachable_ops
from opsgen.ops.determinism import NOT_REPEATABLE_BACKWARD
from opsgen.sampler.table import Contents, Paths, Table


def test_the_catalogue_is_as_wide_as_promised() -> None:
    assert len(computing_ops()) >= 300
    assert len(qualified_names(reachable_ops())) >= 450


def test_what_counts_is_what_tasks_can_hold() -> None:
    """Every op that counts opens a sequence of the sampler's own table."""
    singles = Table(Contents(1)), Table(Contents(1, paths=Paths(with_operands=True)))
    held = {table.sequence(number)[0] for table in singles for number in range(table.size)}
    assert {op.name for op in computing_ops()} <= held


def test_variants_and_views_do_not_count() -> None:
    counted = {op.name for op in computing_ops()}
    assert counted.isdisjoint(VARIANTS)
    assert VARIANTS.keys() | set(VARIANTS.values()) <= CATALOGUE.keys()
    assert VARIANTS.keys().isdisjoint(VARIANTS.values())
    assert not any(is_view(CATALOGUE[name]) for name in counted)


def test_the_hand_list_stands_on_torchs_own_page() -> None:
    page = torch.use_deterministic_algorithms.__doc__
    assert NOT_REPEATABLE_BACKWARD.keys() <= CATALOGUE.keys()
    assert all(name in page for name in NOT_REPEATABLE_BACKWARD.values())
    for op in CATALOGUE.values():
        forward = op.is_deterministic
        assert op.is_backward_deterministic == (forward and op.name not in NOT_REPEATABLE_BACKWARD)


def test_modules_that_torchs_page_names_are_on_the_list() -> None:
    """No entry is spelled with a module that torch's page gives up on, and missing here."""
    page = torch.use_deterministic_algorithms.__doc__.partition("operations will throw a")[2]
    for op in CATALOGUE.values():
        named = [s.name for s in op.spellings if s.name.startswith("torch.nn.") and s.init]
        if any(f"`{name}`" in page for name in named):
            assert not op.is_backward_deterministic, op.name
