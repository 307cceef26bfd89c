"""Inductor's trials of configurations on a GPU: what they pick, and how to lose less time on them.

`torch.compile` times every configuration of a Triton kernel at the first call: about 30 ms of
device time each, most of it for configurations that lose clearly after a few calls. A race times
all of them briefly and only those near the best for longer. Only times are taken differently:
configurations, their order and the rule (the fastest wins) are Inductor's own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import torch

LOSING = 1.25
"""A configuration that is slower than the best so far by this factor is timed no further: its
shortest of `NUM_TRIALS` calls is off by far less on kernels that take long to time."""
NUM_TRIALS = 3
HOPELESS, HOPELESS_MS = 3.0, 10.0
"""One that takes that much longer already at its first call, which loads it, is not called again."""
MAX_TRIAL_MS = 5.0
MAX_CALLS = 100
"""As many calls as Inductor makes, in a fifth of its time."""
FULL, RACE = "full", "race"
_AHEAD_CYCLES = 2_000_000  # a millisecond of an H200, in which some ten launches are queued


@dataclass
class Autotuning:
    """What was chosen in a `watched_autotuning` block."""

    _kernels: dict[int, Any] = field(default_factory=dict)

    @property
    def picks(self) -> tuple[str, ...]:
        """Kernel, block sizes, warps and stages of each generated kernel in call order."""
        return tuple(_describe(kernel) for kernel in self._kernels.values())

    def note(self, kernel: Any) -> None:
        """Take notice of a kernel that runs."""
        self._kernels.setdefault(id(kernel), kernel)


@contextlib.contextmanager
def watched_autotuning(how: str | None) -> Iterator[Autotuning]:
    """Note what compiled code runs in the block, and let configurations race if `how` says so.

    For the first call of compiled code on a GPU, under the device's lease.

    Args:
        how: `race`; `full` for Inductor's own trials; None where there are no Triton kernels.
    """
    seen = Autotuning()
    if how is None:
        yield seen
        return
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    run: Callable[..., Any] = CachingAutotuner.run

    def noted_run(kernel: Any, *args: Any, **options: Any) -> Any:
        seen.note(kernel)
        return run(kernel, *args, **options)

    with contextlib.ExitStack() as stack:
        stack.enter_context(_replaced(CachingAutotuner, "run", noted_run))
        if how == RACE:
            stack.enter_context(_racing(CachingAutotuner))
        yield seen


def lend_lease(hold: Callable[[], AbstractContextManager[None]]) -> bool:
    """Let Inductor's own trials take the lease, where it has a hook for that (torch 2.13).

    Returns:
        Whether it has; without it compiling that tries kernels out must hold the lease itself.
    """
    from torch._inductor.runtime import benchmarking

    set_lock: Callable[[Any], object] | None = getattr(
        benchmarking, "set_gpu_benchmark_lock_context", None
    )
    if set_lock is None:
        return False
    set_lock(hold)
    return True


class Race:
    """The trials of one kernel's configurations, one after the other.

    Args:
        shortest_ms: Makes some cold calls and returns the milliseconds of the shortest.
    """

    def __init__(self, shortest_ms: Callable[[Callable[[], object], int], float]) -> None:
        self._shortest_ms = shortest_ms
        self._best_ms = float("inf")

    def start(self) -> None:
        """Forget the configurations of an earlier kernel."""
        self._best_ms = float("inf")

    def time_ms(self, call: Callable[[], object]) -> float:
        """Return the shortest of some calls, of few where the configuration loses anyway."""
        # The first loads the kernel, and raises here if it cannot run.
        first_ms = self._shortest_ms(call, 1)
        if first_ms > max(HOPELESS_MS, HOPELESS * self._best_ms):
            return first_ms
        # A long call hardly varies, but for what its first one loads.
        num_trials = NUM_TRIALS if first_ms < MAX_TRIAL_MS else 1
        trial_ms = min(first_ms, self._shortest_ms(call, num_trials))
        if trial_ms > LOSING * self._best_ms:
            return trial_ms
        num_calls = min(MAX_CALLS, int(MAX_TRIAL_MS / max(trial_ms, 1e-3)))
        if num_calls > NUM_TRIALS:
            trial_ms = min(trial_ms, self._shortest_ms(call, num_calls - NUM_TRIALS))
        self._best_ms = min(self._best_ms, trial_ms)
        return trial_ms


@contextlib.contextmanager
def _racing(autotuner: type) -> Iterator[None]:
    from torch._inductor.runtime.benchmarking import benchmarker

    race = Race(_shortest_ms)
    benchmark_all: Callable[..., Any] = autotuner.benchmark_all_configs  # type: ignore[attr-defined]
    copy: Callable[..., Any] = autotuner.copy_args_to_cpu_if_needed  # type: ignore[attr-defined]

    def time_ms(call: Callable[[], object], *_args: Any, **_options: Any) -> float:
        return race.time_ms(call)

    def benchmark_kernel(kernel: Any, *args: Any, **options: Any) -> Any:
        race.start()
        return benchmark_all(kernel, *args, **options)

    def copy_to_host(kernel: Any, *args: Any, **options: Any) -> Any:
        # What a kernel overwrites is copied for its trials: on the device, if it has the room.
        # Inductor goes through pinned memory of the host as soon as a copy would raise the peak:
        # seconds for a gigabyte, and times that are mostly copying.
        free_bytes, total_bytes = torch.cuda.mem_get_info()
        return {} if free_bytes > total_bytes // 2 else copy(kernel, *args, **options)

    with (
        _replaced(autotuner, "benchmark_all_configs", benchmark_kernel),
        _replaced(autotuner, "copy_args_to_cpu_if_needed", copy_to_host),
        _replaced(benchmarker, "benchmark_gpu", time_ms),
    ):
        yield


@contextlib.contextmanager
def _replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Put `value` in place of an attribute for the block, and leave no trace of it."""
    is_own = name in vars(owner)
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if is_own:
            setattr(owner, name, before)
        else:
            delattr(owner, name)


def _shortest_ms(call: Callable[[], object], num_calls: int) -> float:
    size_bytes = torch.cuda.get_device_properties().L2_cache_size
    flush = torch.empty(size_bytes, dtype=torch.int8, device="cuda")
    make_event: Callable[..., Any] = torch.cuda.Event
    pairs = [
        (make_event(enable_timing=True), make_event(enable_timing=True)) for _ in range(num_calls)
    ]
    spin: Callable[[int], None] = torch.cuda._sleep
    spin(_AHEAD_CYCLES)  # A call that waits for its launch would count the wait.
    for begin, end in pairs:
        flush.zero_()
        begin.record()
        call()
        end.record()
    torch.cuda.synchronize()
    return min(float(begin.elapsed_time(end)) for begin, end in pairs)


def _describe(kernel: Any) -> str:
    name = (getattr(kernel, "inductor_meta", None) or {}).get("kernel_name", "kernel")
    if len(kernel.launchers) != 1:
        return str(name)
    config = kernel.launchers[0].config
    sizes = [f"{key}={value}" for key, value in sorted(config.kwargs.items())]
    return " ".join([str(name), *sizes, f"warps={config.num_warps}", f"stages={config.num_stages}"])
