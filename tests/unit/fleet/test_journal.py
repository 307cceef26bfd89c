"""The journal loses nothing that was whole, and survives every tear."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsgen.errors import UsageError
from opsgen.fleet import Journal
from opsgen.records import Attempt, Evidence, Fault, NoopEvidence, read_lines
from opsgen.testing import faults, measure_evidence, probe_evidence


def _attempt(number: int, outcome: Evidence | Fault) -> Attempt:
    return Attempt(
        job="noop",
        key="k",
        number=number,
        evidence=None if isinstance(outcome, Fault) else outcome,
        fault=outcome if isinstance(outcome, Fault) else None,
        host="here",
        pid=1,
        started_s=0.0,
        wall_s=1.0,
    )


def _write(path: Path, attempts: list[Attempt]) -> None:
    with Journal(path) as journal:
        for attempt in attempts:
            journal.append(attempt)


@given(outcomes=st.lists(st.one_of(faults(), probe_evidence(), measure_evidence()), max_size=5))
def test_what_is_appended_is_loaded(
    tmp_path_factory: pytest.TempPathFactory, outcomes: list[Evidence | Fault]
) -> None:
    path = tmp_path_factory.mktemp("journal") / "journal.jsonl"
    attempts = [_attempt(number, outcome) for number, outcome in enumerate(outcomes)]
    _write(path, attempts)
    assert repr(list(read_lines(path, Attempt))) == repr(attempts)


def test_a_journal_torn_at_any_byte_loads_and_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    metrics = {"nan": float("nan"), "ms": 0.25}
    attempts = [_attempt(n, NoopEvidence(key="k", pid=n, metrics=metrics)) for n in range(3)]
    _write(path, attempts)
    whole = path.read_bytes()
    start = whole[:-1].rindex(b"\n") + 1
    for end in range(start, len(whole)):
        path.write_bytes(whole[:end])
        assert repr(list(read_lines(path, Attempt))) == repr(attempts[:2])
        _write(path, attempts[2:])
        assert path.read_bytes() == whole


@pytest.mark.parametrize("num_bytes", [0, 1, 200_000])
def test_a_journal_of_one_torn_line_starts_empty(tmp_path: Path, num_bytes: int) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b"{" * num_bytes)
    with Journal(path) as journal:
        assert list(journal.attempts()) == []
    assert path.stat().st_size == 0


def test_a_line_is_there_before_the_journal_is_closed(tmp_path: Path) -> None:
    attempt = _attempt(0, NoopEvidence(key="k", pid=1))
    with Journal(tmp_path / "new" / "journal.jsonl") as journal:
        journal.append(attempt)
        assert list(journal.attempts()) == list(read_lines(journal.path, Attempt)) == [attempt]


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    _write(path, [_attempt(0, NoopEvidence(key="k", pid=1))])
    path.write_bytes(path.read_bytes() + b'{"job": "noop"}\n')
    with pytest.raises(UsageError, match=r"journal\.jsonl: line 2 is no Attempt"):
        list(read_lines(path, Attempt))


def test_there_is_one_writer(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    with Journal(path), pytest.raises(UsageError, match="another run"):
        Journal(path)
    Journal(path).close()
