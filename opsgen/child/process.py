"""One child process seen from outside: start, talk, watch its memory, kill.

The process leads its own session and group, so that a kill reaches its helpers.
Everything it prints is kept in memory up to `MAX_LOG_BYTES`; a task that prints
without end can fill neither a disk nor a terminal.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

import opsgen
from opsgen.child.frames import FrameReader, Message, encode_frame
from opsgen.child.lease import default_directory
from opsgen.recipe import FleetConfig
from opsgen.records import Record

MAX_LOG_BYTES = 32 << 10
NUM_LOG_LINES = 40
MAX_WAIT_FOR_DEATH_S = 10.0

_CHUNK_BYTES = 1 << 20
_ALLOCATOR_KEYS = ("MALLOC_TRIM_THRESHOLD_",)
_THREAD_KEYS = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)


class ChildConfig(Record, frozen=True, kw_only=True):
    """How children of one slot are started and supervised."""

    device: str = "cpu"
    """`cpu` or `cuda`."""
    device_id: str = "cpu"
    """The one GPU that the child sees, by UUID, or `cpu`; names the lease."""
    num_threads: int = 1
    """Threads of torch and of the numeric libraries."""
    fleet: FleetConfig = FleetConfig()
    """Deadlines, memory limit and recycling."""
    lease_dir: str | None = None
    """Folder of lease files; absent for this user's default."""
    work_dir: str | None = None
    """Where work folders are made; absent for the host's temporary folder."""


class Unkillable(Exception):  # noqa: N818 - the machine's state, not an error of ours
    """A process outlived SIGKILL: a driver holds it, and with it the device."""


class Process:
    """A started child. All methods belong to the thread that started it.

    That thread must live as long as the child: Linux delivers the
    parent-death signal when the starting thread ends.
    """

    def __init__(self, config: ChildConfig) -> None:
        self.started_s = time.monotonic()
        self._reader = FrameReader()
        self._outgoing = bytearray()
        self._log = bytearray()
        self._is_hung_up = False
        with contextlib.ExitStack() as stack:
            folder = tempfile.mkdtemp(prefix="opsgen-child-", dir=config.work_dir)
            self.folder = Path(folder)
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            self._end, theirs = socket.socketpair()
            stack.callback(self._end.close)
            self._log_end, log_theirs = os.pipe()
            stack.callback(os.close, self._log_end)
            try:
                self._popen = _spawn(config, self.folder, theirs.fileno(), log_theirs)
            finally:
                theirs.close()
                os.close(log_theirs)
            self._selector = stack.enter_context(selectors.DefaultSelector())
            self._stack = stack.pop_all()
        self.pid = self._popen.pid
        self._end.setblocking(False)
        os.set_blocking(self._log_end, False)
        self._selector.register(self._end, selectors.EVENT_READ)
        self._selector.register(self._log_end, selectors.EVENT_READ)

    @property
    def is_hung_up(self) -> bool:
        """The child closed the channel, mostly by dying."""
        return self._is_hung_up

    def send(self, message: Message) -> None:
        """Queue a message; `receive` does the sending, so a stuck child cannot block us."""
        if self._is_hung_up:
            return
        self._outgoing += encode_frame(message)
        self._selector.modify(self._end, selectors.EVENT_READ | selectors.EVENT_WRITE)

    def receive(self, timeout_s: float) -> list[Message]:
        """Return what arrives within `timeout_s`, which may be nothing.

        Raises:
            FrameError: The child broke the protocol: kill it.
        """
        messages: list[Message] = []
        for key, events in self._selector.select(max(0.0, timeout_s)):
            if key.fileobj is not self._end:
                self._read_log()
                continue
            if events & selectors.EVENT_WRITE:
                self._write()
            if events & selectors.EVENT_READ:
                messages += self._read()
        return messages

    def has_exited(self) -> bool:
        """Tell whether the process is dead; it stays a zombie, so its id is not reused."""
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return (
            self._popen.returncode is not None or os.waitid(os.P_PID, self.pid, flags) is not None
        )

    def rss_bytes(self) -> int:
        """Return the resident memory of the child and its helpers."""
        total = 0
        for pid in _members(self.pid):
            try:
                total += psutil.Process(pid).memory_info().rss
            except psutil.Error:
                continue
        return total

    def clear_log(self) -> None:
        """Forget what was printed so far: it belongs to an earlier job."""
        self._read_log()
        self._log.clear()

    def log_tail(self) -> str:
        """Return the last lines printed by the child or its helpers."""
        self._read_log()
        lines = self._log.decode("utf-8", "replace").replace("\x00", "").splitlines()
        return "\n".join(lines[-NUM_LOG_LINES:])

    def kill(self) -> int:
        """End the child with all its helpers and return its exit code.

        Raises:
            Unkillable: It is still there after `MAX_WAIT_FOR_DEATH_S`.
        """
        # The leader is not reaped before the others are signalled: until then
        # neither its id nor the group's can belong to anyone else.
        if self._popen.returncode is None:
            os.killpg(self.pid, signal.SIGKILL)
            for pid in _members(self.pid):
                _send_kill(pid)
            try:
                self._popen.wait(MAX_WAIT_FOR_DEATH_S)
            except subprocess.TimeoutExpired as error:
                raise Unkillable(f"process {self.pid} outlived SIGKILL") from error
        return self._popen.returncode

    def close(self) -> None:
        """Kill the child, free everything and remove its work folder."""
        with self._stack:
            self.kill()

    def _read(self) -> list[Message]:
        try:
            data = self._end.recv(_CHUNK_BYTES)
        except BlockingIOError:
            return []
        except ConnectionResetError:
            data = b""
        if data:
            return self._reader.feed(data)
        self._is_hung_up = True
        self._selector.unregister(self._end)
        return []

    def _write(self) -> None:
        try:
            del self._outgoing[: self._end.send(self._outgoing)]
        except BlockingIOError:
            return
        except (BrokenPipeError, ConnectionResetError):
            self._outgoing.clear()
        if not self._outgoing:
            self._selector.modify(self._end, selectors.EVENT_READ)

    def _read_log(self) -> None:
        try:
            data = os.read(self._log_end, _CHUNK_BYTES)
        except BlockingIOError:
            return
        if not data and self._log_end in self._selector.get_map():
            self._selector.unregister(self._log_end)
        self._log += data
        del self._log[:-MAX_LOG_BYTES]


