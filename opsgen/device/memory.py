"""Giving a device's memory back between holds, and reading its peak."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor


def free_storage(tensors: Iterable[Tensor]) -> None:
    """Give the storage of tensors back; shapes and types stay, so code can be compiled on them.

    Storage that something outside torch holds, such as an array of numpy, stays.
    """
    for tensor in tensors:
        storage = tensor.untyped_storage()
        if storage.resizable():
            storage.resize_(0)


def settle(device: str) -> None:
    """Wait for the device and return its cached memory, as before leaving the lease."""
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize()
        torch.cuda.empty_cache()


class PeakMemory:
    """Reads the peak of device memory since it was made; a CPU has no such counter."""

    def __init__(self, device: str) -> None:
        self._is_cuda = torch.device(device).type == "cuda"
        if self._is_cuda:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()

    def read(self) -> int | None:
        """Return the peak in bytes; None on a CPU."""
        if not self._is_cuda:
            return None
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated()
