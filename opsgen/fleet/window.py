"""The sliding window: just enough orders in flight, retries first, every attempt recorded."""

from __future__ import annotations

import time
import traceback
import uuid
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator

import msgspec
from distributed import CancelledError, Client, Future, KilledWorker, as_completed

from opsgen.errors import MeasureError
from opsgen.fleet.orders import Order, Settings, decode_attempt, encode
from opsgen.fleet.settling import Ledger
from opsgen.fleet.worker import attempt_of, perform, stop_run
from opsgen.records import Attempt, Fault, Request

WINDOW_PER_SLOT = 1.25
_REFRESH_S = 10.0
_NUM_LOG_LINES = 20


class Window:
    """One run through a list of requests.

    Memory holds the orders in flight and what the ledger remembers: requests
    are pulled one at a time, and futures are released as soon as they are done.
    """

    def __init__(self, client: Client, settings: Settings, ledger: Ledger) -> None:
        self._client = client
        self._settings = settings
        self._ledger = ledger
        self._run_id = uuid.uuid4().hex
        self._in_flight: dict[Future[bytes], tuple[Order, float]] = {}
        self._retries: deque[Order] = deque()
        self._completed = as_completed(loop=client.loop, with_results=True, raise_errors=False)
        self._limit = 0
        self._limit_until_s = 0.0

    def attempts(
        self, requests: Iterable[tuple[str, Request]], record: Callable[[Attempt], None]
    ) -> Generator[Attempt, None, None]:
        """Yield every attempt after `record` has taken it.

        Raises:
            MeasureError: The scheduler is gone. What was recorded stands; run again.
        """
        orders = self._orders(requests)
        try:
            while True:
                while len(self._in_flight) < self._size():
                    order = self._retries.popleft() if self._retries else next(orders, None)
                    if order is None:
                        break
                    self._submit(order)
                if not self._in_flight:
                    return
                order, attempt = self._next()
                record(attempt)
                if self._ledger.add(attempt) is None:
                    self._retries.append(msgspec.structs.replace(order, number=order.number + 1))
                yield attempt
        finally:
            self._stop()

    def _orders(self, requests: Iterable[tuple[str, Request]]) -> Iterator[Order]:
        for key, request in requests:
            order = Order(
                run_id=self._run_id, key=key, number=0, request=request, settings=self._settings
            )
            place = (order.job, key)
            if self._ledger.is_done(place) or self._is_in_flight(place):
                continue
            yield msgspec.structs.replace(order, number=self._ledger.num_attempts(place))

    def _is_in_flight(self, place: tuple[str, str]) -> bool:
        waiting = [order for order, _ in self._in_flight.values()]
        return any(place == (order.job, order.key) for order in (*waiting, *self._retries))

    def _submit(self, order: Order) -> None:
        # The first element groups the tasks, which is what Dask's queueing goes by.
        # The run makes the key unique: a stopped run's leftovers must not answer for it.
        key = (f"opsgen-{order.job}", order.key, order.number, self._run_id)
        future = self._client.submit(perform, encode(order), key=key, retries=0, pure=False)
        self._in_flight[future] = (order, time.time())
        self._completed.add(future)

    def _next(self) -> tuple[Order, Attempt]:
        future, outcome = next(self._completed)
        order, submitted_s = self._in_flight.pop(future)
        future.release()
        if isinstance(outcome, bytes):
            return order, decode_attempt(outcome)
        if self._client.status != "running":
            raise MeasureError("the scheduler is gone; run again to resume")
        error = outcome[1] if isinstance(outcome, tuple) else outcome
        times = (submitted_s, time.time() - submitted_s)
        return order, attempt_of(order, _fault_of(error), 0, times)

    def _size(self) -> int:
        now_s = time.monotonic()
        if now_s > self._limit_until_s:
            num_slots = sum(self._client.nthreads().values())
            self._limit = max(num_slots + 1, int(WINDOW_PER_SLOT * num_slots))
            self._limit_until_s = now_s + _REFRESH_S
        return self._limit

    def _stop(self) -> None:
        """Give up what is in flight and kill the children that work on it."""
        futures = list(self._in_flight)
        self._in_flight.clear()
        self._completed.clear()
        if futures and self._client.status == "running":
            self._client.cancel(futures, force=True)
            self._client.run(stop_run, self._run_id, wait=False)


def _fault_of(error: BaseException) -> Fault:
    """Return the fault for an order that brought no attempt: never the task's doing."""
    is_lost = isinstance(error, KilledWorker | CancelledError | OSError | TimeoutError)
    lines = "".join(traceback.format_exception(error)).splitlines()
    return Fault(
        reason="worker_lost" if is_lost else "infrastructure",
        stage="",
        detail=" ".join(f"{type(error).__name__}: {error}".split())[:500],
        log="\n".join(lines[-_NUM_LOG_LINES:]),
    )
