"""One warm process that stands by, for whichever child of a worker dies next.

A process started ahead, not a template that forks: it is the supervisor's own
child, so that its death is noticed and explained like any other, and a fork
could not be made once a job had started CUDA, OpenMP's or autograd's threads.
Until a measurement that follows a crash is done, the crash costs 0.8 s instead of
13.3 s on two cores, where the spare is ready again after 14 s and holds 0.44 GiB; and
3.0 s instead of 12.7 s on an H200, where the spare has no context: 0.5 s is the
measurement, the rest is CUDA's and Triton's start.
"""

from __future__ import annotations

import itertools
import logging
import os
import threading
import time

import msgspec
import psutil

from opsgen.child.frames import FrameError, Ready
from opsgen.child.process import ChildConfig, Process

MIN_IDLE_CORES = 1.0
"""Starting a spare takes seconds of one core, which must not be missed by running jobs."""

_MAX_FAILURES = 3
_POLL_S = 0.5

logger = logging.getLogger(__name__)


class Spare:
    """Keeps one process started, with the jobs loaded that were asked for.

    It starts when a job has been done, so the first ones are not slowed down,
    and when cores idle or a child is soon to be replaced. Linux ties a process to the thread that started it:
    that is a thread of this object, which ends after the last of its processes.

    Args:
        config: How to start it: the config of the children that it may replace.
    """

    def __init__(self, config: ChildConfig) -> None:
        self._config = config
        self._change = threading.Condition()
        self._jobs: tuple[str, ...] = ()
        self._process: Process | None = None
        self._is_ready = False
        self._is_wanted = False
        self._is_closed = False
        self._started: list[Process] = []
        self._thread: threading.Thread | None = None

    @property
    def pid(self) -> int:
        """The process that stands by, 0 if none does."""
        with self._change:
            return self._process.pid if self._process is not None else 0

    @property
    def is_ready(self) -> bool:
        """A process stands by and has loaded everything."""
        with self._change:
            return self._is_ready

    def prepare(self, job: str) -> None:
        """Have a process stand by that has loaded `job`; returns at once."""
        with self._change:
            if job in self._jobs or self._is_closed:
                return
            self._jobs = (*self._jobs, job)
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="spare", daemon=True)
                self._thread.start()
            self._change.notify()

    def hasten(self) -> None:
        """Have it start whether cores idle or not; returns at once.

        A child that is replaced without it would load the same, and be missed meanwhile.
        """
        with self._change:
            self._is_wanted = True
            self._change.notify()

    def take(self) -> Process | None:
        """Hand over the process that stands by, ready or still loading; None if none does."""
        with self._change:
            process, self._process = self._process, None
            self._is_ready = self._is_wanted = False
            self._change.notify()
        if process is not None and (process.has_exited() or process.is_hung_up):
            process.close()
            return None
        return process

    def close(self) -> None:
        """Kill the process that stands by; those handed over live on."""
        with self._change:
            self._is_closed = True
            self._change.notify()
        process = self.take()
        if process is not None:
            process.close()

    def _serve(self) -> None:
        idle = _IdleCores()
        num_failures = 0
        while num_failures < _MAX_FAILURES:
            with self._change:
                if self._is_closed:
                    break
                if self._process is None and (self._is_wanted or idle.read() >= MIN_IDLE_CORES):
                    self._start()
                elif self._process is not None and not self._look(self._process):
                    num_failures += 1
                # Nothing is to be heard from one that is ready: it is looked at when taken.
                self._change.wait(None if self._is_ready else _POLL_S)
        while any(not process.is_gone for process in self._started):
            time.sleep(_POLL_S)

    def _start(self) -> None:
        self._started = [process for process in self._started if not process.is_gone]
        try:
            self._process = Process(self._config, self._jobs)
        except OSError as error:
            logger.warning("no spare process: %s", error)
            self._is_closed = True
            return
        self._started.append(self._process)

    def _look(self, process: Process) -> bool:
        """Take notice of what a loading process says; return False if it is of no use."""
        try:
            messages = process.receive(0.0)
        except FrameError:
            messages = []
        self._is_ready = any(isinstance(message, Ready) for message in messages)
        if self._is_ready or not (process.has_exited() or process.is_hung_up):
            return True
        process.close()
        self._process = None
        return False


class _Shared:
    """The spares of this process: one for all children of the same config."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spares: dict[bytes, tuple[Spare, set[int]]] = {}

    def borrow(self, config: ChildConfig) -> tuple[Spare, int]:
        """Return the spare for a config, and a number that no other user of it has: the least.

        Give it back as often as it was borrowed.
        """
        key = msgspec.json.encode(config)
        with self._lock:
            spare, taken = self._spares.setdefault(key, (Spare(config), set()))
            number = next(number for number in itertools.count() if number not in taken)
            taken.add(number)
            return spare, number

    def give_back(self, config: ChildConfig, number: int) -> None:
        """Free a number, and close the spare when nobody uses it any more."""
        key = msgspec.json.encode(config)
        with self._lock:
            spare, taken = self._spares[key]
            taken.discard(number)
            if taken:
                return
            del self._spares[key]
        spare.close()


SPARES = _Shared()
"""Where children get theirs."""


class _IdleCores:
    """How many of the cores that we may use were idle since the last reading."""

    def __init__(self) -> None:
        self._last = (time.monotonic(), self._idle_s())

    def read(self) -> float:
        now_s, idle_s = time.monotonic(), self._idle_s()
        since_s, before_s = self._last
        if now_s - since_s < _POLL_S / 2:  # Too short to tell.
            return 0.0
        self._last = (now_s, idle_s)
        return (idle_s - before_s) / (now_s - since_s)

    def _idle_s(self) -> float:
        ours = os.sched_getaffinity(0)
        times = psutil.cpu_times(percpu=True)
        return float(sum(t.idle for number, t in enumerate(times) if number in ours))
