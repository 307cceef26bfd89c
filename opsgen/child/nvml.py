"""Which GPUs there are, asked of NVML: no CUDA context is created by asking.

Without NVML or a GPU the answer is an empty list, never an exception.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from opsgen.records import Record


class Gpu(Record, frozen=True, kw_only=True):
    """One GPU of this host."""

    uuid: str
    """NVML's UUID, which `CUDA_VISIBLE_DEVICES` accepts and the lease is named by."""
    name: str
    """Model."""
    driver: str
    """Driver version."""


def list_gpus(environ: Mapping[str, str] | None = None) -> list[Gpu]:
    """Return the GPUs that `CUDA_VISIBLE_DEVICES` leaves to this process, in its order.

    Args:
        environ: Where to read the variable from; by default this process's environment.
    """
    gpus = _all_gpus()
    visible = (os.environ if environ is None else environ).get("CUDA_VISIBLE_DEVICES")
    return gpus if visible is None else _select(gpus, visible)


def _all_gpus() -> list[Gpu]:
    try:
        import pynvml
    except ImportError:
        return []
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        driver = _text(pynvml.nvmlSystemGetDriverVersion())
        handles = map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount()))
        return [
            Gpu(
                uuid=_text(pynvml.nvmlDeviceGetUUID(handle)),
                name=_text(pynvml.nvmlDeviceGetName(handle)),
                driver=driver,
            )
            for handle in handles
        ]
    except pynvml.NVMLError:
        return []
    finally:
        pynvml.nvmlShutdown()


def _select(gpus: list[Gpu], visible: str) -> list[Gpu]:
    # As CUDA does: the list ends at the first entry that names no device.
    chosen: list[Gpu] = []
    for entry in filter(None, (part.strip() for part in visible.split(","))):
        if entry.isdecimal():
            matches = gpus[int(entry) : int(entry) + 1]
        else:
            matches = [gpu for gpu in gpus if gpu.uuid.startswith(entry)]
        if len(matches) != 1 or matches[0] in chosen:
            break
        chosen += matches
    return chosen


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
