"""What the run's tests share: a fleet without processes, and evidence that it answers with."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator

from steady import steady

from opsgen.fleet import Journal, Ledger
from opsgen.records import (
    Attempt,
    Effect,
    Environment,
    Fault,
    Lease,
    MeasureEvidence,
    MeasureRequest,
    PlanLine,
    ProbeEvidence,
    Request,
    Timing,
    Tolerance,
)
from opsgen.source import foreign_task

HERE = Environment(
    device="cpu",
    device_name="a CPU",
    driver=None,
    cuda=None,
    torch="2.13.0",
    triton=None,
    python="3.11",
    compiler="g++",
    num_threads=1,
    num_cores=2,
    opsgen="0.1.0",
)
PROBED = ProbeEvidence(
    num_draws=15,
    tolerances=(Tolerance(value=1e-3, error=1e-4, num_terms=1, is_assumed=False),),
    is_repeatable=True,
    is_pure=True,
    has_stable_inputs=True,
    mode_class="same",
    effects=(Effect(subject="node 0", change="deleted", margin=9.0),),
)

Answer = MeasureEvidence | Fault


def lines_of(num: int) -> list[PlanLine]:
    """Return plan lines of as many different tasks."""
    tasks = [foreign_task(f"x = {number}", origin="a.py", line=number) for number in range(num)]
    return [PlanLine(data_source="foreign", line=t.line, task=t, tries=()) for t in tasks]


def timed(median_ms: float, mode: str = "eager") -> Timing:
    """Return a timing with this median."""
    return steady(mode, median_ms)


def measured(median_ms: float = 2.0, **content: object) -> MeasureEvidence:
    """Return evidence with an eager time, and a compiled one half as long."""
    timings = (timed(median_ms), timed(median_ms / 2.0, "compile"))
    lease = Lease(wait_s=0.5, hold_s=0.25, num_holds=2, parts_s={"time": 0.15, "build": 0.05})
    known = {"environment_id": "here", "timings": timings, "lease": lease}
    return MeasureEvidence(**(known | content))  # type: ignore[arg-type]


class FakeFleet:
    """A fleet whose jobs take a second each and end in the order of their beginning.

    Args:
        answer: What a measurement comes to.
        window: Jobs in flight.
        stop_after: Attempts after which it is interrupted.

    Attributes:
        begun: Keys and requests in the order in which they were drawn.
    """

    num_devices = 2

    def __init__(
        self,
        answer: Callable[[str, MeasureRequest], Answer] = lambda key, request: measured(),
        window: int = 4,
        stop_after: int | None = None,
    ) -> None:
        self.begun: list[tuple[str, Request]] = []
        self._answer = answer
        self._window = window
        self._stop_after = stop_after
        self._now_s = 1e9

    def ask(self, request: Request) -> Environment:
        return HERE

    def run(
        self,
        requests: Iterable[tuple[str, Request]],
        journal: Journal,
        history: Iterable[Attempt] = (),
    ) -> Iterator[Attempt]:
        waiting, flying, ledger = iter(requests), deque[tuple[str, Request, int]](), Ledger(history)
        while True:
            for key, request in waiting:
                place = (str(request.__struct_config__.tag), key)
                assert not ledger.is_done(place), f"{key} is asked again"
                self.begun.append((key, request))
                flying.append((key, request, ledger.num_attempts(place)))
                if len(flying) >= self._window:
                    break
            if not flying:
                return
            attempt = self._attempt(*flying.popleft())
            journal.append(attempt)
            if ledger.add(attempt) is None:
                flying.append((attempt.key, request, attempt.number + 1))
            yield attempt

    def _attempt(self, key: str, request: Request, number: int) -> Attempt:
        if self._stop_after is not None:
            self._stop_after -= 1
            if self._stop_after < 0:
                raise KeyboardInterrupt
        is_measured = isinstance(request, MeasureRequest)
        outcome = self._answer(key, request) if isinstance(request, MeasureRequest) else PROBED
        self._now_s += 1.0
        return Attempt(
            job="measure" if is_measured else "probe",
            key=key,
            number=number,
            evidence=None if isinstance(outcome, Fault) else outcome,
            fault=outcome if isinstance(outcome, Fault) else None,
            host="here",
            pid=1,
            started_s=self._now_s - 1.0,
            wall_s=1.0,
        )
