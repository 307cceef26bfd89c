"""Supervision of a child: one job at a time, and every way to fail has its reason.

Nothing that a job does reaches the supervisor's own process. An attempt ends
with evidence or with a fault; the supervisor never raises for either.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable
from types import TracebackType

import msgspec

from opsgen.child.deadline import CHECK_STAGE, START_STAGE, StageClock
from opsgen.child.endings import ending_of, num_oom_kills
from opsgen.child.faults import MAX_DETAIL_CHARS, NUM_LOG_LINES
from opsgen.child.frames import (
    Failed,
    FrameError,
    Job,
    LeaseHold,
    LeaseWait,
    Message,
    Ready,
    Result,
    Stage,
)
from opsgen.child.process import ChildConfig, Process, Unkillable
from opsgen.child.spare import SPARES, Spare
from opsgen.errors import reason_for
from opsgen.records import Evidence, Fault, Request

WATCH_S = 0.25
"""Seconds between looks at memory, cancellation and the pulse."""

MAX_EXIT_S = 2.0
"""How long a child that hung up may take to be gone."""

MAX_PROCESSES = 128
"""A child with more helpers is killed: a compiler needs a handful.

Not `RLIMIT_NPROC`, which counts all of a user's threads and spares root.
"""

_TASKLESS = {START_STAGE: "starting", CHECK_STAGE: "checking the device"}
_MAX_RESTING_SHARE = 0.5  # Of the memory limit: more than that between jobs is a leak.
_MAX_EARLY = 0.25  # Share of a child's life that it may be replaced early by.
_AHEAD_JOBS, _AHEAD_S = 3, 30.0  # What a process that loads everything needs, with some to spare.
_GOLDEN = (5**0.5 - 1) / 2


def _never() -> bool:
    return False


def spread(number: int) -> float:
    """Return the share in [0, 1) of the child with a number; any first few lie far apart."""
    return number * _GOLDEN % 1.0


class _Ended(Exception):  # noqa: N818 - ends the watch, whatever the cause
    """The attempt is over without an answer."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


