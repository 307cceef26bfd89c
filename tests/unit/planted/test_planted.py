"""Every planted defect is found for what it is, and its near neighbour is not."""

from __future__ import annotations

import execution_patterns
import liveness_patterns
import number_patterns
import pytest
import source_patterns
import state_patterns
import trivial_patterns
import variant_patterns
from planting import Pattern

from opsgen.records import Finding, Status, Verdict

pytestmark = pytest.mark.check  # a minute of probes

PATTERNS = (
    *source_patterns.PATTERNS,
    *liveness_patterns.PATTERNS,
    *trivial_patterns.PATTERNS,
    *number_patterns.PATTERNS,
    *execution_patterns.PATTERNS,
    *state_patterns.PATTERNS,
    *variant_patterns.PATTERNS,
)
NEIGHBOURS = {pattern.good: pattern for pattern in PATTERNS}
MODES = ("eager", "compile")
UNMEASURED = [Finding(criterion="unmeasured", witness="no measure evidence yet")]
UNCOMPILED = [Finding(criterion="unmeasured", witness="no evidence of a compiled run")]


# Told by what stands beside a task's source, so planted in the tests of labels and of sets.
ELSEWHERE = {1, 2, 12, 31, 39, 40, 41, 42, 43, 44}


def test_every_pattern_is_planted():
    numbers = {pattern.number for pattern in PATTERNS}
    assert sorted(numbers | ELSEWHERE) == list(range(1, 56))
    assert len({str(pattern) for pattern in PATTERNS}) == len(PATTERNS)


def stage(pattern: Pattern) -> object:
    marks = () if pattern.stage == "probe" else (pytest.mark.check,)
    return pytest.param(pattern, id=str(pattern), marks=marks)


@pytest.mark.parametrize("pattern", [stage(pattern) for pattern in PATTERNS])
def test_the_defect_is_found(pattern, probed, measured, judged):
    measure = measured(pattern.bad) if pattern.stage == "measure" else None
    verdict = judged(pattern.bad, probed(pattern.bad), measure, **dict(pattern.admit))
    assert found(verdict, pattern), verdict.failed


def found(verdict: Verdict, pattern: Pattern) -> bool:
    first, *_ = verdict.failed
    held = [finding for finding in verdict.failed if finding.criterion == pattern.criterion]
    return (
        verdict.status is Status.REJECTED
        and first.criterion in (*pattern.earlier, pattern.criterion)
        and any(pattern.witness in finding.witness for finding in held)
    )


@pytest.mark.parametrize("pattern", NEIGHBOURS.values(), ids=str)
def test_the_neighbour_passes_the_probe(pattern, probed, judged):
    verdict = judged(pattern.good, probed(pattern.good), **dict(pattern.admit))
    assert list(verdict.failed) == UNMEASURED


@pytest.mark.check
@pytest.mark.parametrize("pattern", NEIGHBOURS.values(), ids=str)
def test_the_neighbour_passes_at_full_size(pattern, probed, measured, judged):
    verdict = judged(
        pattern.good, probed(pattern.good), measured(pattern.good), **dict(pattern.admit)
    )
    assert list(verdict.failed) == UNCOMPILED


@pytest.mark.slow
@pytest.mark.parametrize("pattern", NEIGHBOURS.values(), ids=str)
def test_the_neighbour_is_admitted(pattern, probed, measured, judged):
    verdict = judged(
        pattern.good, probed(pattern.good), measured(pattern.good, MODES), **dict(pattern.admit)
    )
    assert verdict.status is Status.ADMITTED, verdict.failed
