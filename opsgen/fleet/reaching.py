"""Whether anybody answers at an address, told in bounded time."""

from __future__ import annotations

import asyncio

from distributed.comm.core import connect


async def is_scheduler_there(address: str, timeout_s: float) -> bool:
    """Try until something that speaks Dask's protocol answers at `address`.

    Dask's own time-out ends with the connection: a service that accepts and then
    says nothing would be waited for without end.
    """
    try:
        async with asyncio.timeout(timeout_s):
            comm = await connect(address, timeout=timeout_s)
    except (OSError, ValueError):
        return False
    comm.abort()
    return True
