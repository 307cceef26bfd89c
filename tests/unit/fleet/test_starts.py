"""Starts: what began and did not end is known after every kind of death."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsgen.fleet import Journal, starts
from opsgen.fleet.starts import Starts

A, B = ("noop", "a"), ("noop", "b")


def test_only_what_was_killed_counts(tmp_path: Path) -> None:
    path = tmp_path / "started.jsonl"
    for number in range(3):
        killed = Starts(path)
        assert (killed.count(A), killed.count(B)) == (number, 0)
        killed.begin(A)
        killed.begin(B)
        killed.end(B)
    stopped = Starts(path)
    stopped.begin(A)
    stopped.close()
    again = Starts(path)
    assert again.count(A) == 3
    again.end(A)
    assert Starts(path).count(A) == 0


def test_a_line_torn_at_any_byte_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "started.jsonl"
    killed = Starts(path)
    killed.begin(A)
    start = path.stat().st_size
    killed.begin(B)
    whole = path.read_bytes()
    for end in range(start, len(whole)):
        path.write_bytes(whole[:end])
        torn = Starts(path)
        assert (torn.count(A), torn.count(B)) == (1, 0)
        torn.begin(B)
        assert Starts(path).count(B) == 1


def test_the_file_stays_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starts, "_MAX_LINES", 100)
    path = tmp_path / "started.jsonl"
    busy = Starts(path)
    busy.begin(A)
    for number in range(1000):
        busy.begin(("noop", str(number)))
        busy.end(("noop", str(number)))
        assert path.read_bytes().count(b"\n") <= 101
    assert Starts(path).count(A) == 1


def test_a_closed_journal_takes_no_more_starts(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.jsonl")
    journal.starts.begin(A)
    journal.close()
    journal.starts.withdraw()
    with Journal(tmp_path / "journal.jsonl") as again:
        assert again.starts.count(A) == 0


@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["begin", "end", "kill", "stop"]), st.sampled_from("abc"))
    )
)
def test_the_file_agrees_with_a_plain_count(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, str]]
) -> None:
    path = tmp_path_factory.mktemp("starts") / "started.jsonl"
    wanted: Counter[str] = Counter()
    running: set[str] = set()
    subject = Starts(path)
    for step, key in steps:
        if step == "begin" and key not in running:
            subject.begin(("noop", key))
            running.add(key)
            wanted[key] += 1
        elif step == "end" and key in running:
            subject.end(("noop", key))
            running.discard(key)
            wanted[key] = 0
        elif step == "kill":
            running.clear()
            subject = Starts(path)
        elif step == "stop":
            wanted.subtract(running)
            running.clear()
            subject.close()
            subject = Starts(path)
        assert all(subject.count(("noop", each)) == wanted[each] for each in "abc")
