"""The clock of the stages: what is left of a deadline, waits for the device excluded."""

from __future__ import annotations

from collections.abc import Mapping

START_STAGE = "start"
"""Starting the process and importing what a job needs: no task code runs in it."""

DEFAULT_DEADLINE_S = 120.0
"""For stages that the recipe does not name."""

MAX_LEASE_WAIT_S = 3600.0
"""A longer single wait means that the lease's holder is not being supervised."""


class StageClock:
    """Counts the seconds that the current stage may still take.

    Times are readings of any one monotonic clock, passed in.
    """

    def __init__(self, deadlines_s: Mapping[str, float], stage: str, now_s: float) -> None:
        self._deadlines_s = deadlines_s
        self.stage = stage
        self._used_s = 0.0
        self._since_s = now_s
        self.is_waiting = False

    @property
    def deadline_s(self) -> float:
        """Deadline of the current stage."""
        return self._deadlines_s.get(self.stage, DEFAULT_DEADLINE_S)

    def enter(self, stage: str, now_s: float) -> None:
        """Begin a stage; a wait in progress ends with the old one."""
        self.stage = stage
        self._used_s = 0.0
        self._since_s = now_s
        self.is_waiting = False

    def set_waiting(self, is_waiting: bool, now_s: float) -> None:
        """Stop the clock for a wait, or let it run on."""
        if is_waiting == self.is_waiting:
            return
        if is_waiting:
            self._used_s += now_s - self._since_s
        self._since_s = now_s
        self.is_waiting = is_waiting

    def left_s(self, now_s: float) -> float:
        """Return what is left of the deadline, or of the longest wait; negative when over."""
        run_s = now_s - self._since_s
        if self.is_waiting:
            return MAX_LEASE_WAIT_S - run_s
        return self.deadline_s - self._used_s - run_s