class Child:
    """A slot that runs jobs in a process of its own, replaced whenever it has to be.

    The process starts with the first job, and serves until it has done
    `recycle_after` jobs, is too old or too fat, was spoiled, or died. Use it
    from one thread only, one that outlives it; `close` may come from any.

    Children that share a spare are replaced in turn: each a little earlier than the limits
    say, by a share of its own. They start together, and would otherwise all be replaced
    together, most of them by processes that have yet to load everything.
    """

    def __init__(self, config: ChildConfig) -> None:
        self.config = config
        self._spare: Spare | None = None
        self._number = 0
        if config.has_spare:
            self._spare, self._number = SPARES.borrow(config)
        self._num_oom_kills = 0
        self.pid = 0
        self.spoiled = ""
        self.hold_s = 0.0
        self.num_starts = 0
        self._process: Process | None = None
        self._num_jobs = 0
        self._is_closing = False
        self._busy = threading.Lock()

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def run(
        self,
        request: Request,
        *,
        is_fresh: bool = False,
        is_cancelled: Callable[[], bool] = _never,
    ) -> Evidence | Fault:
        """Run one job and return what came of it.

        Afterwards `pid` names the process that ran it, 0 if none could be started,
        `spoiled` what an answered job left behind in it, empty if nothing, and `hold_s`
        how many seconds it held the device, up to the kill if it was killed.

        Args:
            request: What to do; its tag names the job.
            is_fresh: The process must not have served another job before.
            is_cancelled: Looked at every `WATCH_S`; once true, the process is killed
                and the fault is `worker_lost`.
        """
        with self._busy:
            self.pid = 0
            self.spoiled = ""
            self.hold_s = 0.0
            clock = StageClock(self.config.fleet.deadlines_s, START_STAGE, time.monotonic())
            try:
                return self._attempt(request, clock, is_fresh, is_cancelled)
            except _Ended as end:
                return self._fault(end.reason, end.detail, clock.stage)
            except Exception as error:  # noqa: BLE001 - ours or the machine's, never the task's
                lines = traceback.format_exc().splitlines()[-NUM_LOG_LINES:]
                detail = f"{type(error).__name__}: {error}"
                fault = self._fault("infrastructure", detail, clock.stage)
                return msgspec.structs.replace(fault, log="\n".join(lines))
            finally:
                self.hold_s = clock.hold_s(time.monotonic())

    def close(self) -> None:
        """Kill the process; a job in progress ends as `worker_lost`."""
        self._is_closing = True
        with self._busy:
            self._drop()
            if self._spare is not None:
                self._spare = None
                SPARES.give_back(self.config, self._number)

    def _attempt(
        self,
        request: Request,
        clock: StageClock,
        is_fresh: bool,
        is_cancelled: Callable[[], bool],
    ) -> Evidence | Fault:
        if self._process is not None and self._must_replace(self._process, is_fresh):
            self._drop()
        if self._process is None:
            self._process = (self._spare and self._spare.take()) or Process(self.config)
            self.num_starts += 1
            self._num_jobs = 0
        process = self._process
        self.pid = process.pid
        self._num_jobs += 1
        self._num_oom_kills = num_oom_kills()
        process.clear_log()
        process.send(Job(request=request))
        answer = self._watch(process, clock, lambda: self._is_closing or is_cancelled())
        if answer.spoiled is not None:
            self.spoiled = answer.spoiled
            self._drop()
        if self._spare is not None:
            self._spare.prepare(str(request.__struct_config__.tag))
            if self._process is not None and self._is_over(_AHEAD_JOBS, _AHEAD_S):
                self._spare.hasten()
        return answer.evidence if isinstance(answer, Result) else _not_outside_tasks(answer.fault)

    def _watch(
        self, process: Process, clock: StageClock, is_cancelled: Callable[[], bool]
    ) -> Result | Failed:
        next_look_s = 0.0
        while True:
            now_s = time.monotonic()
            if now_s >= next_look_s:
                self._look(process, is_cancelled)
                next_look_s = time.monotonic() + WATCH_S
            _check_deadline(clock, now_s)
            # Asked before reading: what a dead child sent is there to be read.
            has_exited = process.has_exited()
            try:
                messages = process.receive(0.0 if has_exited else min(WATCH_S, clock.left_s(now_s)))
            except FrameError as error:
                for message in error.messages:  # Which stage it was tells whose fault it is.
                    _note(message, clock)
                raise _Ended("crash", f"garbage on its channel: {error}") from error
            for message in messages:
                answer = _note(message, clock)
                if answer is not None:
                    return answer
            # A helper that outlived the child can keep the channel open.
            if process.is_hung_up or (has_exited and not messages):
                raise self._end_of(process)

    def _look(self, process: Process, is_cancelled: Callable[[], bool]) -> None:
        if is_cancelled():
            raise _Ended("worker_lost", "the run was stopped")
        limit_gib = self.config.fleet.memory_limit_gib
        num_processes, rss_bytes = process.look()
        if num_processes > MAX_PROCESSES:
            detail = f"{num_processes} processes, the limit is {MAX_PROCESSES}"
            raise _Ended("crash", detail)
        if rss_bytes > limit_gib * 2**30 and num_processes > 1:
            # Forked helpers share memory that was counted for each of them.
            rss_bytes = process.share_bytes()
        rss_gib = rss_bytes / 2**30
        if rss_gib > limit_gib:
            detail = f"{rss_gib:.1f} GiB resident, the limit is {limit_gib:g} GiB"
            raise _Ended("host_oom", detail)

    def _end_of(self, process: Process) -> _Ended:
        """Return how a child that hung up ended; it is dead afterwards in any case."""
        give_up_s = time.monotonic() + MAX_EXIT_S
        while not process.has_exited():
            if time.monotonic() > give_up_s:
                process.kill()
                return _Ended("crash", "closed its channel and went on")
            time.sleep(0.002)
        code = process.kill()
        reason, detail = ending_of(
            code,
            peak_bytes=process.peak_rss_bytes,
            limit_bytes=self.config.fleet.memory_limit_gib * 2**30,
            is_oom_likely=num_oom_kills() > self._num_oom_kills,
        )
        return _Ended(reason, detail)

    def _must_replace(self, process: Process, is_fresh: bool) -> bool:
        fleet = self.config.fleet
        return (
            not process.is_quiet()
            or process.has_exited()
            or (is_fresh and self._num_jobs > 0)
            or self._is_over()
            or process.look()[1] > _MAX_RESTING_SHARE * fleet.memory_limit_gib * 2**30
        )

    def _is_over(self, ahead_jobs: int = 0, ahead_s: float = 0.0) -> bool:
        """Tell whether the process has done its share, or will have that much further on."""
        assert self._process is not None
        fleet = self.config.fleet
        early = _MAX_EARLY * spread(self._number)
        age_s = time.monotonic() - self._process.started_s + ahead_s
        num_jobs = self._num_jobs + ahead_jobs
        return (
            num_jobs >= fleet.recycle_after - int(early * fleet.recycle_after)
            or age_s > (1.0 - early) * fleet.max_child_age_s
        )

    def _fault(self, reason: str, detail: str, stage: str) -> Fault:
        """Kill the process and say what its end means."""
        log = self._process.log_tail() if self._process is not None else ""
        try:
            self._drop()
        except Unkillable as error:
            reason, detail = "infrastructure", f"{detail}; then {error}"
        detail = " ".join(detail.split())[:MAX_DETAIL_CHARS]
        return _not_outside_tasks(Fault(reason=reason, stage=stage, detail=detail, log=log))

    def _drop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.close()


def _not_outside_tasks(fault: Fault) -> Fault:
    """Hold the task harmless for a fault from where none of its code runs."""
    doing = _TASKLESS.get(fault.stage)
    if doing is None or reason_for(fault.reason).verdict != "rejected":
        return fault
    detail = f"{fault.reason} while {doing}: {fault.detail}"
    return msgspec.structs.replace(fault, reason="infrastructure", detail=detail)


def _check_deadline(clock: StageClock, now_s: float) -> None:
    if clock.left_s(now_s) > 0.0:
        return
    if clock.is_waiting:
        raise _Ended("infrastructure", "the device's lease was never free")
    raise _Ended(f"timeout:{clock.stage}", f"outlived its deadline of {clock.deadline_s:g} s")


def _note(message: Message, clock: StageClock) -> Result | Failed | None:
    """Take notice of a message; return it if it is the answer."""
    now_s = time.monotonic()
    match message:
        case Ready():
            return None
        case Stage():
            clock.enter(message.name, now_s)
        case LeaseWait():
            clock.set_waiting(message.is_waiting, now_s)
        case LeaseHold():
            clock.set_holding(message.is_held, now_s)
        case Result() | Failed():
            return message
        case _:
            raise _Ended("crash", "garbage on its channel: a message that no child sends")
    return None
