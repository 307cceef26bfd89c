"""The sliding window: just enough orders in flight, retries first, every attempt recorded."""

from __future__ import annotations

import itertools
import time
import traceback
import uuid
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator

import msgspec
from distributed import CancelledError, Client, Future, KilledWorker, as_completed

from opsgen.fleet.orders import Order, Settings, decode_reply, encode
from opsgen.fleet.roster import Roster
from opsgen.fleet.settling import Ledger
from opsgen.fleet.starts import NUM_STARTS_OF_CRASH_LOOP, NUM_STARTS_OF_SUSPECT, Starts
from opsgen.fleet.worker import FORGET_EVERY, attempt_of, forget_history, perform, stop_run
from opsgen.records import Attempt, Fault, Request

_NUM_LOG_LINES = 20
_FIRST_LOOK_S = 0.05
_LOOK_S = 1.0

_CRASH_LOOP = Fault(
    reason="crash_loop",
    stage="",
    detail=f"begun {NUM_STARTS_OF_CRASH_LOOP} times without an end: the driver died each time",
)


class Window:
    """One run through a list of requests.

    Memory holds the orders in flight and what the ledger remembers: requests
    are pulled one at a time, and futures are released as soon as they are done.
    Suspects, with which drivers or workers went down before, wait until nothing
    else is left and then run one by one.
    """

    def __init__(self, client: Client, settings: Settings, ledger: Ledger, starts: Starts) -> None:
        self._client = client
        self._settings = settings
        self._ledger = ledger
        self._starts = starts
        self._roster = Roster(client)
        self._run_id = uuid.uuid4().hex
        self._num_submitted = itertools.count()
        self._in_flight: dict[Future[bytes], tuple[Order, float]] = {}
        self._retries: deque[Order] = deque()
        self._suspects: deque[Order] = deque()
        self._completed = as_completed(loop=client.loop, with_results=True, raise_errors=False)

    def attempts(
        self, requests: Iterable[tuple[str, Request]], record: Callable[[Attempt], None]
    ) -> Generator[Attempt, None, None]:
        """Yield every attempt after `record` has taken it.

        Raises:
            MeasureError: The scheduler is gone, or no device works. What was recorded
                stands; run again.
        """
        orders = self._orders(requests)
        try:
            while True:
                for order, attempt in self._fill(orders):
                    yield self._settle(order, attempt, record)
                if not self._in_flight:
                    return
                order, answer = self._next()
                if answer is None:
                    self._retries.append(order)
                else:
                    yield self._settle(order, answer, record)
        finally:
            self._stop()

    def _orders(self, requests: Iterable[tuple[str, Request]]) -> Iterator[Order]:
        for key, request in requests:
            order = Order(
                run_id=self._run_id, key=key, number=0, request=request, settings=self._settings
            )
            if not self._ledger.is_done(order.place) and not self._is_known(order.place):
                number = self._ledger.num_attempts(order.place)
                yield msgspec.structs.replace(order, number=number)

    def _is_known(self, place: tuple[str, str]) -> bool:
        flying = (order for order, _ in self._in_flight.values())
        return any(place == order.place for order in (*flying, *self._retries, *self._suspects))

    def _fill(self, orders: Iterator[Order]) -> Iterator[tuple[Order, Attempt]]:
        """Submit orders until enough are in flight; yield those that must not be tried again."""
        while len(self._in_flight) < self._roster.window:
            order = self._draw(orders)
            if order is None:
                return
            if self._starts.count(order.place) >= NUM_STARTS_OF_CRASH_LOOP:
                yield order, attempt_of(order, _CRASH_LOOP, 0, (time.time(), 0.0))
            else:
                self._submit(order)

    def _draw(self, orders: Iterator[Order]) -> Order | None:
        while self._retries:
            order = self._retries.popleft()
            if not self._ledger.is_suspect(order.place):
                return order
            self._suspects.append(order)
        for order in orders:
            if self._starts.count(order.place) != NUM_STARTS_OF_SUSPECT:
                return order
            self._suspects.append(order)
        return self._suspects.popleft() if self._suspects and not self._in_flight else None

    def _settle(self, order: Order, attempt: Attempt, record: Callable[[Attempt], None]) -> Attempt:
        record(attempt)
        self._starts.end(order.place)
        if self._ledger.add(attempt) is None:
            alone = self._ledger.needs_device_alone(order.place)
            self._retries.append(
                msgspec.structs.replace(order, number=order.number + 1, alone=alone)
            )
        return attempt

    def _submit(self, order: Order) -> None:
        # The first element groups the tasks, which is what Dask's queueing goes by. The
        # rest makes the key unique: no leftover of another run or try may answer for it.
        number = next(self._num_submitted)
        key = (f"opsgen-{order.job}", order.key, order.number, self._run_id, number)
        self._starts.begin(order.place)
        future = self._client.submit(
            perform,
            encode(order),
            key=key,
            retries=0,
            pure=False,
            workers=self._roster.choice(),
            allow_other_workers=self._roster.choice() is not None,
        )
        self._in_flight[future] = (order, time.time())
        self._completed.add(future)
        if number % FORGET_EVERY == FORGET_EVERY - 1:
            self._client.run_on_scheduler(forget_history)

    def _next(self) -> tuple[Order, Attempt | None]:
        """Wait for an order to end; the attempt is None when a worker was too sick to make one.

        Raises:
            MeasureError: The scheduler is gone, or no device works.
        """
        self._wait()
        future, outcome = next(self._completed)
        order, submitted_s = self._in_flight.pop(future)
        future.release()
        if isinstance(outcome, bytes):
            reply = decode_reply(outcome)
            if reply.attempt is None:
                self._roster.refuse(reply.worker, reply.sickness or "")
            else:
                self._roster.accept(reply.worker)
            return order, reply.attempt
        self._roster.check()
        error = outcome[1] if isinstance(outcome, tuple) else outcome
        times = (submitted_s, time.time() - submitted_s)
        fault = _fault_of(error)
        if fault.reason == "infrastructure":
            self._roster.fail(fault.detail)
        return order, attempt_of(order, fault, 0, times)

    def _wait(self) -> None:
        """Return when something has arrived, looking after starts and workers meanwhile."""
        look_s = _FIRST_LOOK_S
        self._starts.sync()
        while not self._completed.has_ready():
            with self._completed.thread_condition:
                is_notified = self._completed.thread_condition.wait(look_s)
            self._starts.sync()
            if not is_notified:
                self._roster.check()
                look_s = _LOOK_S

    def _stop(self) -> None:
        """Give up what is in flight and kill the children that work on it."""
        futures = list(self._in_flight)
        self._in_flight.clear()
        self._completed.clear()
        self._starts.withdraw()
        if futures and self._client.status == "running":
            self._client.cancel(futures, force=True)
            self._client.run(stop_run, self._run_id, wait=False, on_error="ignore")


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
