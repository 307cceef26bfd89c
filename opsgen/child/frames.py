"""Messages between a supervisor and its child, as length-prefixed msgpack frames.

They cross on a private socket, so nothing that a task or a library prints can
break the protocol. Bytes may arrive in any portions. Whatever does not begin
like a frame, is oversized or no message raises `FrameError` at its first bytes,
after which the channel is useless.
"""

from __future__ import annotations

import select
import socket
import struct
import threading
from collections.abc import Sequence
from typing import Any

import msgspec

from opsgen.records import Evidence, Fault, Record, Request

MAX_FRAME_BYTES = 64 << 20
"""Larger frames are refused by both sides: an answer is a few kilobytes."""

# Stray bytes would otherwise pass for the length of a frame that never ends, and
# swallow the answer: seen as a timeout, minutes later.
MAGIC = b"\xf5ops"
_HEADER = struct.Struct(">4sI")


class FrameError(Exception):
    """The other side broke the protocol, or a message is too large for it.

    Attributes:
        messages: What came in good order just before.
    """

    def __init__(self, detail: str, messages: Sequence[Message] = ()) -> None:
        super().__init__(detail)
        self.messages = tuple(messages)


class Ready(Record, frozen=True, kw_only=True, tag="ready"):
    """The child is up and waits for a job."""

    pid: int
    """Process id, as the child sees it."""


class Job(Record, frozen=True, kw_only=True, tag="job"):
    """Do this; sent by the supervisor, one at a time."""

    request: Request
    """What to do; its tag names the job's module."""


class Stage(Record, frozen=True, kw_only=True, tag="stage"):
    """A stage begins: its deadline starts to count."""

    name: str
    """Key of the recipe's deadlines."""


class LeaseWait(Record, frozen=True, kw_only=True, tag="lease_wait"):
    """Waiting for the device begins or ends; the time between is never charged."""

    is_waiting: bool
    """Whether the wait begins."""


class LeaseHold(Record, frozen=True, kw_only=True, tag="lease_hold"):
    """The device was taken or left: a child that is killed cannot say how long it had it."""

    is_held: bool
    """Whether it was taken."""


class Result(Record, frozen=True, kw_only=True, tag="result"):
    """The job's answer."""

    evidence: Evidence
    """What was observed."""
    spoiled: str | None = None
    """Why this process must serve no further job; absent when it may."""


class Failed(Record, frozen=True, kw_only=True, tag="failed"):
    """The job ended without an answer."""

    fault: Fault
    """What went wrong, as the child saw it."""
    spoiled: str | None = None
    """Why this process must serve no further job; absent when it may."""


Message = Ready | Job | Stage | LeaseWait | LeaseHold | Result | Failed

_ENCODER = msgspec.msgpack.Encoder()
_DECODER: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)


def encode_frame(message: Message) -> bytes:
    """Return `message` as a frame.

    Text that is no valid Unicode (lone surrogates, from a task's messages) is
    replaced rather than refused.

    Raises:
        FrameError: The message is larger than a frame may be.
    """
    try:
        body = _ENCODER.encode(message)
    except UnicodeEncodeError:
        body = _ENCODER.encode(_valid_text(msgspec.to_builtins(message)))
    if len(body) > MAX_FRAME_BYTES:
        raise FrameError(f"a message of {len(body):,} bytes exceeds {MAX_FRAME_BYTES:,}")
    return _HEADER.pack(MAGIC, len(body)) + body


class FrameReader:
    """Puts messages together from portions of a byte stream."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    @property
    def is_torn(self) -> bool:
        """Bytes of an unfinished frame are left over."""
        return bool(self._buffer)

    def feed(self, data: bytes) -> list[Message]:
        """Take more bytes and return the messages that they complete.

        Raises:
            FrameError: The stream holds something else than messages.
        """
        self._buffer += data
        messages: list[Message] = []
        try:
            while (message := self._take()) is not None:
                messages.append(message)
        except FrameError as error:
            raise FrameError(str(error), messages) from error
        return messages

    def _take(self) -> Message | None:
        """Return the next message, or None if it is not complete."""
        if not MAGIC.startswith(bytes(self._buffer[: len(MAGIC)])):
            raise FrameError(f"{bytes(self._buffer[:16])!r} begins no frame")
        if len(self._buffer) < _HEADER.size:
            return None
        _, size = _HEADER.unpack_from(self._buffer)
        if size > MAX_FRAME_BYTES:
            raise FrameError(f"a frame announces {size:,} bytes")
        end = _HEADER.size + size
        if len(self._buffer) < end:
            return None
        body = bytes(self._buffer[_HEADER.size : end])
        del self._buffer[:end]
        return _decode(body)


class Channel:
    """The child's end: blocking, and safe to send on from several threads."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._reader = FrameReader()
        self._pending: list[Message] = []
        self._lock = threading.Lock()

    def send(self, message: Message) -> None:
        """Send one message.

        Raises:
            FrameError: The message is too large; nothing was sent.
            OSError: The supervisor is gone.
        """
        frame = encode_frame(message)
        with self._lock:
            self._end.sendall(frame)

    def has_more(self) -> bool:
        """Tell whether `receive` would return at once."""
        return bool(self._pending or select.select([self._end], [], [], 0.0)[0])

    def receive(self) -> Message | None:
        """Wait for the next message; None when the supervisor hung up."""
        while not self._pending:
            data = self._end.recv(1 << 16)
            if not data:
                return None
            self._pending = self._reader.feed(data)
        return self._pending.pop(0)


def _decode(body: bytes) -> Message:
    try:
        return _DECODER.decode(body)
    except (msgspec.DecodeError, ValueError) as error:
        raise FrameError(f"a frame holds no message: {error}") from error


def _valid_text(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_valid_text(key): _valid_text(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_valid_text(item) for item in value]
    return value
