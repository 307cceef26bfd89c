"""Which cores a GPU's children run on: apart for each GPU, and a few for whoever holds it.

A launch that waits for a core that a compile occupies shows in the time of what is
launched. So each GPU has a share of the host's cores, and of the share some stay
free for the holder of its lease; compiles keep to the rest.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from opsgen.child.nvml import cpu_affinity

MIN_SHARE = 4
"""Of a smaller share none is set aside: compiles need those cores more."""

_THREADS = "/proc/self/task"
_SIBLINGS = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"


@dataclass(frozen=True, slots=True)
class CoreShare:
    """The cores of one GPU's children; without any they run wherever the host lets them.

    Attributes:
        timing: For the thread that uses the device while it holds the lease.
        rest: For everything else.
    """

    timing: tuple[int, ...] = ()
    rest: tuple[int, ...] = ()


def share_of(device_id: str, gpu_ids: Sequence[str], num_timing: int) -> CoreShare:
    """Return the cores of this host that belong to one of its GPUs.

    Args:
        device_id: The GPU's UUID; any other id, such as `cpu`, has no cores of its own.
        gpu_ids: UUIDs of the GPUs that share the host, in an order that all of them use.
        num_timing: How many of its cores to set aside for timing.
    """
    if device_id not in gpu_ids:
        return CoreShare()
    cores = _order(os.sched_getaffinity(0))
    shares = divide_cores(cores, [cpu_affinity(gpu_id) for gpu_id in gpu_ids])
    return set_aside(shares[list(gpu_ids).index(device_id)], num_timing)


def divide_cores(
    cores: Sequence[int], affinities: Sequence[Collection[int] | None]
) -> tuple[tuple[int, ...], ...]:
    """Divide cores among GPUs: no core is in two shares, and every core is in one.

    GPUs get the cores next to them, evenly where they have the same; cores next to none
    are divided evenly, behind the near ones. Where it is not known which are near, or
    neighbourhoods overlap in part, all are divided evenly. Neighbours in `cores` stay
    together.

    Args:
        cores: What there is to divide, in order.
        affinities: The cores next to each GPU; None where that is not known.

    Returns:
        A share for each GPU; empty ones where there are fewer cores than GPUs.
    """
    num_gpus = len(affinities)
    if len(cores) < num_gpus:
        return ((),) * num_gpus
    near = [frozenset(cores) & frozenset(affinity or ()) for affinity in affinities]
    groups = {cores_of: [i for i, one in enumerate(near) if one == cores_of] for cores_of in near}
    covered = frozenset().union(*groups)
    is_partition = len(covered) == sum(map(len, groups))
    if not is_partition or any(len(group) < len(gpus) for group, gpus in groups.items()):
        return tuple(_slice(cores, number, num_gpus) for number in range(num_gpus))
    far = [core for core in cores if core not in covered]
    shares: list[tuple[int, ...]] = [()] * num_gpus
    for group, gpus in groups.items():
        own = [core for core in cores if core in group]
        for place, number in enumerate(gpus):
            shares[number] = _slice(own, place, len(gpus)) + _slice(far, number, num_gpus)
    return tuple(shares)


def set_aside(share: Sequence[int], num_timing: int) -> CoreShare:
    """Take the first cores of a share for timing: as many as wanted, at most half of them."""
    num_timing = min(num_timing, len(share) // 2) if len(share) >= MIN_SHARE else 0
    return CoreShare(timing=tuple(share[:num_timing]), rest=tuple(share[num_timing:]))


class Placement:
    """Where this process runs: on the rest, and on the timing cores while it holds the device.

    Only the thread that takes the device moves, and with it threads that were born in
    an earlier hold, since device work starts them (a backward pass launches from a
    thread of its own). Where the kernel refuses, nothing happens.

    Args:
        share: The process's cores; without any it stays where it is.
    """

    def __init__(self, share: CoreShare) -> None:
        self._timing = frozenset(share.timing) if share.rest else frozenset[int]()
        self._rest = frozenset(share.rest)
        self._companions: set[int] = set()

    def settle(self) -> None:
        """Put this process on the rest; threads and helpers started from now on inherit it."""
        if self._rest:
            _move(0, self._rest)

    def set_holding(self, is_holding: bool) -> None:
        """Move the calling thread and its companions to the timing cores, or back."""
        if not self._timing:
            return
        if is_holding:
            _move(0, self._timing)
            if self._companions:
                # The kernel may have given an id that became free to another process.
                self._companions &= _own_threads()
            for thread in self._companions:
                _move(thread, self._timing)
            return
        _move(0, self._rest)
        for thread in _own_threads():
            if _cores_of(thread) == self._timing:
                self._companions.add(thread)
                _move(thread, self._rest)


def _slice(cores: Sequence[int], number: int, num_parts: int) -> tuple[int, ...]:
    """Return one of `num_parts` parts that differ by one core at most."""
    ends = [len(cores) * end // num_parts for end in (number, number + 1)]
    return tuple(cores[ends[0] : ends[1]])


def _order(cores: Collection[int]) -> list[int]:
    """Return cores in order, those that are threads of one physical core side by side."""
    siblings = _read_siblings(cores)
    return sorted(cores, key=lambda core: (siblings.get(core, core), core))


def _read_siblings(cores: Collection[int]) -> Mapping[int, int]:
    """Return for each core the first of those that it shares a physical core with."""
    first = {}
    for core in cores:
        with contextlib.suppress(OSError, ValueError):
            text = Path(_SIBLINGS.format(core)).read_text(encoding="ascii")
            first[core] = int(text.replace("-", ",").partition(",")[0])
    return first


def _move(thread: int, cores: frozenset[int]) -> None:
    # Containers refuse it or have lost cores since; a thread may be gone.
    with contextlib.suppress(OSError, ValueError):
        os.sched_setaffinity(thread, cores)


def _cores_of(thread: int) -> frozenset[int]:
    with contextlib.suppress(OSError):
        return frozenset(os.sched_getaffinity(thread))
    return frozenset()


def _own_threads() -> set[int]:
    with contextlib.suppress(OSError):
        return set(map(int, os.listdir(_THREADS)))  # noqa: PTH208 - a path for each costs more
    return set()