def _spawn(config: ChildConfig, folder: Path, channel: int, log: int) -> subprocess.Popen[bytes]:
    lease_dir = config.lease_dir or str(default_directory())
    arguments = [str(channel), str(os.getpid()), config.device, config.device_id, lease_dir]
    return subprocess.Popen(
        # -P: the working folder, which tasks write to, must not shadow modules.
        [sys.executable, "-P", "-m", "opsgen.child", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        cwd=folder,
        env=child_environment(config, folder),
        pass_fds=(channel,),
        start_new_session=True,
    )


def child_environment(config: ChildConfig, folder: Path) -> dict[str, str]:
    """Return the environment of a child: one device, own caches, threads made explicit."""
    environment = {key: value for key, value in os.environ.items() if key not in _ALLOCATOR_KEYS}
    for name in ("inductor", "triton", "tmp"):
        (folder / name).mkdir(exist_ok=True)
    package_root = str(Path(opsgen.__file__).parents[1])
    search_path = [package_root, *filter(None, [os.environ.get("PYTHONPATH")])]
    environment |= {
        "CUDA_VISIBLE_DEVICES": config.device_id if config.device == "cuda" else "",
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        "TRITON_CACHE_DIR": str(folder / "triton"),
        "TMPDIR": str(folder / "tmp"),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(search_path),
        "PYTHONUNBUFFERED": "1",
    }
    return environment | dict.fromkeys(_THREAD_KEYS, str(config.num_threads))


def _members(leader: int) -> Iterator[int]:
    """Yield the processes in the group or the session that `leader` leads."""
    for pid in psutil.pids():
        try:
            if leader in (os.getpgid(pid), os.getsid(pid)):
                yield pid
        except (ProcessLookupError, PermissionError):
            continue


def _send_kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
