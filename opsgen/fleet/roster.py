"""Which workers get orders: the driver's side of the circuit breaker."""

from __future__ import annotations

import time

from distributed import Client

from opsgen.errors import MeasureError

WINDOW_PER_SLOT = 1.25
MAX_WITHOUT_WORKERS_S = 60.0

_MAX_FAILURES = 10
_REFRESH_S = 10.0
_MISSING_REFRESH_S = 0.5
_FIRST_REST_S = 5.0
_MAX_REST_S = 300.0


class Roster:
    """The workers of a fleet and how they are.

    A worker that refuses an order as sick gets none for a while, twice as long
    each time; its own canary decides whether it takes the next one.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._slots: dict[str, int] = {}
        self._refreshed_s = -_REFRESH_S
        self._seen_s = time.monotonic()
        self._num_failures = 0
        self._rests: dict[str, float] = {}
        self._until_s: dict[str, float] = {}

    @property
    def window(self) -> int:
        """How many orders should be in flight."""
        self._refresh(_REFRESH_S)
        resting = self._resting()
        num_slots = sum(num for worker, num in self._slots.items() if worker not in resting)
        return max(num_slots + 1, int(WINDOW_PER_SLOT * num_slots))

    def choice(self) -> list[str] | None:
        """Return the workers that should get the next order; None for all."""
        resting = self._resting()
        fit = [worker for worker in self._slots if worker not in resting]
        return fit if resting and fit else None

    def accept(self, worker: str) -> None:
        """Note that a worker made an attempt."""
        self._num_failures = 0
        self._rests.pop(worker, None)
        self._until_s.pop(worker, None)

    def fail(self, detail: str) -> None:
        """Note that an order died of an exception on its worker, which no task causes.

        Raises:
            MeasureError: So did all before it, for a while.
        """
        self._num_failures += 1
        if self._num_failures >= _MAX_FAILURES:
            raise MeasureError(f"the workers fail ({detail}); run again to resume")

    def refuse(self, worker: str, sickness: str) -> None:
        """Note that a worker took no order.

        Raises:
            MeasureError: None is left that would take one.
        """
        self._refresh(0.0)
        if worker not in self._resting():
            rest_s = min(2.0 * self._rests.get(worker, _FIRST_REST_S / 2.0), _MAX_REST_S)
            self._rests[worker] = rest_s
            self._until_s[worker] = time.monotonic() + rest_s
        if self._slots and self._slots.keys() <= self._rests.keys():
            raise MeasureError(f"no device of the fleet works ({sickness}); run again to resume")

    def check(self) -> None:
        """Hold that somebody is at work; called while nothing arrives.

        Raises:
            MeasureError: The scheduler is gone, or has had no workers for a while.
        """
        if self._client.status != "running":
            raise MeasureError("the scheduler is gone; run again to resume")
        self._refresh(_REFRESH_S)
        missing_s = time.monotonic() - self._seen_s
        if not self._slots and missing_s > MAX_WITHOUT_WORKERS_S:
            raise MeasureError(f"no worker is left since {missing_s:.0f} s; run again to resume")

    def _resting(self) -> set[str]:
        now_s = time.monotonic()
        return {worker for worker, until_s in self._until_s.items() if until_s > now_s}

    def _refresh(self, max_age_s: float) -> None:
        now_s = time.monotonic()
        if now_s - self._refreshed_s < (max_age_s if self._slots else _MISSING_REFRESH_S):
            return
        try:
            self._slots = dict(self._client.nthreads())
        except OSError as error:
            raise MeasureError(f"the scheduler is gone ({error}); run again to resume") from error
        self._refreshed_s = now_s
        if self._slots:
            self._seen_s = now_s
        for worker in self._rests.keys() - self._slots.keys():
            self.accept(worker)
