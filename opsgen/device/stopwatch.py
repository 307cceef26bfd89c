"""Reading the time of calls: by events on a GPU, by the host's clock on a CPU."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

_MAX_SPIN_S = 0.01
_SPIN_FACTOR = 1.5
_CYCLES_PER_S = 2e9  # of the SM clock; an idle GPU counts slower and spins a little longer
_FIRST_LAUNCH_S = 2e-4
_FORGET = 0.8


def _nothing() -> None:
    pass


@dataclass(frozen=True, slots=True)
class Trial:
    """One call to be timed.

    Attributes:
        kind: Calls of one kind take about as long to launch and to run.
        call: What is timed.
        prepare: What goes before it, untimed.
    """

    kind: str
    call: Callable[[], object]
    prepare: Callable[[], None] = _nothing


@dataclass(frozen=True, slots=True)
class Reading:
    """The time of one call.

    Attributes:
        ms: Milliseconds.
        is_overtaken: The device had come to the call before all of it was queued.
    """

    ms: float
    is_overtaken: bool = False


class Stopwatch(Protocol):
    """What the clock asks of a device."""

    def read(self, trials: Sequence[Trial]) -> list[Reading]:
        """Make the calls in order and return their times."""


class HostStopwatch:
    """The host's clock around each call."""

    def read(self, trials: Sequence[Trial]) -> list[Reading]:
        """Make the calls in order and return their times."""
        readings = []
        for trial in trials:
            trial.prepare()
            begin_ns = time.perf_counter_ns()
            trial.call()
            readings.append(Reading((time.perf_counter_ns() - begin_ns) / 1e6))
        return readings


@dataclass(slots=True)
class _Pace:
    """What is known of the calls of one kind.

    Attributes:
        launch_s: Seconds that the host needs to queue one: the longest of late, slowly forgotten.
        run_s: Seconds that the device needs for one, 0 if unknown.
    """

    launch_s: float = _FIRST_LAUNCH_S
    run_s: float = 0.0


class CudaStopwatch:
    """Events around each call, all queued before the first is waited for.

    While the device runs one call the host queues the next; where that would not be time
    enough, a spin goes ahead of it. The cache is flushed before each: twice its size is
    written.
    """

    def __init__(self) -> None:
        properties = torch.cuda.get_device_properties()
        self._flush = torch.empty(2 * properties.L2_cache_size, dtype=torch.int8, device="cuda")
        self._spin: Callable[[int], None] = torch.cuda._sleep
        self._make_event: Callable[..., Any] = torch.cuda.Event
        self._paces: dict[str, _Pace] = {}

    def read(self, trials: Sequence[Trial]) -> list[Reading]:
        """Make the calls in order and return their times, once all have ended."""
        queued, ahead_s = [], 0.0
        for trial in trials:
            pace = self._paces.setdefault(trial.kind, _Pace())
            trial.prepare()
            self._flush.zero_()
            spin_s = min(_MAX_SPIN_S, _SPIN_FACTOR * pace.launch_s) - ahead_s
            if spin_s > 0.0:
                self._spin(int(spin_s * _CYCLES_PER_S))
            queued.append((trial.kind, *self._launch(trial, pace)))
            ahead_s = pace.run_s
        torch.cuda.synchronize()
        readings = []
        for kind, begin, end, is_overtaken in queued:
            ms = float(begin.elapsed_time(end))
            self._paces[kind].run_s = ms / 1e3
            readings.append(Reading(ms, is_overtaken))
        return readings

    def _launch(self, trial: Trial, pace: _Pace) -> tuple[Any, Any, bool]:
        begin = self._make_event(enable_timing=True)
        end = self._make_event(enable_timing=True)
        begin_s = time.perf_counter()
        begin.record()
        trial.call()
        end.record()
        pace.launch_s = max(time.perf_counter() - begin_s, _FORGET * pace.launch_s)
        # Not begun when all of it was queued: then nothing waited for the host.
        return begin, end, bool(begin.query())
