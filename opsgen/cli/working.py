"""The command that lends this host to a fleet."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from opsgen.cli.options import OpsFile
from opsgen.errors import UsageError
from opsgen.fleet.hosting import HostConfig, serve_fleet
from opsgen.ops.user import load_ops


def worker(
    address: Annotated[
        str | None, typer.Argument(metavar="[ADDRESS]", help="The scheduler, tcp://host:port.")
    ] = None,
    scheduler: Annotated[
        str | None, typer.Option("--scheduler", metavar="ADDRESS", help="The same, as an option.")
    ] = None,
    device: Annotated[
        str, typer.Option("--device", help="`cuda` for every visible GPU, or `cpu`.")
    ] = "cuda",
    children: Annotated[
        int, typer.Option("--children", min=1, help="Child processes on each device.")
    ] = 2,
    death_timeout: Annotated[
        float,
        typer.Option("--death-timeout", min=0.1, help="Seconds to look for a lost scheduler."),
    ] = 60.0,
    ops: OpsFile = None,
) -> None:
    """Join this host's devices to the fleet of a Dask scheduler, until Ctrl-C."""
    if (address is None) == (scheduler is None):
        raise UsageError("worker: give the scheduler's address once, as ADDRESS or --scheduler")
    if device not in ("cpu", "cuda"):
        raise UsageError(f"--device {device}: is neither cpu nor cuda")
    if ops is not None:
        load_ops(ops)
    config = HostConfig(
        scheduler=address or scheduler or "",
        device=device,
        children_per_device=children,
        death_timeout_s=death_timeout,
    )
    serve_fleet(config, announce=lambda line: print(line, file=sys.stderr, flush=True))
