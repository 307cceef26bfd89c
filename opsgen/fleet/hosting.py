"""A host joins a fleet: one Dask worker for each of its devices, until told to stop.

Workers die and come back: a worker process that is killed is started again, and
a scheduler that is lost is looked for until `death_timeout_s` is over.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Callable
from pathlib import Path

import dask
from distributed import Nanny

from opsgen.child import list_gpus
from opsgen.child.folders import owned_folder, sweep_folders
from opsgen.errors import MeasureError, UsageError
from opsgen.fleet.cluster import DASK_CONFIG, FOLDER_PREFIX, MAX_CLOSE_S, num_devices
from opsgen.fleet.reaching import is_scheduler_there
from opsgen.fleet.worker import DEVICE_VARIABLE
from opsgen.records import Record

_STOPS = (signal.SIGINT, signal.SIGTERM)


class HostConfig(Record, frozen=True, kw_only=True):
    """How a host takes part in a fleet."""

    scheduler: str
    """Address of the Dask scheduler."""
    device: str = "cpu"
    """`cpu` or `cuda`."""
    children_per_device: int = 2
    """Child processes that share one device."""
    death_timeout_s: float = 60.0
    """How long to look for the scheduler before giving up."""


def serve_fleet(config: HostConfig, announce: Callable[[str], None]) -> None:
    """Work for a scheduler until a signal comes; no process is left afterwards.

    Raises:
        UsageError: There is no such device here, or no scheduler there.
        MeasureError: The scheduler went away and did not come back.
    """
    num_devices(config.device)
    sweep_folders(FOLDER_PREFIX)
    # Dask tells of every lost connection at length; what matters is announced here.
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    with owned_folder(FOLDER_PREFIX, is_passable=True) as folder, dask.config.set(DASK_CONFIG):
        asyncio.run(_serve(config, folder, announce))


def device_ids(device: str) -> list[str]:
    """Return the id of each device that this host joins with."""
    return ["cpu"] if device == "cpu" else [gpu.uuid for gpu in list_gpus()]


async def _serve(config: HostConfig, folder: Path, announce: Callable[[str], None]) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in _STOPS:
        loop.add_signal_handler(number, stopped.set)
    if not await _find(config, stopped):
        if stopped.is_set():
            return
        raise UsageError(f"no scheduler answers at {config.scheduler}")
    hosts = [
        asyncio.create_task(_host(config, device_id, folder, stopped, announce))
        for device_id in device_ids(config.device)
    ]
    try:
        # The first that fails ends all: they share the scheduler.
        await asyncio.gather(*hosts)
    finally:
        stopped.set()
        await asyncio.gather(*hosts, return_exceptions=True)


async def _host(
    config: HostConfig,
    device_id: str,
    folder: Path,
    stopped: asyncio.Event,
    announce: Callable[[str], None],
) -> None:
    """Keep one device in the fleet."""
    while await _find(config, stopped):
        nanny = _nanny(config, device_id, folder)
        try:
            await nanny
            announce(f"{device_id}: joined {config.scheduler} as {nanny.worker_address}")
            await _first_of(nanny.finished(), stopped.wait())
        except (OSError, TimeoutError, RuntimeError) as error:
            announce(f"{device_id}: cannot join {config.scheduler}: {error}")
        finally:
            await nanny.close(timeout=MAX_CLOSE_S)
        if stopped.is_set():
            return
        announce(f"{device_id}: {config.scheduler} let go; looking for it again")
    if not stopped.is_set():
        raise MeasureError(f"the scheduler at {config.scheduler} is gone")


def _nanny(config: HostConfig, device_id: str, folder: Path) -> Nanny:
    return Nanny(
        config.scheduler,
        nthreads=config.children_per_device,
        # Dask would watch the worker, which holds nothing; children are watched by theirs.
        memory_limit=0,
        death_timeout=config.death_timeout_s,
        local_directory=str(folder),
        env={DEVICE_VARIABLE: device_id},
        config=DASK_CONFIG,
        silence_logs=logging.CRITICAL,
        dashboard=False,
    )


async def _find(config: HostConfig, stopped: asyncio.Event) -> bool:
    """Tell whether the scheduler answers before `death_timeout_s` is over."""
    search = asyncio.ensure_future(is_scheduler_there(config.scheduler, config.death_timeout_s))
    await _first_of(search, stopped.wait())
    return search.done() and not search.cancelled() and search.result() and not stopped.is_set()


async def _first_of(*waits: object) -> None:
    """Wait for the first to end and cancel the others."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]  # type: ignore[call-overload]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        if not task.done():
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, OSError):
                await task
