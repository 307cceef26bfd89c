"""What the parts of one measurement share: the request, seeds, findings, and the lease's account."""

from __future__ import annotations

from typing import Any

import torch

from opsgen.child.context import JobContext
from opsgen.records import MeasureRequest, Task
from opsgen.verify import derive_seed


class Measuring:
    """One task while it is measured.

    Attributes:
        request: What is asked.
        context: The child's surroundings.
        seen: Fields of the evidence, filled as they are found.
        device: `cpu` or `cuda`.
        weight_seeds: Of the state under which everything is checked and timed, and of another.
        draw_seeds: Of the two draws of inputs.
    """

    def __init__(self, request: MeasureRequest, context: JobContext, seen: dict[str, Any]) -> None:
        self.request = request
        self.context = context
        self.seen = seen
        self.device = request.device
        self.weight_seeds = (self.seed("weights", 0), self.seed("weights", 1))
        self.draw_seeds = (self.seed("draw", 0), self.seed("draw", 1))

    @property
    def task(self) -> Task:
        """The task."""
        return self.request.task

    @property
    def is_cuda(self) -> bool:
        """The device is a GPU."""
        return torch.device(self.device).type == "cuda"

    def seed(self, purpose: str, number: int) -> int:
        """Return the seed of a draw for a purpose; a function of the request and the task."""
        return derive_seed(self.request.seed, self.task.task_id, purpose, number)

    def charge(self, part: str) -> None:
        """Charge the device's time since the last charge to `part`."""
        if self.is_cuda:
            torch.cuda.synchronize()
        self.context.lease.charge(part)
