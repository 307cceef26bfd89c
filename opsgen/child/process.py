"""One child process seen from outside: start, talk, watch its memory, kill.

The process leads its own session and group, so that a kill reaches its helpers.
Everything it prints is kept in memory up to `MAX_LOG_BYTES`; a task that prints
without end can fill neither a disk nor a terminal.
"""

from __future__ import annotations

import contextlib
import functools
import os
import resource
import selectors
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil

import opsgen
from opsgen.child.folders import owned_folder, sweep_folders
from opsgen.child.frames import FrameError, FrameReader, Message, Ready, encode_frame
from opsgen.child.kin import MARK, ProcessTable, end_all, kin_of
from opsgen.child.layers import clean_environment
from opsgen.child.lease import default_directory
from opsgen.child.sandbox import lone_user
from opsgen.child.view import SHOW_VARIABLE
from opsgen.recipe import FleetConfig
from opsgen.records import Record

MAX_LOG_BYTES = 32 << 10
NUM_LOG_LINES = 40
MAX_WAIT_FOR_DEATH_S = 10.0
FOLDER_PREFIX = "opsgen-child-"

_TABLE_AGE_S = 0.2
_TABLE = ProcessTable(_TABLE_AGE_S)
_CHUNK_BYTES = 1 << 20
_MAXRSS_BYTES = 1 if sys.platform == "darwin" else 1024
_ALLOCATOR_KEYS = ("MALLOC_TRIM_THRESHOLD_",)
_ADDRESSES = "_TORCHINDUCTOR_"  # A compiler's notes to itself, addresses of its process among them.
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
    timing_cores: tuple[int, ...] = ()
    """Cores that the child's main thread runs on while it holds the lease; empty where none
    are set aside."""
    other_cores: tuple[int, ...] = ()
    """Cores that it runs on otherwise; empty to leave it on those that it inherits."""
    fleet: FleetConfig = FleetConfig()
    """Deadlines, memory limit and recycling."""
    lease_dir: str | None = None
    """Folder of lease files; absent for this user's default."""
    has_spare: bool = False
    """Whether a warm process stands by for all children of this config in this process."""
    shown: tuple[str, ...] = ()
    """Files that a sandboxed child may read wherever they lie; all others read by permission."""
    work_dir: str | None = None
    """Where work folders are made; absent for the host's temporary folder."""


class Unkillable(Exception):  # noqa: N818 - the machine's state, not an error of ours
    """A process outlived SIGKILL: a driver holds it, and with it the device."""


