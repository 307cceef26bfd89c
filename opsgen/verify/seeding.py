"""Seeds, and the one place where global generators are seeded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from opsgen.records import digest


def derive_seed(*parts: int | str) -> int:
    """Return a seed in [0, 2**63) that depends on all `parts` and nothing else."""
    return int(digest(parts), 16) >> 1


@contextmanager
def seeded(seed: int, device: str = "cpu") -> Iterator[None]:
    """Seed torch's global generators of the CPU and of `device`, and restore them afterwards.

    Task code draws from the global generators and cannot be handed its own.
    """
    cuda = torch.device(device).type == "cuda"  # `meta` draws nothing
    devices = [torch.cuda.current_device()] if cuda else []
    with torch.random.fork_rng(devices=devices, device_type="cuda"):
        # torch.manual_seed would also queue a seeding of CUDA with a formatted stack for
        # every call in a process that never starts CUDA: dearer than a small task.
        torch.default_generator.manual_seed(seed)
        for index in devices:
            torch.cuda.default_generators[index].manual_seed(seed)
        yield
