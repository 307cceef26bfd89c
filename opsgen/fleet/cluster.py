"""Where the workers are: a cluster of this machine's own, or a scheduler that runs elsewhere.

A scheduler elsewhere is `dask scheduler` from an environment with the same
opsgen, and should serve nothing else meanwhile: `DASK_CONFIG` says how it has
to be set up, and `open_cluster` sets what can be set on a running one.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import logging
from contextlib import ExitStack
from dataclasses import dataclass

import dask
from distributed import Client, LocalCluster, Scheduler

from opsgen.child import list_gpus
from opsgen.child.folders import owned_folder, sweep_folders
from opsgen.errors import MeasureError, UsageError
from opsgen.fleet.reaching import is_scheduler_there
from opsgen.fleet.versions import check_versions
from opsgen.fleet.worker import ChildrenPlugin

logger = logging.getLogger(__name__)

FOLDER_PREFIX = "opsgen-fleet-"
MAX_CLOSE_S = 4.0
MAX_WAIT_FOR_SCHEDULER_S = 15.0
MAX_WAIT_FOR_WORKERS_S = 60.0

_MAX_FAILURES = 0
_SATURATION = 1.0

DASK_CONFIG = {
    # Dask retries nothing on its own account: every loss is an attempt in the journal,
    # and the fleet retries the jobs that merely sat beside a dying worker itself.
    "distributed.scheduler.allowed-failures": _MAX_FAILURES,
    # Nothing may wait on a worker that cannot start it at once.
    "distributed.scheduler.work-stealing": False,
    "distributed.scheduler.worker-saturation": _SATURATION,
    "distributed.scheduler.worker-ttl": "60s",
    "distributed.worker.profile.enabled": False,
    # Dask would ask the driver about every GPU twice a second, whoever is timing on it.
    "distributed.diagnostics.nvml": False,
    "distributed.comm.timeouts.connect": "60s",
    "distributed.comm.timeouts.tcp": "60s",
    "distributed.comm.retry.count": 5,
    "distributed.admin.tick.limit": "1h",
}


@dataclass(frozen=True)
class Cluster:
    """A connection to workers, and what has to be undone when it ends.

    Attributes:
        client: Dask's client.
        dashboard: Address of Dask's dashboard; None where bokeh is not installed.
    """

    client: Client
    dashboard: str | None
    _stack: ExitStack

    def close(self) -> None:
        """Stop own workers with their children, or leave foreign ones alone."""
        self._stack.close()


def open_cluster(device: str, children_per_device: int, scheduler: str | None) -> Cluster:
    """Start workers on this machine, or join the ones of a scheduler.

    Raises:
        UsageError: There is no such device here, or no scheduler there, or one with
            other versions.
        MeasureError: The scheduler has no workers.
    """
    with ExitStack() as stack:
        stack.enter_context(dask.config.set(DASK_CONFIG))
        if scheduler is None:
            client = _start(stack, device, children_per_device)
        else:
            client = _join(stack, scheduler)
        plugin = ChildrenPlugin(is_local=scheduler is None)
        client.register_plugin(plugin)
        if scheduler is not None:
            # Foreign workers live on; our children there must not.
            stack.callback(_unregister, client, plugin.name)
        has_dashboard = importlib.util.find_spec("bokeh") is not None
        dashboard = str(client.dashboard_link) if has_dashboard else None
        return Cluster(client, dashboard, stack.pop_all())


def num_devices(device: str) -> int:
    """Return how many devices of a kind this machine shows.

    Raises:
        UsageError: There is none.
    """
    number = 1 if device == "cpu" else len(list_gpus())
    if number == 0:
        raise UsageError(f"device {device!r}: this machine shows no GPU")
    return number


def _start(stack: ExitStack, device: str, children_per_device: int) -> Client:
    num_workers = num_devices(device)
    sweep_folders(FOLDER_PREFIX)
    work_dir = stack.enter_context(owned_folder(FOLDER_PREFIX, is_passable=True))
    cluster = LocalCluster(
        n_workers=num_workers,
        threads_per_worker=children_per_device,
        processes=True,
        # Dask would watch the worker, which holds nothing; children are watched by theirs.
        memory_limit=0,
        dashboard_address="127.0.0.1:0",
        silence_logs=logging.CRITICAL,
        local_directory=str(work_dir),
    )
    stack.callback(_close, cluster)
    client = Client(cluster, set_as_default=False)
    stack.callback(_close, client)
    return client


def _close(opened: LocalCluster | Client) -> None:
    """Close in the time there is; on a busy machine the rest ends with this process."""
    try:
        opened.close(timeout=MAX_CLOSE_S)
    except TimeoutError:
        logger.info("%s did not close within %g s", type(opened).__name__, MAX_CLOSE_S)


def _join(stack: ExitStack, scheduler: str) -> Client:
    if not asyncio.run(is_scheduler_there(scheduler, MAX_WAIT_FOR_SCHEDULER_S)):
        raise UsageError(f"no scheduler answers at {scheduler}")
    client = Client(scheduler, set_as_default=False)
    stack.callback(_close, client)
    try:
        client.wait_for_workers(1, timeout=MAX_WAIT_FOR_WORKERS_S)
    except TimeoutError as error:
        raise MeasureError(f"the scheduler at {scheduler} has no workers") from error
    check_versions(client)
    client.run_on_scheduler(_set_up)
    return client


async def _set_up(dask_scheduler: Scheduler) -> None:
    """Set on a running scheduler what matters most of `DASK_CONFIG`."""
    dask_scheduler.allowed_failures = _MAX_FAILURES
    dask_scheduler.WORKER_SATURATION = _SATURATION
    stealing = dask_scheduler.extensions.get("stealing")
    if stealing is not None:
        await stealing.stop()


def _unregister(client: Client, name: str) -> None:
    if client.status != "running":
        return
    # A worker that cannot be reached loses its children with its scheduler.
    with contextlib.suppress(OSError):
        client.unregister_worker_plugin(name)
