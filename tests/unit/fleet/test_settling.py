"""Settling: what attempts amount to, by the table of reasons."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from opsgen.errors import REASONS, reason_for
from opsgen.fleet import Ledger, Settled, settle
from opsgen.records import Attempt, Fault, NoopEvidence

_REASONS = st.sampled_from([*REASONS, "timeout:eager", "timeout:compile"])
_OK = "ok"


def _attempt(number: int, outcome: str, key: str = "k") -> Attempt:
    is_ok = outcome == _OK
    return Attempt(
        job="noop",
        key=key,
        number=number,
        evidence=NoopEvidence(key=key, pid=1) if is_ok else None,
        fault=None if is_ok else Fault(reason=outcome, stage="noop", detail=""),
        host="here",
        pid=1,
        started_s=0.0,
        wall_s=1.0,
    )


def _play(*outcomes: str) -> tuple[int, Settled | None]:
    """Return how many of the outcomes it takes to settle, and the outcome."""
    attempts: list[Attempt] = []
    settled = None
    for number, outcome in enumerate(outcomes):
        attempts.append(_attempt(number, outcome))
        settled = settle(attempts)
        if settled is not None:
            break
    return len(attempts), settled


def test_nothing_settles_nothing() -> None:
    assert settle([]) is None


def test_an_answer_settles() -> None:
    assert _play(_OK)[0] == 1
    num_attempts, settled = _play("crash", _OK)
    assert num_attempts == 2
    assert settled is not None
    assert settled.evidence is not None
    assert not settled.is_deferred


def test_an_exception_needs_no_second_try() -> None:
    num_attempts, settled = _play("raised")
    assert num_attempts == 1
    assert settled is not None
    assert settled.fault is not None


def test_faults_of_the_task_confirm_each_other() -> None:
    num_attempts, settled = _play("crash", "timeout:eager", "crash")
    assert num_attempts == 2
    assert settled is not None
    assert settled.fault is not None
    assert settled.fault.reason == "timeout:eager"


def test_a_lost_worker_confirms_no_crash() -> None:
    outcomes = ["crash", *["worker_lost"] * 5, "infrastructure", "crash"]
    num_attempts, settled = _play(*outcomes)
    assert num_attempts == len(outcomes)
    assert settled is not None
    assert settled.fault is not None
    assert not settled.is_deferred


def test_a_machine_that_keeps_failing_defers() -> None:
    num_attempts, settled = _play(*["infrastructure"] * 9)
    assert num_attempts == 6
    assert settled is not None
    assert settled.is_deferred


@given(reason=_REASONS)
def test_every_reason_gets_its_retries(reason: str) -> None:
    num_attempts, settled = _play(*[reason] * 20)
    assert num_attempts == reason_for(reason).num_retries + 1
    assert settled is not None
    assert settled.is_deferred == (reason_for(reason).verdict == "deferred")


@given(outcomes=st.lists(_REASONS, min_size=40, max_size=40))
def test_retries_end(outcomes: list[str]) -> None:
    num_attempts, settled = _play(*outcomes)
    assert settled is not None
    assert num_attempts <= 2 + sum(
        reason.num_retries + 1 for reason in REASONS.values() if reason.verdict == "deferred"
    )


@given(outcomes=st.lists(st.one_of(_REASONS, st.just(_OK)), max_size=12))
def test_an_answer_always_wins(outcomes: list[str]) -> None:
    settled = settle([_attempt(number, name) for number, name in enumerate(outcomes)])
    if _OK in outcomes:
        assert settled is not None
        assert settled.attempt.number == outcomes.index(_OK)


@given(outcomes=st.lists(st.one_of(_REASONS, st.just(_OK)), max_size=12))
def test_a_ledger_says_what_settle_says(outcomes: list[str]) -> None:
    ledger = Ledger()
    attempts: list[Attempt] = []
    for number, outcome in enumerate(outcomes):
        attempts.append(_attempt(number, outcome))
        settled = ledger.add(attempts[-1])
        assert settled == settle(attempts)
        if settled is not None:
            break


def test_a_ledger_keeps_keys_apart_and_ignores_what_it_knows() -> None:
    ledger = Ledger([_attempt(0, "crash", "a"), _attempt(0, _OK, "b")])
    assert ledger.add(_attempt(0, "crash", "a")) is None
    assert ledger.num_attempts(("noop", "a")) == 1
    assert ledger.is_done(("noop", "b"))
    assert not ledger.is_done(("noop", "a"))
    assert ledger.add(_attempt(1, "crash", "a")) is not None
    assert ledger.is_done(("noop", "a"))


def test_a_deferred_job_may_be_opened_again_with_all_its_retries() -> None:
    ledger = Ledger([_attempt(number, "worker_lost") for number in range(6)])
    key = ("noop", "k")
    assert not ledger.is_done(key)
    assert ledger.num_attempts(key) == 6
    assert ledger.add(_attempt(6, "worker_lost")) is None
    assert ledger.add(_attempt(7, _OK)) is not None
