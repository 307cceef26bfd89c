"""At a task's own tolerance honest variations pass and cheats fail."""

from __future__ import annotations

import pytest
from tolerance_cases import judge
from tolerance_table import CASES


@pytest.fixture(scope="module", params=CASES, ids=str)
def judged(request):
    return judge(request.param)


def test_honest_variations_pass(judged):
    assert judged.tolerance.error is not None
    assert {name: margin for name, margin in judged.honest.items() if not margin <= 1} == {}


def test_cheats_fail(judged):
    assert {name: margin for name, margin in judged.cheats.items() if margin <= 1} == {}