class Process:
    """A started child, used by one thread at a time.

    The thread that started it must live as long as the child: Linux delivers
    the parent-death signal when that thread ends.

    Args:
        config: How to start it.
        preload: Jobs that it loads before it says that it is ready.

    Attributes:
        peak_rss_bytes: Most memory that a look, or its death, has shown.
    """

    def __init__(self, config: ChildConfig, preload: tuple[str, ...] = ()) -> None:
        self.peak_rss_bytes = 0
        self._seen: dict[int, float] = {}
        self.started_s = time.monotonic()
        self._inherited_maxrss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        self._reader = FrameReader()
        self._outgoing = bytearray()
        self._log = bytearray()
        self._is_hung_up = False
        self._is_sandboxed = config.fleet.sandbox
        with contextlib.ExitStack() as stack:
            _sweep_once(config.work_dir)
            folder = owned_folder(FOLDER_PREFIX, config.work_dir, is_passable=self._is_sandboxed)
            self.folder = stack.enter_context(folder)
            self._end, theirs = socket.socketpair()
            stack.callback(self._end.close)
            self._log_end, log_theirs = os.pipe()
            stack.callback(os.close, self._log_end)
            try:
                self._popen = _spawn(config, self.folder, (theirs.fileno(), log_theirs), preload)
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

    @property
    def is_gone(self) -> bool:
        """It is dead and was reaped."""
        return self._popen.returncode is not None

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

    def is_quiet(self) -> bool:
        """Tell whether a child between jobs is there and has said no more than that it is ready."""
        try:
            messages = self.receive(0.0)
        except FrameError:
            return False
        return not self._is_hung_up and all(isinstance(message, Ready) for message in messages)

    def has_exited(self) -> bool:
        """Tell whether the process is dead; it stays a zombie, so its id is not reused."""
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return (
            self._popen.returncode is not None or os.waitid(os.P_PID, self.pid, flags) is not None
        )

    def look(self) -> tuple[int, int]:
        """Return how many processes the child and its helpers are, and their resident memory."""
        entries = _TABLE.entries()
        kin = kin_of(self.pid, entries)
        self._seen |= {pid: entries[pid].birth for pid in kin}
        family = [entries[pid] for pid in (self.pid, *kin) if pid in entries]
        rss_bytes = sum(entry.rss_bytes for entry in family)
        self.peak_rss_bytes = max(self.peak_rss_bytes, rss_bytes)
        return len(family), rss_bytes

    def share_bytes(self) -> int:
        """Return the family's memory with what is shared counted once; dear to find out."""
        total = 0
        for pid in (self.pid, *kin_of(self.pid, _TABLE.entries())):
            with contextlib.suppress(psutil.Error):
                total += psutil.Process(pid).memory_full_info().pss
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
            user = lone_user(self.pid) if self._is_sandboxed and os.geteuid() == 0 else None
            end_all(self.pid, str(self.folder), self._seen.items(), user)
            self._reap()
        return int(self._popen.returncode)

    def _reap(self) -> None:
        give_up_s = time.monotonic() + MAX_WAIT_FOR_DEATH_S
        while not self.has_exited():
            if time.monotonic() > give_up_s:
                raise Unkillable(f"process {self.pid} outlived SIGKILL")
            time.sleep(0.001)
        # Not by Popen, which would not tell the peak.
        _, status, usage = os.wait4(self.pid, 0)
        # Linux lets a process begin with the peak of whoever forked it: up to there the
        # figure says nothing of the child.
        if usage.ru_maxrss > self._inherited_maxrss:
            self.peak_rss_bytes = max(self.peak_rss_bytes, usage.ru_maxrss * _MAXRSS_BYTES)
        self._popen.returncode = os.waitstatus_to_exitcode(status)

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


@functools.cache
def _sweep_once(work_dir: str | None) -> None:
    """Remove, once in a process, what killed supervisors left behind."""
    sweep_folders(FOLDER_PREFIX, work_dir)


def _spawn(
    config: ChildConfig, folder: Path, ends: tuple[int, int], preload: tuple[str, ...]
) -> subprocess.Popen[bytes]:
    channel, log = ends
    lease_dir = config.lease_dir or str(default_directory())
    cores = [",".join(map(str, each)) for each in (config.timing_cores, config.other_cores)]
    arguments = [str(channel), str(os.getpid()), config.device, config.device_id, *cores, lease_dir]
    # An empty one asks for no sandbox.
    arguments.append(str(_work_folder(config, folder)) if config.fleet.sandbox else "")
    arguments += preload
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
    inherited = clean_environment(os.environ) if config.fleet.sandbox else os.environ
    environment = {
        key: value
        for key, value in inherited.items()
        if key not in _ALLOCATOR_KEYS and not key.startswith(_ADDRESSES)
    }
    work = _work_folder(config, folder)
    for name in ("inductor", "triton", "tmp"):
        (work / name).mkdir(parents=True, exist_ok=True)
    package_root = str(Path(opsgen.__file__).parents[1])
    search_path = [package_root, *filter(None, [os.environ.get("PYTHONPATH")])]
    environment |= {
        "CUDA_VISIBLE_DEVICES": config.device_id if config.device == "cuda" else "",
        "TORCHINDUCTOR_CACHE_DIR": str(work / "inductor"),
        "TRITON_CACHE_DIR": str(work / "triton"),
        "TMPDIR": str(work / "tmp"),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(search_path),
        "PYTHONUNBUFFERED": "1",
        MARK: str(folder),
    }
    if config.fleet.sandbox:
        # Libraries ask who they are, and where at home; the lone user has no entry anywhere.
        shown = os.pathsep.join(str(Path(name).absolute()) for name in config.shown)
        environment |= {
            SHOW_VARIABLE: shown,
            "HOME": str(work / "tmp"),
            "USER": "nobody",
            "LOGNAME": "nobody",
        }
    return environment | dict.fromkeys(_THREAD_KEYS, str(config.num_threads))


def _work_folder(config: ChildConfig, folder: Path) -> Path:
    """Return where the child may write: in a sandbox not where its folder's lock lies."""
    return folder / "work" if config.fleet.sandbox else folder
