"""The child's side: serve jobs one after the other until the supervisor hangs up."""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import importlib
import os
import resource
import signal
import socket
import sys
from pathlib import Path
from typing import get_args

from opsgen.child.context import JobContext
from opsgen.child.deadline import START_STAGE
from opsgen.child.faults import SPOILING_REASONS, fault_of
from opsgen.child.frames import (
    Channel,
    Failed,
    FrameError,
    Job,
    LeaseWait,
    Message,
    Ready,
    Result,
)
from opsgen.child.guard import StateGuard
from opsgen.child.lease import DeviceLease
from opsgen.errors import MeasureError
from opsgen.records import Evidence, Request

_PR_SET_PDEATHSIG = 1
_OOM_SCORE_ADJ = "900"


def main(arguments: list[str]) -> None:
    """Serve jobs; `arguments` are those of `opsgen.child.process.start`."""
    descriptor, parent, device, device_id, lease_dir = arguments
    end = _take_socket(int(descriptor))
    _tie_to(int(parent))
    channel = Channel(end)
    lease = DeviceLease(
        device_id,
        Path(lease_dir),
        lambda is_waiting: channel.send(LeaseWait(is_waiting=is_waiting)),
    )
    channel.send(Ready(pid=os.getpid()))
    while (message := channel.receive()) is not None:
        if isinstance(message, Job):
            context = JobContext(device, lease, channel.send)
            answer = _serve(message.request, context)
            try:
                channel.send(answer)
            except (FrameError, TypeError, OverflowError) as error:
                unsent = MeasureError(f"the answer cannot be sent: {error}")
                channel.send(Failed(fault=fault_of(unsent, context.current_stage)))
    # Nothing is worth an orderly exit, and compile pools have hung in theirs.
    os._exit(0)


def _serve(request: Request, context: JobContext) -> Message:
    guard = StateGuard()
    try:
        evidence = _run(request, context)
    except BaseException as error:  # noqa: BLE001 - whatever escapes a job is its fault, as data
        fault = fault_of(error, context.current_stage)
    else:
        return Result(evidence=evidence, spoiled=context.spoiled or guard.difference())
    gc.collect()  # A traceback has kept the task's tensors alive until here.
    spoiled = fault.detail if fault.reason in SPOILING_REASONS else None
    return Failed(fault=fault, spoiled=context.spoiled or spoiled or guard.difference())


def _run(request: Request, context: JobContext) -> Evidence:
    tag = str(request.__struct_config__.tag)
    context.stage(START_STAGE)
    try:
        job = importlib.import_module(f"opsgen.jobs.{tag}")
    except ImportError as error:
        raise MeasureError(f"the job {tag!r} cannot be loaded here: {error}") from error
    context.stage(tag)
    evidence = job.run(request, context)
    if not isinstance(evidence, get_args(Evidence)):
        raise MeasureError(f"the job {tag!r} answered {type(evidence).__name__}, no evidence")
    answer: Evidence = evidence
    return answer


def _take_socket(descriptor: int) -> socket.socket:
    """Take the channel for this process alone and send everything printed to the log."""
    end = socket.socket(fileno=descriptor)
    end.set_inheritable(False)
    os.dup2(2, 1)
    faulthandler.enable(all_threads=False)
    return end


def _tie_to(parent: int) -> None:
    """Die with the supervisor, be the first to go when memory runs out, dump no core."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        Path("/proc/self/oom_score_adj").write_text(_OOM_SCORE_ADJ)
    if os.getppid() != parent:
        os._exit(0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
