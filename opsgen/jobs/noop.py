"""The job that measures nothing: it does what a task could do to its process.

Fleets are tried out with it, on any machine and without torch. A behaviour may
carry an argument behind a colon, such as `sleep:0.5`.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import signal
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from opsgen.child.context import JobContext
from opsgen.errors import MeasureError, TaskError
from opsgen.jobs.escaping import attempt
from opsgen.jobs.meddling import CHANGES, read_state
from opsgen.records import NoopEvidence, NoopRequest

Behaviour = Callable[[JobContext, str], dict[str, float] | None]

_FOREVER_S = 3600
_MAX_DESCRIPTOR = 1024
_MANY_LEVELS = 1100
_SLEEPER = f"import time; time.sleep({_FOREVER_S})"
_NOISE_LINE = b"noise " * 170 + b"\n"


class _Odd(BaseException):
    """No `Exception`, as an interrupt is none."""


def run(request: NoopRequest, context: JobContext) -> NoopEvidence:
    """Do what `request.behaviour` names, and answer if that leaves anyone to answer."""
    name, _, argument = request.behaviour.partition(":")
    if name not in BEHAVIOURS:
        raise MeasureError(f"no behaviour {name!r}; there are {', '.join(BEHAVIOURS)}")
    metrics = BEHAVIOURS[name](context, argument) or {}
    if name == "no_evidence":
        return metrics  # type: ignore[return-value]
    return NoopEvidence(key=request.key, pid=os.getpid(), metrics=metrics)


def _return(context: JobContext, argument: str) -> None:
    return


def _sleep(context: JobContext, seconds: str) -> None:
    time.sleep(float(seconds))


def _stages(context: JobContext, names: str) -> None:
    for name in names.split(","):
        context.stage(name)
        time.sleep(0.3)


def _lease(context: JobContext, seconds: str) -> dict[str, float]:
    before = _cores()
    with context.lease.hold():
        begin_s = time.monotonic()
        held = _cores()
        time.sleep(float(seconds or 0.0))
        end_s = time.monotonic()
    cores = {"cores_before": before, "cores_held": held, "cores_after": _cores()}
    return {"begin_s": begin_s, "end_s": end_s, "wait_s": context.lease.wait_s, **cores}


def _cores() -> float:
    """Return the cores that this thread may run on, as the bits of a whole number."""
    return float(sum(1 << core for core in os.sched_getaffinity(0)))


def _check(context: JobContext, how: str) -> dict[str, float]:
    """Hold the device with a verifier that notes how it was called, and then does `how`."""
    calls: list[bool] = []

    def verify(is_suspect: bool) -> None:
        calls.append(is_suspect)
        if how:
            BEHAVIOURS[how](context, "0.2")

    context.lease.verifier = verify
    with context.lease.hold():
        pass
    return {"num_checks": len(calls), "is_suspect": float(any(calls))}


def _threads(context: JobContext, argument: str) -> dict[str, float]:
    return {
        name: float(os.environ[name])
        for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "TORCHINDUCTOR_COMPILE_THREADS")
    }


def _nan(context: JobContext, argument: str) -> dict[str, float]:
    return {"nan": math.nan, "inf": math.inf, "minus_inf": -math.inf}


def _big(context: JobContext, mebibytes: str) -> dict[str, float]:
    return {f"{number}{'x' * 2**20}": 0.5 for number in range(int(mebibytes or 1))}


def _unsendable(context: JobContext, argument: str) -> dict[str, float]:
    return {"object": object()}  # type: ignore[dict-item]


def _stdout(context: JobContext, mebibytes: str) -> None:
    _print_noise(1, mebibytes)


def _stderr(context: JobContext, mebibytes: str) -> None:
    _print_noise(2, mebibytes)


def _print_noise(descriptor: int, mebibytes: str) -> None:
    for _ in range(int(float(mebibytes or 1) * 2**10)):
        os.write(descriptor, _NOISE_LINE)


def _close_streams(context: JobContext, argument: str) -> None:
    for descriptor in (0, 1, 2):
        os.close(descriptor)


def _close_all(context: JobContext, argument: str) -> None:
    os.closerange(0, _MAX_DESCRIPTOR)


def _channel_noise(context: JobContext, argument: str) -> None:
    """Write into whatever looks like a channel."""
    for descriptor in range(3, _MAX_DESCRIPTOR):
        with contextlib.suppress(OSError):
            if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                os.write(descriptor, bytes(range(int(argument or 64))))


def _raise(context: JobContext, argument: str) -> None:
    raise RuntimeError(argument or "raised on purpose")


def _task_error(context: JobContext, argument: str) -> None:
    raise TaskError("executes", "raised on purpose")


def _measure_error(context: JobContext, argument: str) -> None:
    raise MeasureError("raised on purpose")


def _base_exception(context: JobContext, argument: str) -> None:
    raise _Odd("raised on purpose")


def _system_exit(context: JobContext, code: str) -> None:
    sys.exit(int(code or 0))


def _interrupt(context: JobContext, argument: str) -> None:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(_FOREVER_S)


def _surrogate(context: JobContext, argument: str) -> None:
    raise RuntimeError("half a character: \ud800")


def _sticky(context: JobContext, argument: str) -> None:
    raise RuntimeError("CUDA error: an illegal memory access was encountered")


def _gpu_oom(context: JobContext, argument: str) -> None:
    raise RuntimeError("CUDA out of memory. Tried to allocate 20.00 GiB")


def _spoil(context: JobContext, argument: str) -> None:
    context.spoil("spoiled on purpose")


def _chdir(context: JobContext, argument: str) -> None:
    os.chdir("/")


def _change(context: JobContext, name: str) -> None:
    CHANGES[name]()


def _attempt(context: JobContext, what: str) -> dict[str, float]:
    return {"errno": attempt(what)}


def _state(context: JobContext, argument: str) -> dict[str, float]:
    return read_state()


def _segfault(context: JobContext, argument: str) -> None:
    ctypes.string_at(0)


def _abort(context: JobContext, argument: str) -> None:
    os.abort()


def _exit(context: JobContext, code: str) -> None:
    os._exit(int(code or 0))


def _crash_once(context: JobContext, marker: str) -> None:
    if not Path(marker).exists():
        Path(marker).touch()
        os.abort()


def _hang(context: JobContext, argument: str) -> None:
    while True:
        pass


def _gil_sleep(context: JobContext, argument: str) -> None:
    # PyDLL keeps the interpreter locked during the call.
    ctypes.PyDLL(None).sleep(_FOREVER_S)


def _sigstop(context: JobContext, argument: str) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def _sigkill(context: JobContext, argument: str) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _late_exit(context: JobContext, seconds: str) -> None:
    """Answer, and die a little later."""
    threading.Timer(float(seconds or 0.2), os._exit, [7]).start()


def _orphan(context: JobContext, then: str) -> None:
    """Leave a helper behind that ignores polite signals and keeps every descriptor."""
    if os.fork() == 0:
        _linger()
    if then == "exit":
        os._exit(0)


def _escape(context: JobContext, then: str) -> None:
    """Leave a helper behind in a session of its own, whose parent is gone."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.setsid()
            _linger()
        os._exit(0)
    os.wait()
    if then == "exit":
        os._exit(0)
    if then == "hang":
        time.sleep(_FOREVER_S)


