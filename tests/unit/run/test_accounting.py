"""Whatever faults come in whatever order, every task is accounted for, once.

A state machine of the pure part of a run: what is asked for next (`pending`), what an attempt
settles (`Ledger`), what the journal amounts to (`join_cases`, `admit_all`), and what a new session
makes of it (`forgive`). The fleet is replaced by hypothesis.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from opsgen.admit import admit_all, funnel, pending
from opsgen.errors import REASONS
from opsgen.fleet import Ledger
from opsgen.recipe import Recipe
from opsgen.records import (
    Attempt,
    Environment,
    Fault,
    MeasureEvidence,
    ProbeEvidence,
    Status,
    Task,
    encode_line,
    read_lines,
)
from opsgen.run import join_cases, measure_key
from opsgen.run.cases import forgive
from opsgen.testing import environments, measure_evidence, plans, probe_evidence

RECIPE = Recipe(name="machine", seed=1)
REASON_NAMES = sorted(REASONS.keys() - {"unmeasured"})


class Accounting(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()
        self.journal = Path(self.folder.name) / "journal.jsonl"
        self.attempts: list[Attempt] = []
        self.num_old = 0
        self.ledger = Ledger()

    @initialize(plan=plans(), environment=environments())
    def sample(self, plan: list[object], environment: Environment) -> None:
        self.tasks: list[Task] = [case.task for case in plan]  # type: ignore[attr-defined]
        self.environment = environment

    def _asked(self) -> list[tuple[str, str]]:
        old = forgive(self.attempts[: self.num_old])
        cases = join_cases(self.tasks, old + self.attempts[self.num_old :], self.environment)
        asked = pending(cases, RECIPE)
        keys = [("probe", task.task_id) for task in asked.probe]
        keys += [("measure", measure_key(task, self.environment)) for task in asked.measure]
        return sorted(set(keys))

    def _record(self, key: tuple[str, str], **content: object) -> None:
        number = self.ledger.num_attempts(key)
        attempt = Attempt(
            job=key[0],
            key=key[1],
            number=number,
            host="here",
            pid=1,
            started_s=0.0,
            wall_s=0.0,
            **content,  # type: ignore[arg-type]
        )
        self.attempts.append(attempt)
        self.ledger.add(attempt)
        with self.journal.open("ab") as file:
            file.write(encode_line(attempt) + b"\n")

    @precondition(lambda self: self._asked())
    @rule(data=st.data(), probe=probe_evidence(), measure=measure_evidence())
    def answer(self, data: st.DataObject, probe: ProbeEvidence, measure: MeasureEvidence) -> None:
        key = data.draw(st.sampled_from(self._asked()))
        self._record(key, evidence=probe if key[0] == "probe" else measure)

    @precondition(lambda self: self._asked())
    @rule(data=st.data(), reason=st.sampled_from(REASON_NAMES))
    def fail(self, data: st.DataObject, reason: str) -> None:
        key = data.draw(st.sampled_from(self._asked()))
        self._record(key, fault=Fault(reason=reason, stage="eager", detail="planted"))

    @rule()
    def start_again(self) -> None:
        self.attempts = list(read_lines(self.journal, Attempt))
        self.num_old = len(self.attempts)
        self.ledger = Ledger(self.attempts)

    @rule(torn=st.binary(min_size=1, max_size=40).filter(lambda data: b"\n" not in data))
    def tear_the_last_line(self, torn: bytes) -> None:
        whole = self.journal.read_bytes() if self.journal.exists() else b""
        self.journal.write_bytes(whole + torn)
        assert len(list(read_lines(self.journal, Attempt))) == len(self.attempts)
        self.journal.write_bytes(whole)

    @invariant()
    def every_task_is_accounted_for_once(self) -> None:
        verdicts = admit_all(join_cases(self.tasks, self.attempts, self.environment), RECIPE)
        counts = funnel(verdicts)
        assert counts.sampled == len(self.tasks)
        assert counts.admitted + counts.num_rejected + counts.num_deferred == counts.sampled
        for verdict in verdicts:
            assert (verdict.status is Status.ADMITTED) == (verdict.reason is None)
            if verdict.reason is not None:
                assert verdict.witness

    @invariant()
    def nothing_is_asked_twice(self) -> None:
        numbers = [(a.job, a.key, a.number) for a in self.attempts]
        assert len(numbers) == len(set(numbers))
        answered = {(a.job, a.key) for a in self.attempts if a.evidence is not None}
        assert not answered & set(self._asked())

    @invariant()
    def what_the_ledger_settled_is_not_asked_for(self) -> None:
        assert not any(self.ledger.is_done(key) for key in self._asked())

    @invariant()
    def the_machines_faults_reject_nobody(self) -> None:
        verdicts = admit_all(join_cases(self.tasks, self.attempts, self.environment), RECIPE)
        for verdict in verdicts:
            if verdict.reason in {"infrastructure", "worker_lost", "gpu_oom"}:
                assert verdict.status is Status.DEFERRED

    @invariant()
    def the_journal_is_what_happened(self) -> None:
        written = list(read_lines(self.journal, Attempt))
        assert repr(written) == repr(self.attempts)
        assert msgspec.msgpack.encode(written) == msgspec.msgpack.encode(self.attempts)

    def teardown(self) -> None:
        self.folder.cleanup()


TestAccounting = Accounting.TestCase
TestAccounting.settings = settings(
    max_examples=25,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
