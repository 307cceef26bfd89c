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
    shown: tuple[str, ...] = ()
    """Files that sandboxed children may read wherever they lie."""


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
    alone: bool = False
    """The device's other children stay idle meanwhile: its memory did not suffice before."""

    @property
    def job(self) -> str:
        """Name of the job."""
        return str(self.request.__struct_config__.tag)

    @property
    def place(self) -> tuple[str, str]:
        """Job and key."""
        return self.job, self.key

    @property
    def is_fresh(self) -> bool:
        """An earlier attempt failed, so only a new process can tell the task's fault from others."""
        return self.number > 0


class Reply(Record, frozen=True, kw_only=True):
    """What a worker answers."""

    worker: str
    """Its address."""
    attempt: Attempt | None = None
    """What the attempt brought; absent when none was made."""
    sickness: str | None = None
    """Why the worker takes no orders at present; absent when an attempt was made."""


_ENCODER = msgspec.msgpack.Encoder()
_ORDERS = msgspec.msgpack.Decoder(Order)
_REPLIES = msgspec.msgpack.Decoder(Reply)


def encode(record: Order | Reply) -> bytes:
    """Return a record as bytes."""
    return _ENCODER.encode(record)


def decode_order(payload: bytes) -> Order:
    """Read an order."""
    return _ORDERS.decode(payload)


def decode_reply(payload: bytes) -> Reply:
    """Read a reply."""
    return _REPLIES.decode(payload)
