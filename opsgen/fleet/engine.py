"""A fleet: workers on one or many machines that run jobs in supervised children."""

from __future__ import annotations

import contextlib
import itertools
import os
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator
from types import TracebackType

from opsgen.child import require_layers
from opsgen.errors import MeasureError
from opsgen.fleet.cluster import Cluster, open_cluster
from opsgen.fleet.journal import Journal
from opsgen.fleet.orders import Settings
from opsgen.fleet.settling import Ledger
from opsgen.fleet.starts import Starts
from opsgen.fleet.window import Window
from opsgen.recipe import FleetConfig
from opsgen.records import Attempt, Evidence, Request


class Fleet:
    """Runs jobs on all devices, as a context manager.

    Args:
        config: Children, deadlines and limits.
        device: `cpu` or `cuda`: one worker per GPU that this process may see.
        scheduler: Address of a Dask scheduler whose workers do the work; without it
            the fleet starts workers of its own here.
        shown: Files that jobs read, such as tables of benchmarks: sandboxed children
            would not see them where they lie in a home or temporary folder.

    Raises:
        MeasureError: On entry: the children are to be sandboxed, and this machine
            lacks a required layer.
    """

    def __init__(
        self,
        config: FleetConfig,
        device: str,
        scheduler: str | None = None,
        shown: tuple[str, ...] = (),
    ) -> None:
        self.config = config
        self.device = device
        self.scheduler = scheduler
        self.shown = shown
        self._cluster: Cluster | None = None
        self._streams: weakref.WeakSet[Generator[Attempt, None, None]] = weakref.WeakSet()
        self._ask_numbers = itertools.count()

    def __enter__(self) -> Fleet:
        if self.config.sandbox and self.scheduler is None:
            # Workers elsewhere look for themselves, and take no orders without.
            require_layers(self.device)
        self._cluster = open_cluster(self.device, self.config.children_per_device, self.scheduler)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def dashboard(self) -> str | None:
        """Address of Dask's dashboard; None where bokeh is not installed."""
        return self._opened().dashboard

    @property
    def num_slots(self) -> int:
        """Children that can work at the same time."""
        return sum(self._opened().client.nthreads().values())

    @property
    def num_devices(self) -> int:
        """Devices at work, at least one: each has a worker of its own."""
        return max(1, len(self._opened().client.nthreads()))

    def run(
        self,
        requests: Iterable[tuple[str, Request]],
        journal: Journal,
        history: Iterable[Attempt] = (),
    ) -> Iterator[Attempt]:
        """Do all requests, retrying by the table of reasons, and yield every attempt.

        An attempt is in the journal before it is yielded. Attempts come in the order
        of their ends; `Ledger.add` or `settle` tells which are final. Closing the
        iterator drops what is in flight and kills its children.

        Args:
            requests: Pairs of a key and what to do about it, pulled one at a time as
                slots become free; it may be endless.
            journal: Where attempts are recorded.
            history: Attempts of earlier runs. Requests that they answer, or whose faults
                they charge to the task, are skipped; deferred ones are tried again.

        Raises:
            MeasureError: The scheduler is gone. The journal stands; run again.
        """
        return self._stream(requests, journal.append, Ledger(history), journal.starts)

    def ask(self, request: Request) -> Evidence:
        """Do a single job that no journal records.

        Raises:
            MeasureError: It ended in a fault, whose last lines are in the message.
        """
        key = f"ask-{os.getpid()}-{next(self._ask_numbers)}"
        attempts = list(
            self._stream([(key, request)], lambda attempt: None, Ledger(), Starts(None))
        )
        last = attempts[-1]
        if last.evidence is not None:
            return last.evidence
        assert last.fault is not None
        raise MeasureError(
            f"{last.job}: {last.fault.reason}: {last.fault.detail}\n{last.fault.log}"
        )

    def _stream(
        self,
        requests: Iterable[tuple[str, Request]],
        record: Callable[[Attempt], None],
        ledger: Ledger,
        starts: Starts,
    ) -> Generator[Attempt, None, None]:
        settings = Settings(device=self.device, fleet=self.config, shown=self.shown)
        window = Window(self._opened().client, settings, ledger, starts)
        stream = window.attempts(requests, record)
        self._streams.add(stream)
        return stream

    def _opened(self) -> Cluster:
        if self._cluster is None:
            raise ValueError("the fleet is not open: use it in a with statement")
        return self._cluster

    def close(self) -> None:
        """Stop all runs, and the workers if they are the fleet's own."""
        cluster, self._cluster = self._cluster, None
        if cluster is None:
            return
        with contextlib.ExitStack() as stack:
            stack.callback(cluster.close)
            for stream in list(self._streams):
                stack.callback(stream.close)
