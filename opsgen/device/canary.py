"""Whether a device is fit: a fixed piece of work that no task can have touched.

Integers are multiplied and added through memory, and on a GPU cycles are spun
away, so that both of its clocks show in the time. The result is known in closed
form and held against it in every bit. A card that is wrong, or slower than it
was when this host first asked, must not time anything; one that is faster is
nobody's trouble. `context_works` asks less: whether this process can still use
its GPU at all.
"""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from opsgen.child.faults import OOM_CODE, appearance_of, code_of
from opsgen.child.lease import DeviceLease
from opsgen.child.nvml import read_state
from opsgen.device.stopwatch import CudaStopwatch, HostStopwatch, Stopwatch, Trial
from opsgen.errors import MeasureError
from opsgen.records import MAX_DRIFT

_MULTIPLIER = 1_664_525  # Numerical Recipes' generator of random numbers modulo 2**32
_WORD = 1 << 32
_NUM_PASSES = 8
_NUM_ELEMENTS = {"cuda": 1 << 24, "cpu": 1 << 16}
_NUM_CYCLES = 1_000_000  # 0.5 ms at the 1980 MHz of an H200, about as long as the passes take
_NUM_CALLS = 5
_WARM_CHANGE = 0.01
_MAX_WARM_CALLS = 20

_NUM_REFERENCE_ROUNDS = 7
_NUM_TRIES = 3
_PAUSE_S = 0.1
_MAX_WARM_S = 0.25  # of work without a pause, which the clocks of an idle GPU take to follow
_MAX_QUIET_S = 2.0
_QUIET_PAUSE_S = 0.02
_FIRST_CAPTURE_CODE = 900
_LAST_CAPTURE_CODE = 909

Run = Callable[[], tuple[bool, float]]
"""Does a canary's work: whether the result was right, and milliseconds."""


class Logbook(Protocol):
    """What all processes on this host know of a device."""

    reference_ms: float | None
    """Time of the canary when the device was first asked; None while it was not."""


def run_canary(device: str) -> tuple[bool, float]:
    """Do a fixed piece of work; return whether its result is right, and its median milliseconds.

    Takes some milliseconds of a GPU at its clocks, and memory that is given back. The time is
    that of cold calls, after as many as it takes for two in a row to agree.

    Args:
        device: `cpu` or `cuda`, whose lease is held.

    Raises:
        RuntimeError: The device cannot do it: no memory is left, or the context is broken.
    """
    kind = torch.device(device).type
    stopwatch: Stopwatch = HostStopwatch() if kind == "cpu" else CudaStopwatch()
    with torch.no_grad():
        work = _Work(kind)
        work.do()  # Loads kernels, for which no clock need wait.
        trial = Trial("canary", work.do)
        previous_ms = stopwatch.read([trial])[0].ms
        for _ in range(_MAX_WARM_CALLS):
            now_ms = stopwatch.read([trial])[0].ms
            if abs(now_ms - previous_ms) < _WARM_CHANGE * previous_ms:
                break
            previous_ms = now_ms
        median_ms = statistics.median(one.ms for one in stopwatch.read([trial] * _NUM_CALLS))
        is_right = work.is_right()
    del work, trial, stopwatch
    if kind == "cuda":
        torch.cuda.empty_cache()
    return is_right, median_ms


def ask_device(device: str, reference_ms: float | None) -> tuple[bool, float]:
    """Return whether the canary is right and its milliseconds: of a slow one the best of several.

    Args:
        device: `cpu` or `cuda`, whose lease is held.
        reference_ms: What it is slow or not slow against; None to ask once.

    Raises:
        RuntimeError: The device does not do the work.
    """
    give_up_s = time.monotonic() + _MAX_WARM_S
    is_right, median_ms = run_canary(device)
    while is_right and reference_ms is not None and _is_slow(median_ms, reference_ms):
        if time.monotonic() > give_up_s:
            break
        is_right, again_ms = run_canary(device)
        median_ms = min(median_ms, again_ms)
    return is_right, median_ms


def make_verifier(device: str, logbook: Logbook) -> Callable[[bool], None]:
    """Return what asks a device, under its lease, whether it may be timed on.

    The function takes whether the last holder died, and raises `MeasureError` where the card
    is not fit: try the task elsewhere. On a CPU, where other load moves every time, only the
    result counts.

    Args:
        device: `cpu` or `cuda`.
        logbook: Where the reference is kept; set at the first call on this host.
    """
    is_timed = torch.device(device).type != "cpu"
    return Verifier(functools.partial(run_canary, device), logbook, is_timed=is_timed)


def guard_device(device: str, lease: DeviceLease) -> None:
    """Have a GPU checked by its canary in holds of this process, where a check is due.

    On a CPU nobody checks: no fault of a task outlives its process there.
    """
    if torch.device(device).type == "cuda" and lease.verifier is None:
        read_state(lease.device_id)  # The first question takes long: not while the device is held.
        lease.verifier = make_verifier(device, lease.logbook)


