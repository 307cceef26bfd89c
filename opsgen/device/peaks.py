"""What a device reaches at best: moving memory, and multiplying matrices in a type.

Measured, not read off a data sheet, so that no honest kernel is beyond it by
more than noise. Once in a process for each type, under the lease.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from opsgen.device.modes import HIGH, matmul_precision
from opsgen.device.stopwatch import CudaStopwatch, HostStopwatch, Trial

TF32 = "tf32"
"""float32 as convolutions are computed on a GPU."""
NUM_CALLS = 10

_COPY_BYTES = {"cuda": 2**30, "cpu": 2**26}
_SIZE = {"cuda": 4096, "cpu": 512}
_LARGE_SIZE = 8192
_LARGE_KINDS = frozenset({TF32, "bfloat16", "float16"})
"""Fast enough on a GPU that a product has to be larger to fill it."""
_HIGHEST = "highest"

_BANDWIDTHS: dict[str, float] = {}
_RATES: dict[tuple[str, str], float] = {}


def measure_bandwidth(device: str) -> float:
    """Return the gigabytes a second, read plus written, that a large copy reaches.

    Args:
        device: `cpu` or `cuda`, whose lease is held.
    """
    kind = torch.device(device).type
    if kind not in _BANDWIDTHS:
        size_bytes = _COPY_BYTES[kind]
        source = torch.zeros(size_bytes, dtype=torch.uint8, device=kind)
        target = torch.empty_like(source)
        ms = _shortest_ms(kind, lambda: target.copy_(source))
        _BANDWIDTHS[kind] = 2 * size_bytes / ms / 1e6
    return _BANDWIDTHS[kind]


def measure_rate(device: str, dtype: str) -> float:
    """Return the teraflops a second that a large product of random matrices reaches.

    Args:
        device: `cpu` or `cuda`, whose lease is held.
        dtype: A floating type of torch, or `tf32`.
    """
    kind = torch.device(device).type
    if (kind, dtype) not in _RATES:
        is_large = kind == "cuda" and dtype in _LARGE_KINDS
        size = _LARGE_SIZE if is_large else _SIZE[kind]
        own = torch.float32 if dtype == TF32 else getattr(torch, dtype)
        generator = torch.Generator(kind).manual_seed(0)
        # On zeros a GPU draws less power and clocks higher.
        left = torch.rand(size, size, device=kind, generator=generator).to(own)
        right = torch.rand(size, size, device=kind, generator=generator).to(own)
        out = torch.empty_like(left)
        with matmul_precision(HIGH if dtype == TF32 else _HIGHEST), torch.no_grad():
            ms = _shortest_ms(kind, lambda: torch.mm(left, right, out=out))
        _RATES[kind, dtype] = 2 * size**3 / ms / 1e9
    return _RATES[kind, dtype]


def _shortest_ms(kind: str, call: Callable[[], object]) -> float:
    stopwatch = HostStopwatch() if kind == "cpu" else CudaStopwatch()
    readings = stopwatch.read([Trial("peak", call)] * NUM_CALLS)
    return min(reading.ms for reading in readings)
