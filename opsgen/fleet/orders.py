"""What travels between driver and workers, as msgpack: Dask sees bytes only."""

from __future__ import annotations

import msgspec

from opsgen.recipe import FleetConfig
from opsgen.records import Attempt, Record, Request


class Settings(Record, frozen=True, kw_only=True):
    """How workers start their children."""

    device: str
    """`cpu` or `cuda`."""
    fleet: FleetConfig
    """Deadlines, memory limit and recycling."""
    work_dir: str | None = None
    """Where work folders are made; absent for each host's temporary folder."""


class Order(Record, frozen=True, kw_only=True):
    """One attempt to be made."""

    run_id: str
    """The run that ordered it; workers drop the orders of a stopped run."""
    key: str
    """Whom the job is about."""
    number: int
    """Attempts made before."""
    request: Request
    """What to do."""
    settings: Settings
    """How children are started."""

    @property
    def job(self) -> str:
        """Name of the job."""
        return str(self.request.__struct_config__.tag)

    @property
    def is_fresh(self) -> bool:
        """An earlier attempt failed, so only a new process can tell the task's fault from others."""
        return self.number > 0


_ENCODER = msgspec.msgpack.Encoder()
_ORDERS = msgspec.msgpack.Decoder(Order)
_ATTEMPTS = msgspec.msgpack.Decoder(Attempt)


def encode(record: Order | Attempt) -> bytes:
    """Return a record as bytes."""
    return _ENCODER.encode(record)


def decode_order(payload: bytes) -> Order:
    """Read an order."""
    return _ORDERS.decode(payload)


def decode_attempt(payload: bytes) -> Attempt:
    """Read an attempt."""
    return _ATTEMPTS.decode(payload)
