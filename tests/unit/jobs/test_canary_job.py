"""The job that asks a device how it is."""

from __future__ import annotations

import dataclasses

import pytest

from opsgen.device import canary as device_canary
from opsgen.errors import MeasureError
from opsgen.jobs import canary
from opsgen.records import CanaryEvidence, CanaryRequest, decode_line, encode_line

REQUEST = CanaryRequest(device="cpu")


def test_the_first_answer_has_no_reference_and_later_ones_share_it(context) -> None:
    first, second, third = (canary.run(REQUEST, context) for _ in range(3))
    assert first.is_right
    assert first.reference_ms is None
    assert second.reference_ms == third.reference_ms == context.lease.logbook.reference_ms
    assert second.reference_ms > 0.0
    assert first.state is None  # NVML knows no CPU.
    assert decode_line(encode_line(second), CanaryEvidence) == second


def test_the_device_is_asked_under_the_lease(context, monkeypatch) -> None:
    held = []

    def run(device: str) -> tuple[bool, float]:
        held.append(context.lease.is_held)
        return True, 1.0

    monkeypatch.setattr(device_canary, "run_canary", run)
    canary.run(REQUEST, context)
    assert len(held) > 1
    assert all(held)
    assert not context.lease.is_held


def test_a_check_that_is_due_is_made_first(context, monkeypatch) -> None:
    canary.run(REQUEST, context)
    with context.lease.hold():
        page = context.lease.logbook.read()
    context.lease.logbook.write(dataclasses.replace(page, is_due=True))
    context.lease.verifier = None
    canary.run(REQUEST, context)
    assert not context.lease.logbook.read().is_due
    context.lease.logbook.write(dataclasses.replace(page, is_due=True))
    monkeypatch.setattr(device_canary._Work, "is_right", lambda work: False)
    with pytest.raises(MeasureError, match="wrong"):
        canary.run(REQUEST, context)
    assert context.lease.logbook.read().is_due


def test_a_wrong_device_is_evidence_once_it_was_right(context, monkeypatch) -> None:
    canary.run(REQUEST, context)
    monkeypatch.setattr(device_canary._Work, "is_right", lambda work: False)
    assert not canary.run(REQUEST, context).is_right


def test_a_device_that_was_never_right_has_no_reference(context, monkeypatch) -> None:
    monkeypatch.setattr(device_canary._Work, "is_right", lambda work: False)
    with pytest.raises(MeasureError, match="wrong"):
        canary.run(REQUEST, context)
    with context.lease.hold():
        assert context.lease.logbook.reference_ms is None
