"""Which GPUs there are and how they are, asked of NVML: no CUDA context is created by asking.

Without NVML or a GPU, or where a sandbox keeps both away, the answer is an empty
list or None, never an exception.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from opsgen.records import DeviceState, Record

Answer = TypeVar("Answer")

_WATTS = 1e-3  # NVML counts milliwatts.
_BITS = 64
_MAX_CORES = 8192  # As many as Linux can be built for.

# An idle GPU, and one whose clocks were set by its owner, is not held back.
_THROTTLE = {
    0x004: "sw_power_cap",
    0x008: "hw_slowdown",
    0x010: "sync_boost",
    0x020: "sw_thermal_slowdown",
    0x040: "hw_thermal_slowdown",
    0x080: "hw_power_brake",
    0x200: "board_limit",
    0x400: "reliability",
}


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


def read_state(uuid: str) -> DeviceState | None:
    """Return clocks, temperature, power and throttle reasons of a GPU; None if NVML tells nothing.

    The first call in a process starts NVML, which takes tens of milliseconds: make it before
    the device is held. What a GPU does not tell is absent.
    """
    return _SESSION.ask(uuid, _state_of)


def list_pids(uuid: str) -> set[int] | None:
    """Return the processes with a context on a GPU; None where NVML cannot say.

    Inside a container the ids may be those of the host.
    """
    return _SESSION.ask(uuid, _pids_of)


def cpu_affinity(uuid: str) -> frozenset[int] | None:
    """Return the cores next to a GPU, forbidden ones among them; None where NVML cannot say."""
    return _SESSION.ask(uuid, _cores_of)


class _Session:
    """NVML, started at the first question and kept for the life of the process.

    To start it for each question would take a hundred times as long as the answer.
    What cannot be started or found is not looked for again.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._library: Any = None
        self._is_started = False
        self._handles: dict[str, Any] = {}

    def ask(self, uuid: str, question: Callable[[Any, Any], Answer]) -> Answer | None:
        """Put a question about one GPU to the library; None if it fails."""
        with self._lock:
            handle = self._handle(uuid)
            if handle is None:
                return None
            try:
                return question(self._library, handle)
            except self._library.NVMLError:
                return None

    def _handle(self, uuid: str) -> Any:
        if not self._is_started:
            self._is_started = True
            self._library = _start()
        if self._library is not None and uuid not in self._handles:
            try:
                self._handles[uuid] = self._library.nvmlDeviceGetHandleByUUID(uuid)
            except self._library.NVMLError:
                self._handles[uuid] = None
        return self._handles.get(uuid)


_SESSION = _Session()


def _start() -> Any:
    """Return the initialised library; None where there is none."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return pynvml


def _state_of(library: Any, handle: Any) -> DeviceState | None:
    def ask(read: Callable[..., int], *which: int) -> int | None:
        try:
            return int(read(handle, *which))
        except library.NVMLError:
            return None

    power_mw = ask(library.nvmlDeviceGetPowerUsage)
    reasons = ask(library.nvmlDeviceGetCurrentClocksEventReasons)
    if reasons is None:  # The name that older drivers know.
        reasons = ask(library.nvmlDeviceGetCurrentClocksThrottleReasons)
    state = DeviceState(
        sm_mhz=ask(library.nvmlDeviceGetClockInfo, library.NVML_CLOCK_SM),
        memory_mhz=ask(library.nvmlDeviceGetClockInfo, library.NVML_CLOCK_MEM),
        temperature_c=ask(library.nvmlDeviceGetTemperature, library.NVML_TEMPERATURE_GPU),
        power_w=None if power_mw is None else power_mw * _WATTS,
        throttle=tuple(name for bit, name in _THROTTLE.items() if (reasons or 0) & bit),
    )
    return None if reasons is None and state == DeviceState() else state


def _pids_of(library: Any, handle: Any) -> set[int]:
    return {int(process.pid) for process in library.nvmlDeviceGetComputeRunningProcesses(handle)}


def _cores_of(library: Any, handle: Any) -> frozenset[int]:
    words = library.nvmlDeviceGetCpuAffinity(handle, _MAX_CORES // _BITS)
    return frozenset(
        number * _BITS + bit
        for number, word in enumerate(words)
        for bit in range(_BITS)
        if int(word) >> bit & 1
    )


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