@dataclass
class Verifier:
    """Judges a device by its canary.

    Attributes:
        run: The canary.
        logbook: Where the reference is kept.
        is_timed: Whether a slow canary means anything.
        sleep: Waits for seconds.
        clock: Reads seconds.
    """

    run: Run
    logbook: Logbook
    is_timed: bool = True
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    _complaint: str = field(default="", init=False)

    def __call__(self, after_death: bool) -> None:
        """Return when the device is fit.

        Raises:
            MeasureError: It is not: its result is wrong, it stays slower than it was, or it
                does not do the work at all.
            RuntimeError: What this process did to it before has broken its context: no fault
                of the device.
        """
        if self.is_timed:
            wait_for_work()
        if after_death:
            self._wait_for_quiet()
        for number in range(_NUM_TRIES):
            if number:
                self.sleep(_PAUSE_S)
            if self._is_fit():
                return
        raise MeasureError(self._complaint)

    def _wait_for_quiet(self) -> None:
        """Wait until the canary takes as long as ever, but no longer than it may.

        The kernels and the memory of one that died go some time after it. Where nobody knows
        how long the canary takes, two in a row must agree.
        """
        give_up_s = self.clock() + _MAX_QUIET_S
        known_ms, previous_ms = self.logbook.reference_ms, 0.0
        while self.clock() < give_up_s:
            median_ms = self._read() or 0.0
            is_close = abs(median_ms - previous_ms) <= MAX_DRIFT * previous_ms
            is_quiet = not _is_slow(median_ms, known_ms) if known_ms else is_close
            if median_ms and is_quiet:
                return
            previous_ms = median_ms
            self.sleep(_QUIET_PAUSE_S)

    def _is_fit(self) -> bool:
        """Tell whether the device is as before; the first time make that what it has to be."""
        if self.logbook.reference_ms is None:
            return self._set_reference()
        give_up_s = self.clock() + _MAX_WARM_S
        while not self._is_as_before(self.logbook.reference_ms):
            if self.clock() > give_up_s:
                return False
        return True

    def _set_reference(self) -> bool:
        """Make its present time what later ones are held against; False if it has none."""
        warm_s = self.clock() + (_MAX_WARM_S if self.is_timed else 0.0)
        while self._read() is not None:
            if self.clock() >= warm_s:
                break
        else:
            return False
        times_ms = [self._read() for _ in range(_NUM_REFERENCE_ROUNDS)]
        known_ms = [one for one in times_ms if one is not None]
        if len(known_ms) == _NUM_REFERENCE_ROUNDS:
            self.logbook.reference_ms = statistics.median(known_ms)
        return len(known_ms) == _NUM_REFERENCE_ROUNDS

    def _is_as_before(self, reference_ms: float) -> bool:
        median_ms = self._read()
        if median_ms is None:
            return False
        self._complaint = (
            f"the canary takes {median_ms:.4g} ms on this device, "
            f"{reference_ms:.4g} ms when it was first asked"
        )
        return not self.is_timed or not _is_slow(median_ms, reference_ms)

    def _read(self) -> float | None:
        """Return the canary's milliseconds; None, with a complaint, where it does not run.

        Raises:
            MeasureError: The result is wrong: no further try can make that good.
        """
        try:
            is_right, median_ms = self.run()
        except RuntimeError as error:
            self._complaint = f"the canary does not run on this device: {error}"
            return None
        if not is_right:
            raise MeasureError("the canary's result is wrong on this device")
        return median_ms


def _is_slow(median_ms: float, reference_ms: float) -> bool:
    return median_ms > (1 + MAX_DRIFT) * reference_ms


def wait_for_work() -> None:
    """Wait for what this process has launched on its GPU, if it uses one.

    Raises:
        RuntimeError: It has broken the context.
    """
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()


def context_works() -> bool:
    """Tell whether this process can still use its GPU: one kernel that does nothing, waited for.

    Needs no memory, so a full device does not look broken; nor does a stream that is being
    captured, on which waiting is an error. What an earlier launch got wrong may be told by
    the first call, once; what is broken says so every time.
    """
    error: RuntimeError | None = None
    for _ in range(2):
        error = _first_error()
        if error is None or _is_passing(error):
            return True
    return False


def _first_error() -> RuntimeError | None:
    try:
        torch.cuda.synchronize()
        _spin(1)
        torch.cuda.synchronize()
    except RuntimeError as error:
        return error
    return None


def _spin(num_cycles: int) -> None:
    torch.cuda._sleep(num_cycles)  # type: ignore[no-untyped-call]


def _is_passing(error: RuntimeError) -> bool:
    code = code_of(error)
    is_capture = code is not None and _FIRST_CAPTURE_CODE <= code <= _LAST_CAPTURE_CODE
    return code == OOM_CODE or is_capture or appearance_of(error) == "gpu_oom"


class _Work:
    """The work: every element is multiplied and added to, some times over, modulo 2**32."""

    def __init__(self, kind: str) -> None:
        self._num_cycles = _NUM_CYCLES if kind == "cuda" else 0
        size = _NUM_ELEMENTS[kind]
        # Named types: what a task has left as default must not count.
        self._start = torch.arange(1, size + 1, dtype=torch.int32, device=kind)
        self._value = torch.empty_like(self._start)

    def do(self) -> None:
        """Queue the work on the current stream."""
        if self._num_cycles:
            # First, so that the rest is queued while the device spins.
            _spin(self._num_cycles)
        self._value.copy_(self._start)
        for _ in range(_NUM_PASSES):
            torch.add(self._start, self._value, alpha=_MULTIPLIER, out=self._value)

    def is_right(self) -> bool:
        """Tell whether the last call's result is what the formula says.

        Each element is held against its own value, computed another way, and their sum
        against a number that the device has no part in.
        """
        factor = _signed(sum(_MULTIPLIER**power for power in range(_NUM_PASSES + 1)))
        wrong: Tensor = (self._value != self._start * factor).any()
        size = self._start.numel()
        total = int(self._value.sum(dtype=torch.int64).item())
        is_sum_right = (total - factor * size * (size + 1) // 2) % _WORD == 0
        return is_sum_right and not bool(wrong.item())


def _signed(number: int) -> int:
    """Return the 32-bit integer that `number` is modulo 2**32."""
    return (number + _WORD // 2) % _WORD - _WORD // 2