def _helpers(context: JobContext, number: str) -> None:
    """Start many helpers at once and wait for them."""
    context.stage("helpers")
    for _ in range(int(number or 300)):
        if os.fork() == 0:
            _linger()
    time.sleep(_FOREVER_S)


def _bomb(context: JobContext, generations: str) -> None:
    """Double the processes every 20 ms, each in a session of its own; give up at 2 ** 9."""
    context.stage("bomb")
    for _ in range(int(generations or 9)):
        os.fork()
        with contextlib.suppress(PermissionError):
            os.setsid()
        time.sleep(0.02)
    time.sleep(_FOREVER_S)


def _vanish(context: JobContext, argument: str) -> None:
    """Leave a helper behind that cleared its environment, in a session of its own, and die."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execve(sys.executable, [sys.executable, "-c", _SLEEPER], {})
        os._exit(0)
    os.wait()
    os._exit(0)


def _litter(context: JobContext, link_to: str) -> None:
    """Leave what is hard to remove: closed folders, a deep one, links and a pipe."""
    context.stage("litter")
    closed = Path(tempfile.mkdtemp())
    (closed / "inner").mkdir()
    (closed / "inner" / "file").touch()
    (closed / "link").symlink_to(link_to)
    os.mkfifo(closed / "pipe")
    (closed / "inner").chmod(0)
    deep = tempfile.mkdtemp()
    closed.chmod(0)
    here = Path.cwd()
    os.chdir(deep)
    for _ in range(_MANY_LEVELS):
        Path("down").mkdir()
        os.chdir("down")
    os.chdir(here)


def _linger() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        time.sleep(_FOREVER_S)


def _spike(context: JobContext, gibibytes: str) -> None:
    """Hold much for a moment, between two looks of the supervisor."""
    bytearray(int(float(gibibytes or 1) * 2**30))[::4096].count(1)


def _allocate(context: JobContext, gibibytes: str) -> None:
    context.stage("allocate")
    blocks = []
    for _ in range(int(float(gibibytes or 16) * 64)):
        blocks.append(b"\x01" * (1 << 24))
        time.sleep(0.002)
    time.sleep(_FOREVER_S)


BEHAVIOURS: dict[str, Behaviour] = {
    "return": _return,
    "sleep": _sleep,
    "stages": _stages,
    "lease": _lease,
    "check": _check,
    "threads": _threads,
    "nan": _nan,
    "big": _big,
    "unsendable": _unsendable,
    "no_evidence": _return,
    "stdout": _stdout,
    "stderr": _stderr,
    "close_streams": _close_streams,
    "close_all": _close_all,
    "channel_noise": _channel_noise,
    "raise": _raise,
    "task_error": _task_error,
    "measure_error": _measure_error,
    "base_exception": _base_exception,
    "system_exit": _system_exit,
    "interrupt": _interrupt,
    "surrogate": _surrogate,
    "cuda_sticky": _sticky,
    "gpu_oom": _gpu_oom,
    "spoil": _spoil,
    "chdir": _chdir,
    "change": _change,
    "attempt": _attempt,
    "state": _state,
    "segfault": _segfault,
    "abort": _abort,
    "exit": _exit,
    "crash_once": _crash_once,
    "hang": _hang,
    "gil_sleep": _gil_sleep,
    "sigstop": _sigstop,
    "sigkill": _sigkill,
    "late_exit": _late_exit,
    "orphan": _orphan,
    "escape": _escape,
    "vanish": _vanish,
    "litter": _litter,
    "helpers": _helpers,
    "bomb": _bomb,
    "spike": _spike,
    "allocate": _allocate,
}
"""What a request may ask for, by name."""
