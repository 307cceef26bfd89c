"""Timing of references: device time, cold cache, modes interleaved in one hold.

On a GPU a call is bracketed by events, with the cache flush and a spin queued
ahead so that gaps between launches hide. On a CPU it is the host's clock and
no flush: a buffer that evicts the last-level cache takes longer to write than
many a task runs, and such timings are advisory. Nothing is timed without the
device's lease.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from opsgen.device.interval import median_interval
from opsgen.errors import MeasureError
from opsgen.records import Timing

Call = Callable[..., object]

MIN_SAMPLES = 7
_PRECISION = 0.01
_WARM_CHANGE = 0.02
_MAX_WARMUP_S = 0.5
_LONG_CALL_MS = 10.0
_NUM_FLOOR_CALLS = 50
_MAX_SPIN_S = 0.01
_SPIN_FACTOR = 1.5
_CYCLES_PER_S = 2e9  # of the SM clock; an idle GPU counts slower and spins a little longer
_DENSE_CHECKS = 32


class Holdable(Protocol):
    """What the clock asks of a lease."""

    @property
    def is_held(self) -> bool:
        """This process holds the device."""


class _Stopwatch(Protocol):
    def time_ms(self, call: Callable[[], object]) -> float:
        """Run one call and return its milliseconds."""


class _HostStopwatch:
    def time_ms(self, call: Callable[[], object]) -> float:
        begin_ns = time.perf_counter_ns()
        call()
        return (time.perf_counter_ns() - begin_ns) / 1e6


class _CudaStopwatch:
    """Events around the call, behind a flush of the cache and a spin."""

    def __init__(self) -> None:
        properties = torch.cuda.get_device_properties()
        self._flush = torch.empty(2 * properties.L2_cache_size, dtype=torch.int8, device="cuda")
        self._launch_s = 1e-3
        self._spin: Callable[[int], None] = torch.cuda._sleep
        make_event: Callable[..., Any] = torch.cuda.Event
        self._begin, self._end = make_event(enable_timing=True), make_event(enable_timing=True)

    def time_ms(self, call: Callable[[], object]) -> float:
        self._flush.zero_()
        spin_s = min(_MAX_SPIN_S, _SPIN_FACTOR * self._launch_s)
        self._spin(int(spin_s * _CYCLES_PER_S))
        begin_s = time.perf_counter()
        self._begin.record()
        call()
        self._end.record()
        # The longest of late launches, slowly forgotten: a spin that is too short shows gaps.
        self._launch_s = max(time.perf_counter() - begin_s, 0.9 * self._launch_s)
        self._end.synchronize()
        return float(self._begin.elapsed_time(self._end))


@dataclass(slots=True)
class _Series:
    """One mode while it is timed."""

    mode: str
    call: Call
    samples_ms: list[float] = field(default_factory=list)
    spent_s: float = 0.0
    num_warmup: int = 0

    def is_done(self, max_s: float) -> bool:
        count = len(self.samples_ms)
        if count < MIN_SAMPLES:
            return False
        if self.spent_s >= max_s:
            return True
        if count > _DENSE_CHECKS and count % 8:
            return False
        low, high = median_interval(self.samples_ms)
        median = statistics.median(self.samples_ms)
        return max(high - median, median - low) <= _PRECISION * median

    def timing(self) -> Timing:
        quartiles = statistics.quantiles(self.samples_ms, n=4, method="inclusive")
        return Timing(
            mode=self.mode,
            samples_ms=tuple(self.samples_ms),
            median_ms=statistics.median(self.samples_ms),
            q25_ms=quartiles[0],
            q75_ms=quartiles[2],
            ci_ms=median_interval(self.samples_ms),
            num_warmup=self.num_warmup,
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
        self._stopwatch: _Stopwatch = _HostStopwatch() if self.is_advisory else _CudaStopwatch()

    def measure_modes(
        self,
        calls: Mapping[str, Call],
        inputs: Sequence[tuple[Any, ...]],
        max_s: float,
    ) -> tuple[Timing, ...]:
        """Time every mode, interleaved, first to last and back.

        A mode stops at 7 or more samples when the 95 % interval of its median is within 1 %,
        or when it has used `max_s`. Warm-up comes before, until two successive windows differ
        by less than 2 %.

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
        for one in series:
            self._warm_up(one, turns, min(_MAX_WARMUP_S, 2 * max_s))
        active = list(series)
        while active:
            for one in tuple(active):
                begin_s = time.perf_counter()
                one.samples_ms.append(self._sample(one.call, turns))
                one.spent_s += time.perf_counter() - begin_s
            active = [one for one in reversed(active) if not one.is_done(max_s)]
        return tuple(one.timing() for one in series)

    def measure_launch_floor(self) -> float:
        """Return the median milliseconds of a call that writes a single element.

        Raises:
            MeasureError: The lease is not held.
        """
        self._require_lease()
        scratch = torch.empty(1, device=self._device)
        return statistics.median(
            self._stopwatch.time_ms(scratch.zero_) for _ in range(_NUM_FLOOR_CALLS)
        )

    def _warm_up(self, series: _Series, turns: _Turns, max_s: float) -> None:
        begin_s = time.perf_counter()
        previous_ms: float | None = None
        while time.perf_counter() - begin_s < max_s:
            first_ms = self._sample(series.call, turns)
            window = [first_ms]
            if first_ms <= _LONG_CALL_MS:
                window += [self._sample(series.call, turns) for _ in range(2)]
            series.num_warmup += len(window)
            window_ms = statistics.median(window)
            if previous_ms and abs(window_ms - previous_ms) < _WARM_CHANGE * previous_ms:
                return
            previous_ms = window_ms

    def _sample(self, call: Call, turns: _Turns) -> float:
        inputs = turns.take()
        return self._stopwatch.time_ms(lambda: call(*inputs))

    def _require_lease(self) -> None:
        if not self._lease.is_held:
            raise MeasureError("timing without the device's lease")


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
