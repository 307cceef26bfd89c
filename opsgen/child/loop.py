"""The child's side: serve jobs one after the other until the supervisor hangs up."""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import importlib
import os
import resource
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from opsgen.child import interpreter, leftovers, nvml
from opsgen.child.context import JobContext
from opsgen.child.cores import CoreShare, Placement
from opsgen.child.deadline import START_STAGE
from opsgen.child.faults import SPOILING_REASONS, context_works, fault_of
from opsgen.child.frames import (
    Channel,
    Failed,
    FrameError,
    Job,
    LeaseHold,
    LeaseWait,
    Message,
    Ready,
    Result,
)
from opsgen.child.guard import Check, Keeper, StateGuard
from opsgen.child.layers import check_required
from opsgen.child.lease import DeviceLease
from opsgen.child.sandbox import enter_sandbox
from opsgen.child.syscalls import PR_SET_CHILD_SUBREAPER, PR_SET_PDEATHSIG, prctl
from opsgen.errors import MeasureError
from opsgen.records import Evidence, Request

_OOM_SCORE_ADJ = "900"
_WATCHED_LIBRARY = "torch"
_STATE_MODULE = "opsgen.jobs.state"


def main(arguments: list[str]) -> None:
    """Serve jobs; `arguments` are those of `opsgen.child.process.Process`."""
    descriptor, parent, device, device_id, timing, rest, lease_dir, work, *preload = arguments
    placement = Placement(CoreShare(_numbers(timing), _numbers(rest)))
    placement.settle()
    end = _take_socket(int(descriptor))
    _tie_to(int(parent))
    channel = Channel(end)

    def on_wait(is_waiting: bool) -> None:
        channel.send(LeaseWait(is_waiting=is_waiting))
        if is_waiting:
            # One that sleeps is in nobody's way, and wakes up where no compile is.
            placement.set_holding(True)

    def on_hold(is_held: bool) -> None:
        placement.set_holding(is_held)
        channel.send(LeaseHold(is_held=is_held))

    lease = DeviceLease(device_id, Path(lease_dir), on_wait, on_hold)
    lease.prepare()
    refusal = _shut_in(Path(work), device, int(parent)) if work else None
    if refusal is None:
        if device == "cuda":
            nvml.read_state(device_id)  # To start NVML is slow: not in a hold.
        _preload(preload, device, channel)
    channel.send(Ready(pid=os.getpid()))
    server = _Server(refusal)
    while (message := channel.receive()) is not None:
        if isinstance(message, Job):
            context = JobContext(device, lease, channel.send)
            answer = server.serve(message.request, context)
            try:
                channel.send(answer)
            except (FrameError, TypeError, OverflowError) as error:
                unsent = MeasureError(f"the answer cannot be sent: {error}")
                channel.send(Failed(fault=fault_of(unsent, context.current_stage)))
    # Nothing is worth an orderly exit, and compile pools have hung in theirs.
    os._exit(0)


class _Server:
    """Does jobs, and leaves the process after each as it was before it.

    Args:
        refusal: Why no job may be done here.
    """

    def __init__(self, refusal: MeasureError | None) -> None:
        self._refusal = refusal
        self._keepers = (*interpreter.keepers(), *leftovers.keepers())

    def serve(self, request: Request, context: JobContext) -> Message:
        """Return the answer to one request."""
        if self._refusal is not None:
            return Failed(fault=fault_of(self._refusal, START_STAGE))
        guard = StateGuard(())
        try:
            job = _load(request, context)
            # Only now: what a job's own imports change is no change.
            guard = StateGuard((*self._keepers, *_library_keepers()))
            evidence = _run(job, request, context)
        except BaseException as error:  # noqa: BLE001 - whatever escapes a job is its fault, as data
            fault = fault_of(error, context.current_stage)
        else:
            changed = guard.restore()
            return Result(evidence=evidence, spoiled=context.spoiled or changed)
        gc.collect()  # A traceback has kept the task's tensors alive until here.
        changed = guard.restore()
        # A fault of the machine may have broken the context, too.
        is_spoiled = fault.reason in SPOILING_REASONS or context_works() is False
        spoiled = fault.detail if is_spoiled else context.spoiled
        return Failed(fault=fault, spoiled=spoiled or changed)


def _load(request: Request, context: JobContext) -> Any:
    tag = str(request.__struct_config__.tag)
    context.stage(START_STAGE)
    try:
        job = importlib.import_module(f"opsgen.jobs.{tag}")
    except ImportError as error:
        raise MeasureError(f"the job {tag!r} cannot be loaded here: {error}") from error
    context.stage(tag)
    return job


def _run(job: Any, request: Request, context: JobContext) -> Evidence:
    try:
        evidence = job.run(request, context)
    finally:
        context.lease.verifier = None  # It may keep what it needs on the device.
    if not isinstance(evidence, get_args(Evidence)):
        raise MeasureError(f"{job.__name__} answered {type(evidence).__name__}, no evidence")
    answer: Evidence = evidence
    return answer


def _preload(tags: list[str], device: str, channel: Channel) -> None:
    """Load jobs before they are asked for; a job that has come already waits for no more."""
    for tag in tags:
        # What is wrong with a job it says when it is asked for.
        with contextlib.suppress(ImportError):
            importlib.import_module(f"opsgen.jobs.{tag}")
    if _WATCHED_LIBRARY in sys.modules and not channel.has_more():
        importlib.import_module(_STATE_MODULE).warm(device)


def _library_keepers() -> tuple[Keeper, ...]:
    """Return keepers of the library that jobs load and this room does not know."""
    if _WATCHED_LIBRARY not in sys.modules:
        return (_keep_unloaded,)
    keepers: tuple[Keeper, ...] = importlib.import_module(_STATE_MODULE).KEEPERS
    return keepers


def _keep_unloaded() -> Check:
    def check() -> Iterator[str]:
        if _WATCHED_LIBRARY in sys.modules:
            yield f"loaded {_WATCHED_LIBRARY} behind the job's back"

    return check


def _shut_in(work: Path, device: str, parent: int) -> MeasureError | None:
    """Enter the sandbox; return why no task's code may run here, None if it may."""
    try:
        check_required(enter_sandbox(work, device))
    except MeasureError as error:
        return error
    finally:
        if os.getppid() != parent:  # It may have died while the tie to it was cut.
            os._exit(0)
    return None


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, filter(None, text.split(","))))


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
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        # Helpers that lose their parent come to us, where the supervisor finds them.
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        Path("/proc/self/oom_score_adj").write_text(_OOM_SCORE_ADJ)
    if os.getppid() != parent:
        os._exit(0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
