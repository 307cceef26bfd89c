"""The clock of a job: what is left of a stage's deadline, and how long the device was held."""

from __future__ import annotations

from collections.abc import Mapping

START_STAGE = "start"
"""Starting the process and importing what a job needs: no task code runs in it."""

CHECK_STAGE = "check"
"""Looking whether the device is sound: no task code runs in it either."""

CHECK_DEADLINE_S = 60.0
"""For `CHECK_STAGE`, which recipes do not name: a device that hangs is held all the while."""

DEFAULT_DEADLINE_S = 120.0
"""For stages that the recipe does not name."""

MAX_LEASE_WAIT_S = 3600.0
"""A longer single wait means that the lease's holder is not being supervised."""


class StageClock:
    """Counts the seconds that the current stage may still take, and those of the device.

    Waits for the device are excluded from the first. Times are readings of any one
    monotonic clock, passed in.
    """

    def __init__(self, deadlines_s: Mapping[str, float], stage: str, now_s: float) -> None:
        self._deadlines_s = deadlines_s
        self.stage = stage
        self._used_s = 0.0
        self._since_s = now_s
        self.is_waiting = False
        self._hold_s = 0.0
        self._held_since_s: float | None = None

    @property
    def deadline_s(self) -> float:
        """Deadline of the current stage."""
        default_s = CHECK_DEADLINE_S if self.stage == CHECK_STAGE else DEFAULT_DEADLINE_S
        return self._deadlines_s.get(self.stage, default_s)

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

    def set_holding(self, is_holding: bool, now_s: float) -> None:
        """Count from now on what the device is held, or no longer."""
        self._hold_s = self.hold_s(now_s)
        self._held_since_s = now_s if is_holding else None

    def hold_s(self, now_s: float) -> float:
        """Return how long the device was held, up to now if it is; in whatever stages."""
        since_s = self._held_since_s
        return self._hold_s + (now_s - since_s if since_s is not None else 0.0)

    def left_s(self, now_s: float) -> float:
        """Return what is left of the deadline, or of the longest wait; negative when over."""
        run_s = now_s - self._since_s
        if self.is_waiting:
            return MAX_LEASE_WAIT_S - run_s
        return self.deadline_s - self._used_s - run_s
