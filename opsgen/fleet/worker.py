"""What a Dask worker runs: each of its threads supervises one child.

The worker itself never runs a task's code, so it never dies of one, and it
imports no torch. Children outlast their jobs; they are kept here by thread,
because Linux kills a child when the thread that started it ends.
"""

from __future__ import annotations

import itertools
import os
import signal
import socket
import threading
import time
from dataclasses import dataclass

import msgspec
from dask.utils import key_split
from distributed import Scheduler, Worker, WorkerPlugin, get_worker

from opsgen.child import Child, ChildConfig, list_gpus, require_layers, share_of
from opsgen.errors import MeasureError
from opsgen.fleet.breaker import Breaker
from opsgen.fleet.orders import Order, Reply, Settings, decode_order, encode
from opsgen.fleet.turns import Turns
from opsgen.records import Attempt, Evidence, Fault

FORGET_EVERY = 1000
"""Orders after which Dask's cache of key prefixes is emptied: it would remember
100,000 keys at a kilobyte each, on the scheduler and on every worker."""

DEVICE_VARIABLE = "OPSGEN_DEVICE_ID"
"""Environment variable that gives a worker its GPU; without it the worker's number decides."""


@dataclass(slots=True)
class _Slot:
    """A thread's child, and which trip of the breaker it was started after."""

    settings: Settings
    child: Child
    num_trips: int


# A Dask worker process serves one device, so these are the device's.
_SLOTS: dict[int, _Slot] = {}
_STOPPED: set[str] = set()
_NUM_ORDERS = itertools.count(1)
_TURNS = Turns()
_BREAKER = Breaker()


def perform(payload: bytes) -> bytes:
    """Make one attempt in this thread's child; takes an `Order`, returns a `Reply`."""
    order = decode_order(payload)
    if next(_NUM_ORDERS) % FORGET_EVERY == 0:
        key_split.cache_clear()
    with _TURNS.take(order.alone, lambda: order.run_id in _STOPPED):
        return encode(_reply(order))


def _reply(order: Order) -> Reply:
    worker = str(get_worker().address)
    started_s, begin_s = time.time(), time.monotonic()
    if order.run_id in _STOPPED:
        outcome: Evidence | Fault = Fault(
            reason="worker_lost", stage="", detail="the run was stopped"
        )
        return Reply(worker=worker, attempt=attempt_of(order, outcome, 0, (started_s, 0.0)))
    try:
        slot = _slot(order.settings)
    except MeasureError as error:
        return Reply(worker=worker, sickness=str(error))
    sickness = _BREAKER.sickness(slot.child)
    if sickness is not None:
        return Reply(worker=worker, sickness=sickness)
    is_fresh = order.is_fresh or slot.num_trips != _BREAKER.num_trips
    slot.num_trips = _BREAKER.num_trips
    outcome = slot.child.run(
        order.request, is_fresh=is_fresh, is_cancelled=lambda: order.run_id in _STOPPED
    )
    _BREAKER.note(order.place, outcome)
    times = (started_s, time.monotonic() - begin_s)
    attempt = attempt_of(order, outcome, slot.child.pid, times)
    child = slot.child
    attempt = msgspec.structs.replace(attempt, spoiled=child.spoiled, hold_s=child.hold_s)
    return Reply(worker=worker, attempt=attempt)


def attempt_of(
    order: Order, outcome: Evidence | Fault, pid: int, times: tuple[float, float]
) -> Attempt:
    """Return the attempt at `order` that brought `outcome`.

    Args:
        order: What was to be done.
        outcome: What came of it.
        pid: The child, 0 if there was none.
        times: Start in seconds since the epoch, and duration in seconds.
    """
    is_fault = isinstance(outcome, Fault)
    return Attempt(
        job=order.job,
        key=order.key,
        number=order.number,
        evidence=None if isinstance(outcome, Fault) else outcome,
        fault=outcome if is_fault and isinstance(outcome, Fault) else None,
        host=socket.gethostname(),
        pid=pid,
        started_s=times[0],
        wall_s=times[1],
    )


async def stop_run(run_id: str) -> None:
    """Kill the children that work for a run, and refuse its further orders.

    A coroutine, which Dask can start on workers without waiting for a stuck one.
    """
    _STOPPED.add(run_id)


async def forget_history(dask_scheduler: Scheduler) -> None:
    """Empty what the scheduler keeps of every order ever made; see `FORGET_EVERY`.

    That is the cache of key prefixes, and the note of what kind of thing was computed
    that each order leaves in its span: about 300 bytes an order, for ever.
    """
    key_split.cache_clear()
    spans = dask_scheduler.extensions.get("spans")
    for span in spans.spans.values() if spans else ():
        # Dask has no public way to drop them, and nothing of ours reads them.
        span._metadata = None


class ChildrenPlugin(WorkerPlugin):
    """Ties the children's life to the worker's.

    Args:
        is_local: The worker belongs to the driver's terminal: an interrupt there is
            the driver's to handle.
    """

    name = "opsgen-children"

    def __init__(self, is_local: bool) -> None:
        self.is_local = is_local

    def setup(self, worker: Worker) -> None:
        """Leave interrupts to the driver, or to the `opsgen worker` that started this one."""
        has_own_host = self.is_local or DEVICE_VARIABLE in os.environ
        if has_own_host and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, signal.SIG_IGN)

    def teardown(self, worker: Worker) -> None:
        """Kill all children; jobs in progress end as `worker_lost`."""
        while _SLOTS:
            _, slot = _SLOTS.popitem()
            slot.child.close()


def _slot(settings: Settings) -> _Slot:
    thread = threading.get_ident()
    slot = _SLOTS.get(thread)
    if slot is None or slot.settings != settings:
        if slot is not None:
            slot.child.close()
        if settings.fleet.sandbox:
            require_layers(settings.device)
        slot = _Slot(settings, Child(_child_config(settings)), _BREAKER.num_trips)
        _SLOTS[thread] = slot
    return slot


def _child_config(settings: Settings) -> ChildConfig:
    worker = get_worker()
    device_id, gpu_ids = _device(settings.device, str(worker.name))
    share = share_of(device_id, gpu_ids, settings.fleet.timing_cores)
    # One thread on a CPU whatever the number of children: timings must not depend on it.
    num_threads = max(1, len(share.rest) // worker.state.nthreads)
    return ChildConfig(
        device=settings.device,
        device_id=device_id,
        num_threads=num_threads,
        timing_cores=share.timing,
        other_cores=share.rest,
        fleet=settings.fleet,
        has_spare=True,
        shown=settings.shown,
        work_dir=str(worker.local_directory),
    )


def _device(device: str, worker_name: str) -> tuple[str, list[str]]:
    """Return the id of this worker's device, and those of the GPUs that share the host's cores."""
    if device == "cpu":
        return "cpu", []
    gpu_ids = [gpu.uuid for gpu in list_gpus()]
    if not gpu_ids:
        raise MeasureError("this worker sees no GPU")
    own = os.environ.get(DEVICE_VARIABLE)
    if own is not None:
        return own, gpu_ids
    number = int(worker_name) if worker_name.isdecimal() else 0
    return gpu_ids[number % len(gpu_ids)], gpu_ids
