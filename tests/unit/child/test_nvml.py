"""The list of GPUs is what this process may see, and what NVML tells of one never raises."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from opsgen.child import Gpu, list_gpus, list_pids, nvml, read_state
from opsgen.records import DeviceState

_GPUS = [Gpu(uuid=f"GPU-{name}", name="H200", driver="570") for name in ("aa", "ab", "c")]


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, ["GPU-aa", "GPU-ab", "GPU-c"]),
        ("", []),
        ("-1", []),
        ("2,0", ["GPU-c", "GPU-aa"]),
        ("GPU-ab", ["GPU-ab"]),
        ("GPU-c, 1", ["GPU-c", "GPU-ab"]),
        ("GPU-a", []),
        ("0,7,1", ["GPU-aa"]),
        ("0,0,1", ["GPU-aa"]),
    ],
)
def test_the_variable_selects_as_cuda_does(
    monkeypatch: pytest.MonkeyPatch, visible: str | None, expected: list[str]
) -> None:
    monkeypatch.setattr(nvml, "_all_gpus", lambda: list(_GPUS))
    environ = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert [gpu.uuid for gpu in list_gpus(environ)] == expected


def test_asking_never_raises() -> None:
    assert all(gpu.uuid for gpu in list_gpus())


class _NVMLError(Exception):
    """What every call of NVML may raise."""


class _Driver(ModuleType):
    """One GPU's NVML, as `pynvml` shows it; calls in `broken` fail."""

    NVMLError = _NVMLError
    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0

    def __init__(self) -> None:
        super().__init__("pynvml")
        self.broken: set[str] = set()
        self.calls: list[str] = []
        self.reasons = 0
        self.answers: dict[str, Callable[..., Any]] = {
            "nvmlInit": lambda: None,
            "nvmlDeviceGetHandleByUUID": self._find,
            "nvmlDeviceGetClockInfo": lambda gpu, which: {1: 1980, 2: 3201}[which],
            "nvmlDeviceGetTemperature": lambda gpu, sensor: 41,
            "nvmlDeviceGetPowerUsage": lambda gpu: 312_500,
            "nvmlDeviceGetCurrentClocksEventReasons": lambda gpu: self.reasons,
            "nvmlDeviceGetCurrentClocksThrottleReasons": lambda gpu: self.reasons,
            "nvmlDeviceGetComputeRunningProcesses": lambda gpu: [
                SimpleNamespace(pid=pid) for pid in (17, 4711)
            ],
            "nvmlDeviceGetCpuAffinity": lambda gpu, size: [0b1011, 1 << 63] + [0] * (size - 2),
        }

    def _find(self, uuid: str) -> str:
        if uuid != "GPU-here":
            raise _NVMLError
        return "handle"

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in self.answers:
            raise AttributeError(name)

        def call(*arguments: object) -> Any:
            self.calls.append(name)
            if name in self.broken:
                raise _NVMLError
            if name not in ("nvmlInit", "nvmlDeviceGetHandleByUUID"):
                assert arguments[0] == "handle"
            return self.answers[name](*arguments)

        return call


@pytest.fixture(name="driver")
def _driver(monkeypatch: pytest.MonkeyPatch) -> _Driver:
    driver = _Driver()
    monkeypatch.setitem(sys.modules, "pynvml", driver)
    monkeypatch.setattr(nvml, "_SESSION", nvml._Session())
    return driver


def test_the_state_is_told_in_its_units(driver: _Driver) -> None:
    assert read_state("GPU-here") == DeviceState(
        sm_mhz=1980, memory_mhz=3201, temperature_c=41, power_w=312.5
    )


@pytest.mark.parametrize(
    ("reasons", "expected"),
    [
        (0x1, ()),
        (0x2, ()),
        (0x4, ("sw_power_cap",)),
        (0x8 | 0x40, ("hw_slowdown", "hw_thermal_slowdown")),
        (0x20 | 0x1, ("sw_thermal_slowdown",)),
        (0x80, ("hw_power_brake",)),
    ],
)
def test_throttling_has_names_and_idling_is_none(
    driver: _Driver, reasons: int, expected: tuple[str, ...]
) -> None:
    driver.reasons = reasons
    for is_old in (False, True):
        driver.broken = {"nvmlDeviceGetCurrentClocksEventReasons"} if is_old else set()
        state = read_state("GPU-here")
        assert state is not None
        assert state.throttle == expected


@pytest.mark.parametrize("call", ["ClockInfo", "Temperature", "PowerUsage"])
def test_what_one_call_refuses_is_absent(driver: _Driver, call: str) -> None:
    driver.broken = {f"nvmlDeviceGet{call}"}
    state = read_state("GPU-here")
    assert state is not None
    absent = {name for name in ("sm_mhz", "memory_mhz", "temperature_c", "power_w")
              if getattr(state, name) is None}  # fmt: skip
    assert (
        absent
        == {
            "ClockInfo": {"sm_mhz", "memory_mhz"},
            "Temperature": {"temperature_c"},
            "PowerUsage": {"power_w"},
        }[call]
    )


def test_a_gpu_that_tells_nothing_has_no_state(driver: _Driver) -> None:
    driver.broken = {name for name in driver.answers if name.startswith("nvmlDeviceGet")}
    driver.broken.discard("nvmlDeviceGetHandleByUUID")
    assert read_state("GPU-here") is None
    assert list_pids("GPU-here") is None
    assert nvml.cpu_affinity("GPU-here") is None


def test_processes_and_cores_are_told(driver: _Driver) -> None:
    assert list_pids("GPU-here") == {17, 4711}
    assert nvml.cpu_affinity("GPU-here") == {0, 1, 3, 127}


def test_nvml_is_started_once_and_the_gpu_found_once(driver: _Driver) -> None:
    for _ in range(3):
        read_state("GPU-here")
        list_pids("GPU-here")
        assert read_state("GPU-elsewhere") is None
        assert list_pids("cpu") is None
    assert driver.calls.count("nvmlInit") == 1
    assert driver.calls.count("nvmlDeviceGetHandleByUUID") == 3


def test_without_nvml_there_is_no_answer(driver: _Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    driver.broken = {"nvmlInit"}
    assert read_state("GPU-here") is None
    assert list_pids("GPU-here") is None
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setattr(nvml, "_SESSION", nvml._Session())
    assert read_state("GPU-here") is None


@pytest.mark.gpu
def test_a_real_gpu_has_a_state_and_knows_who_is_on_it(
    record_property: Callable[[str, object], None],
) -> None:
    gpu = list_gpus()[0]
    state = read_state(gpu.uuid)
    for ask in (read_state, list_pids):
        begin_s = time.perf_counter()
        for _ in range(20):
            ask(gpu.uuid)
        call_ms = (time.perf_counter() - begin_s) / 20 * 1e3
        record_property(f"{ask.__name__}, ms", f"{call_ms:.3f}")
    assert state is not None
    assert state.sm_mhz is not None
    assert state.sm_mhz > 0
    assert state.temperature_c is not None
    assert 0 < state.temperature_c < 120
    assert list_pids(gpu.uuid) is not None
    assert nvml.cpu_affinity(gpu.uuid) is None or nvml.cpu_affinity(gpu.uuid)
