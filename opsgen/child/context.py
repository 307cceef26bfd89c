"""What a job is handed: the device, its lease, and a way to announce stages."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from opsgen.child.deadline import CHECK_STAGE
from opsgen.child.frames import LeaseWait, Message, Stage
from opsgen.child.lease import DeviceLease

logger = logging.getLogger(__name__)


class JobContext:
    """The surroundings of one job in a child.

    Attributes:
        device: `cpu` or `cuda`; a child sees a single GPU.
        lease: The device's lease. All device work happens inside `lease.hold()`;
            its counters start at zero with every job. A job that sets its `verifier`
            has checks of the device made outside the current stage: what goes wrong in
            one is never the task's fault.
    """

    def __init__(self, device: str, lease: DeviceLease, announce: Callable[[Message], None]):
        self.device = device
        self.lease = lease
        self._announce = announce
        self._stage = ""
        self._spoiled: str | None = None
        self._stage_before_check = ""
        lease.reset_counters()
        lease.on_check = self._set_checking

    @property
    def current_stage(self) -> str:
        """The stage announced last; empty before the first."""
        return self._stage

    @property
    def spoiled(self) -> str | None:
        """Why this process must serve no further job; None while it may."""
        return self._spoiled

    def stage(self, name: str) -> None:
        """Announce that stage `name` begins, which starts its deadline and ends the last one's.

        The recipe's `fleet.deadlines_s` names the stages; one that it does not
        name gets `opsgen.child.DEFAULT_DEADLINE_S`.
        """
        self._stage = name
        self._announce(Stage(name=name))

    def _set_checking(self, is_checking: bool) -> None:
        if is_checking:
            self._stage_before_check = self._stage
            self.stage(CHECK_STAGE)
        elif self._stage_before_check:
            self.stage(self._stage_before_check)

    def spoil(self, why: str) -> None:
        """Declare this process unfit for further jobs; the present one is not affected."""
        self._spoiled = self._spoiled or why


class LocalContext(JobContext):
    """A context without a supervisor: nothing has a deadline, stages are only logged.

    Args:
        device: `cpu` or `cuda`.
        device_id: Whose lease to take: a GPU's UUID, or `cpu`.
        lease_dir: Where the lease files lie; by default where children look too.
    """

    def __init__(
        self, device: str = "cpu", device_id: str = "cpu", lease_dir: Path | None = None
    ) -> None:
        super().__init__(device, DeviceLease(device_id, lease_dir, _log_wait), _log_message)


def _log_message(message: Message) -> None:
    logger.debug("%s", message)


def _log_wait(is_waiting: bool) -> None:
    _log_message(LeaseWait(is_waiting=is_waiting))
