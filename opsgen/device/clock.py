"""Timing of references: device time, cold cache, modes interleaved in one hold.

On a GPU a call is bracketed by events behind a flush of the cache, and queued
whole before the device reaches it, so that gaps between launches hide: calls
are queued one behind the other, a spin ahead of those that would be too late.
Whether the device was too early is asked after every call, so no sample rests
on an estimate. On a CPU it is the host's clock and no flush: a buffer that
evicts the last-level cache takes longer to write than many a task runs, and
such timings are advisory. Nothing is timed without the device's lease.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from opsgen.device.interval import median_interval
from opsgen.device.stopwatch import CudaStopwatch, HostStopwatch, Reading, Stopwatch, Trial
from opsgen.errors import MeasureError
from opsgen.records import Timing

Call = Callable[..., object]

MIN_SAMPLES = 7
_PRECISION = 0.01
_WARM_CHANGE = 0.02
_MAX_WARMUP_S = 0.5
_LONG_CALL_MS = 10.0
_WINDOW = 3
_NUM_FLOOR_CALLS = 50
_MAX_RETAKEN = 7
_ROUND_MS = 10.0  # Between looks at the interval.
_MAX_ROUND = 8

_FLOORS_MS: dict[str, float] = {}


class Holdable(Protocol):
    """What the clock asks of a lease."""

    @property
    def is_held(self) -> bool:
        """This process holds the device."""


@dataclass(slots=True)
class _Series:
    """One mode while it is timed."""

    mode: str
    call: Call
    warmup_ms: list[float] = field(default_factory=list)
    samples_ms: list[float] = field(default_factory=list)
    spent_s: float = 0.0
    num_overtaken: int = 0
    num_retaken: int = 0

    def num_cold(self, max_s: float) -> int:
        """Return how many warming calls to make before the next look; 0 when it is steady.

        The first tells how long windows are; then two are filled, and one at a time.
        """
        done = self.warmup_ms
        if sum(done) / 1e3 >= max_s:
            return 0
        if not done:
            return 1
        size = _WINDOW if done[0] <= _LONG_CALL_MS else 1
        if len(done) < 2 * size:
            return 2 * size - len(done)
        before_ms = statistics.median(done[-2 * size : -size])
        now_ms = statistics.median(done[-size:])
        return 0 if abs(now_ms - before_ms) <= _WARM_CHANGE * before_ms else size

    def add(self, reading: Reading) -> None:
        """Take a reading as a sample, unless it had better be taken again."""
        self.spent_s += reading.ms / 1e3
        if reading.is_overtaken and self.num_retaken < _MAX_RETAKEN:
            self.num_retaken += 1
            return
        self.num_overtaken += reading.is_overtaken
        self.samples_ms.append(reading.ms)

    def num_missing(self, max_s: float) -> int:
        """Return how many samples to take before the next look; 0 when it is done."""
        count = len(self.samples_ms)
        if count < MIN_SAMPLES:
            return MIN_SAMPLES - count
        median = statistics.median(self.samples_ms)
        low, high = median_interval(self.samples_ms)
        if self.spent_s >= max_s or max(high - median, median - low) <= _PRECISION * median:
            return 0
        return max(1, min(_MAX_ROUND, int(_ROUND_MS / max(median, 1e-3))))

    def timing(self) -> Timing:
        """Return what was measured."""
        quartiles = statistics.quantiles(self.samples_ms, n=4, method="inclusive")
        return Timing(
            mode=self.mode,
            samples_ms=tuple(self.samples_ms),
            median_ms=statistics.median(self.samples_ms),
            q25_ms=quartiles[0],
            q75_ms=quartiles[2],
            ci_ms=median_interval(self.samples_ms),
            num_warmup=len(self.warmup_ms),
            num_overtaken=self.num_overtaken,
        )


class Clock:
    """Times calls on one device, while its lease is held.

    Args:
        device: `cpu` or `cuda`.
        lease: The device's lease.

    Raises:
        MeasureError: The lease is not held.
    """

    def __init__(self, device: str, lease: Holdable) -> None:
        self._lease = lease
        self._require_lease()
        self.is_advisory = torch.device(device).type == "cpu"
        self._device = device
        self._stopwatch: Stopwatch = HostStopwatch() if self.is_advisory else CudaStopwatch()

    def measure_modes(
        self,
        calls: Mapping[str, Call],
        inputs: Sequence[tuple[Any, ...]],
        max_s: float,
    ) -> tuple[Timing, ...]:
        """Time every mode, interleaved, first to last and back.

        A mode stops at 7 or more samples when the 95 % interval of its median is within 1 %,
        or when its calls have taken `max_s`. Warm-up comes before, until two successive windows
        differ by at most 2 %.

        Args:
            calls: By mode, what to call on the inputs. Already compiled.
            inputs: Draws to rotate through; before a call the version of each of their
                tensors is raised, so that nothing is ever called twice alike.
            max_s: Cap on the sampling of one mode, seconds. Warm-up takes at most twice that,
                and never above half a second.

        Raises:
            MeasureError: The lease is not held.
            ValueError: There are no inputs to rotate through.
        """
        self._require_lease()
        if not inputs:
            raise ValueError("no inputs to rotate through")
        turns = _Turns(inputs)
        series = [_Series(mode, call) for mode, call in calls.items()]
        self._warm_up(series, turns, min(_MAX_WARMUP_S, 2 * max_s))
        active, is_forward = list(series), True
        while active:
            num_rounds = max(one.num_missing(max_s) for one in active)
            order: list[_Series] = []
            for _ in range(num_rounds):
                order += active if is_forward else reversed(active)
                is_forward = not is_forward
            for one, reading in zip(order, self._read(order, turns), strict=True):
                one.add(reading)
            active = [one for one in active if one.num_missing(max_s)]
        return tuple(one.timing() for one in series)

    def measure_launch_floor(self) -> float:
        """Return the median milliseconds of a call that writes a single element.

        Measured once in a process.

        Raises:
            MeasureError: The lease is not held.
        """
        self._require_lease()
        if self._device not in _FLOORS_MS:
            scratch = torch.empty(1, device=self._device)
            trials = [Trial("floor", scratch.zero_)] * _NUM_FLOOR_CALLS
            readings = self._stopwatch.read(trials)
            _FLOORS_MS[self._device] = statistics.median(reading.ms for reading in readings)
        return _FLOORS_MS[self._device]

    def _warm_up(self, series: Sequence[_Series], turns: _Turns, max_s: float) -> None:
        """Make untimed calls of all modes until each is steady, few of them waited for."""
        active = list(series)
        while active:
            order = [one for one in active for _ in range(one.num_cold(max_s))]
            for one, reading in zip(order, self._read(order, turns), strict=True):
                one.warmup_ms.append(reading.ms)
            active = [one for one in active if one.num_cold(max_s)]

    def _read(self, order: Sequence[_Series], turns: _Turns) -> list[Reading]:
        return self._stopwatch.read([_trial(one, turns) for one in order])

    def _require_lease(self) -> None:
        if not self._lease.is_held:
            raise MeasureError("timing without the device's lease")


def _trial(series: _Series, turns: _Turns) -> Trial:
    """Return a call on the inputs whose turn it is when it is made."""
    inputs: tuple[Any, ...] = ()

    def prepare() -> None:
        nonlocal inputs
        inputs = turns.take()

    return Trial(series.mode, lambda: series.call(*inputs), prepare)


class _Turns:
    """Rotates through draws and marks their tensors as written."""

    def __init__(self, inputs: Sequence[tuple[Any, ...]]) -> None:
        self._inputs = inputs
        self._next = 0
        self._tensors = [
            [leaf for leaf in pytree.tree_leaves(draw) if isinstance(leaf, Tensor) and leaf.numel()]
            for draw in inputs
        ]

    def take(self) -> tuple[Any, ...]:
        turn = self._next % len(self._inputs)
        self._next += 1
        for tensor in self._tensors[turn]:
            _raise_version(tensor)
        return self._inputs[turn]


def _raise_version(tensor: Tensor) -> None:
    # Views share the version counter, and a copy onto itself counts as a write.
    first = tensor[(0,) * tensor.ndim]
    with torch.no_grad():
        first.copy_(first)
