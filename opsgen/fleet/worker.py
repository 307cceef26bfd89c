"""What a Dask worker runs: each of its threads supervises one child.

The worker itself never runs a task's code, so it never dies of one, and it
imports no torch. Children outlast their jobs; they are kept here by thread,
because Linux kills a child when the thread that started it ends.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
import time

from distributed import Worker, WorkerPlugin, get_worker

from opsgen.child import Child, ChildConfig, list_gpus
from opsgen.errors import MeasureError
from opsgen.fleet.orders import Order, Settings, decode_order, encode
from opsgen.records import Attempt, Evidence, Fault

DEVICE_VARIABLE = "OPSGEN_DEVICE_ID"
"""Environment variable that gives a worker its GPU; without it the worker's number decides."""

_CHILDREN: dict[int, tuple[Settings, Child]] = {}
_STOPPED: set[str] = set()


def perform(payload: bytes) -> bytes:
    """Make one attempt in this thread's child; takes an `Order`, returns an `Attempt`."""
    order = decode_order(payload)
    started_s, begin_s = time.time(), time.monotonic()
    pid = 0
    outcome: Evidence | Fault
    if order.run_id in _STOPPED:
        outcome = Fault(reason="worker_lost", stage="", detail="the run was stopped")
    else:
        child = _child(order.settings)
        outcome = child.run(
            order.request,
            is_fresh=order.is_fresh,
            is_cancelled=lambda: order.run_id in _STOPPED,
        )
        pid = child.pid
    times = (started_s, time.monotonic() - begin_s)
    return encode(attempt_of(order, outcome, pid, times))


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
        """Leave interrupts to the driver."""
        if self.is_local and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, signal.SIG_IGN)

    def teardown(self, worker: Worker) -> None:
        """Kill all children; jobs in progress end as `worker_lost`."""
        while _CHILDREN:
            _, (_, child) = _CHILDREN.popitem()
            child.close()


def _child(settings: Settings) -> Child:
    thread = threading.get_ident()
    if thread in _CHILDREN:
        known, child = _CHILDREN[thread]
        if known == settings:
            return child
        child.close()
    child = Child(_child_config(settings))
    _CHILDREN[thread] = (settings, child)
    return child


def _child_config(settings: Settings) -> ChildConfig:
    worker = get_worker()
    device_id, num_devices = _device(settings.device, str(worker.name))
    num_cores = len(os.sched_getaffinity(0))
    # One thread on a CPU whatever the number of children: timings must not depend on it.
    is_gpu = settings.device != "cpu"
    num_threads = max(1, num_cores // (worker.state.nthreads * num_devices)) if is_gpu else 1
    return ChildConfig(
        device=settings.device,
        device_id=device_id,
        num_threads=num_threads,
        fleet=settings.fleet,
        work_dir=settings.work_dir,
    )


def _device(device: str, worker_name: str) -> tuple[str, int]:
    """Return the id of this worker's device and how many devices share the host's cores."""
    if device == "cpu":
        return "cpu", 1
    gpus = list_gpus()
    if not gpus:
        raise MeasureError("this worker sees no GPU")
    own = os.environ.get(DEVICE_VARIABLE)
    if own is not None:
        return own, len(gpus)
    number = int(worker_name) if worker_name.isdecimal() else 0
    return gpus[number % len(gpus)].uuid, len(gpus)
