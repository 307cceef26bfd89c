"""Where the workers are: a cluster of this machine's own, or a scheduler that runs elsewhere."""

from __future__ import annotations

import importlib.util
import logging
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import dask
from distributed import Client, LocalCluster

from opsgen.child import list_gpus
from opsgen.errors import MeasureError, UsageError
from opsgen.fleet.worker import ChildrenPlugin

MAX_CLOSE_S = 4.0
MAX_WAIT_FOR_WORKERS_S = 60.0

# Dask retries nothing on its own account: the journal counts attempts. One dying
# worker must not condemn the jobs that merely sat beside it (20 deaths instead of
# 3), and nothing may be queued on a worker that cannot start it at once.
_DASK_CONFIG = {
    "distributed.scheduler.allowed-failures": 20,
    "distributed.scheduler.work-stealing": False,
    "distributed.scheduler.worker-saturation": 1.0,
    "distributed.scheduler.worker-ttl": "60s",
    "distributed.worker.profile.enabled": False,
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
        work_dir: Folder for the children's work; None where workers choose their own.
    """

    client: Client
    dashboard: str | None
    work_dir: Path | None
    _stack: ExitStack

    def close(self) -> None:
        """Stop own workers with their children, or leave foreign ones alone."""
        self._stack.close()


def open_cluster(device: str, children_per_device: int, scheduler: str | None) -> Cluster:
    """Start workers on this machine, or join the ones of a scheduler.

    Raises:
        UsageError: There is no such device here.
        MeasureError: The scheduler cannot be reached or has no workers.
    """
    with ExitStack() as stack:
        stack.enter_context(dask.config.set(_DASK_CONFIG))
        if scheduler is None:
            client, work_dir = _start(stack, device, children_per_device)
        else:
            client, work_dir = _join(stack, scheduler), None
        plugin = ChildrenPlugin(is_local=scheduler is None)
        client.register_plugin(plugin)
        if scheduler is not None:
            # Foreign workers live on; our children there must not.
            stack.callback(client.unregister_worker_plugin, plugin.name)
        has_dashboard = importlib.util.find_spec("bokeh") is not None
        dashboard = str(client.dashboard_link) if has_dashboard else None
        return Cluster(client, dashboard, work_dir, stack.pop_all())


def _start(stack: ExitStack, device: str, children_per_device: int) -> tuple[Client, Path]:
    num_devices = 1 if device == "cpu" else len(list_gpus())
    if num_devices == 0:
        raise UsageError(f"device {device!r}: this machine shows no GPU")
    folder = TemporaryDirectory(prefix="opsgen-fleet-", ignore_cleanup_errors=True)
    work_dir = Path(stack.enter_context(folder))
    cluster = LocalCluster(
        n_workers=num_devices,
        threads_per_worker=children_per_device,
        processes=True,
        # Dask would watch the worker, which holds nothing; children are watched by theirs.
        memory_limit=0,
        dashboard_address="127.0.0.1:0",
        silence_logs=logging.CRITICAL,
        local_directory=str(work_dir),
    )
    stack.callback(cluster.close, timeout=MAX_CLOSE_S)
    client = Client(cluster, set_as_default=False)
    stack.callback(client.close, timeout=MAX_CLOSE_S)
    return client, work_dir


def _join(stack: ExitStack, scheduler: str) -> Client:
    try:
        client = Client(scheduler, set_as_default=False, timeout=MAX_WAIT_FOR_WORKERS_S)
    except OSError as error:
        raise MeasureError(f"no scheduler answers at {scheduler}: {error}") from error
    stack.callback(client.close, timeout=MAX_CLOSE_S)
    try:
        client.wait_for_workers(1, timeout=MAX_WAIT_FOR_WORKERS_S)
    except TimeoutError as error:
        raise MeasureError(f"the scheduler at {scheduler} has no workers") from error
    # Another version of opsgen's packages over there would be another environment.
    client.get_versions(check=True)
    return client
