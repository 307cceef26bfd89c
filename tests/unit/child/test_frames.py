"""Frames survive any splitting of the byte stream, and refuse everything else."""

from __future__ import annotations

import socket
import struct
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsgen.child import frames
from opsgen.child.frames import (
    Channel,
    Failed,
    FrameError,
    FrameReader,
    Job,
    LeaseHold,
    LeaseWait,
    Message,
    Ready,
    Result,
    Stage,
    encode_frame,
)
from opsgen.records import Fault, MeasureRequest, NoopEvidence, NoopRequest
from opsgen.testing import faults, measure_evidence, probe_evidence, tasks


def _messages() -> st.SearchStrategy[Message]:
    return st.one_of(
        st.builds(Ready, pid=st.integers(1, 2**22)),
        st.builds(Stage, name=st.text(max_size=12)),
        st.builds(LeaseWait, is_waiting=st.booleans()),
        st.builds(LeaseHold, is_held=st.booleans()),
        st.builds(Result, evidence=st.one_of(probe_evidence(), measure_evidence())),
        st.builds(Failed, fault=faults(), spoiled=st.none() | st.text(max_size=12)),
        st.builds(Job, request=st.builds(NoopRequest, key=st.text(), behaviour=st.text())),
        tasks().map(
            lambda task: Job(
                request=MeasureRequest(
                    task=task, device="cpu", modes=("eager",), max_s_per_mode=0.1, seed=1
                )
            )
        ),
    )


@given(messages=st.lists(_messages(), max_size=4), data=st.data())
def test_any_splitting_of_the_stream_gives_the_same_messages(
    messages: list[Message], data: st.DataObject
) -> None:
    stream = b"".join(map(encode_frame, messages))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    reader = FrameReader()
    received: list[Message] = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        received += reader.feed(stream[start:end])
    # Compared by what they show: a NaN equals nothing, itself included.
    assert repr(received) == repr(messages)
    assert not reader.is_torn


@given(message=_messages(), data=st.data())
def test_a_torn_frame_gives_no_message(message: Message, data: st.DataObject) -> None:
    frame = encode_frame(message)
    reader = FrameReader()
    assert reader.feed(frame[: data.draw(st.integers(1, len(frame) - 1))]) == []
    assert reader.is_torn


@given(
    before=st.lists(_messages(), max_size=3),
    noise=st.binary(min_size=4).filter(lambda noise: not noise.startswith(frames.MAGIC)),
    after=st.lists(_messages(), max_size=2),
    data=st.data(),
)
def test_noise_between_frames_is_refused_at_once_and_hides_none_before_it(
    before: list[Message], noise: bytes, after: list[Message], data: st.DataObject
) -> None:
    stream = b"".join(map(encode_frame, before)) + noise + b"".join(map(encode_frame, after))
    cut = data.draw(st.integers(0, len(stream)))
    reader = FrameReader()
    received: list[Message] = []
    with pytest.raises(FrameError) as error:  # noqa: PT012 - in whichever portion the noise begins
        received += reader.feed(stream[:cut])
        received += reader.feed(stream[cut:])
    assert repr([*received, *error.value.messages]) == repr(before)


@given(noise=st.binary(max_size=64))
def test_noise_in_place_of_a_message_is_refused(noise: bytes) -> None:
    frame = frames.MAGIC + struct.pack(">I", len(noise)) + noise
    with pytest.raises(FrameError, match="no message"):
        FrameReader().feed(frame)


def test_an_oversized_frame_is_refused_by_its_header_alone() -> None:
    with pytest.raises(FrameError, match="announces"):
        FrameReader().feed(frames.MAGIC + struct.pack(">I", frames.MAX_FRAME_BYTES + 1))


def test_an_oversized_message_is_never_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "MAX_FRAME_BYTES", 64)
    with pytest.raises(FrameError, match="exceeds"):
        encode_frame(Stage(name="x" * 100))


def test_text_that_is_no_unicode_is_replaced() -> None:
    fault = Fault(reason="raised", stage="eager", detail="half \ud800")
    (message,) = FrameReader().feed(encode_frame(Failed(fault=fault)))
    assert isinstance(message, Failed)
    assert message.fault.detail == "half ?"


def test_threads_share_a_channel_without_mixing_their_frames() -> None:
    ours, theirs = socket.socketpair()
    channel, other = Channel(ours), Channel(theirs)
    names = [str(number) * 5000 for number in range(4)]

    def send_often(name: str) -> None:
        for _ in range(5):
            channel.send(Stage(name=name))

    threads = [threading.Thread(target=send_often, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    received = [other.receive() for _ in range(5 * len(threads))]
    for thread in threads:
        thread.join()
    ours.close()
    assert sorted(stage.name for stage in received if isinstance(stage, Stage)) == sorted(names * 5)
    assert other.receive() is None
    theirs.close()


def test_an_answer_with_nan_comes_back_equal() -> None:
    evidence = NoopEvidence(key="k", pid=1, metrics={"nan": float("nan"), "inf": float("inf")})
    (message,) = FrameReader().feed(encode_frame(Result(evidence=evidence)))
    assert isinstance(message, Result)
    assert repr(message.evidence) == repr(evidence)
