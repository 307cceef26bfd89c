"""The processes that belong to a child: those that it started, however they try to get away.

A helper may leave the group and the session and outlive its parent. It is still
found: by descent while the child lives, since orphans come back to it (it is a
subreaper), and afterwards by the mark that every process carries in the
environment it was started with. Only one that also clears its environment
escapes, and only if it was never seen at a look and runs as a user that others are, too.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil

MARK = "OPSGEN_CHILD_FOLDER"
"""Environment variable that names the child a process belongs to, by its work folder."""

_MAX_ROUNDS = 50
_PAUSE_S = 0.001
_DEAD = "ZX"


@dataclass(frozen=True, slots=True)
class Entry:
    """One process of this machine. `birth` tells it from a later one of the same id."""

    parent: int
    group: int
    session: int
    birth: float
    rss_bytes: int


class ProcessTable:
    """The live processes, read at most once per `max_age_s` for all children of a worker.

    Reading them costs 15 us a process, so twelve children that looked for
    themselves four times a second would take a third of a core on a busy host.
    """

    def __init__(self, max_age_s: float) -> None:
        self._max_age_s = max_age_s
        self._lock = threading.Lock()
        self._entries: dict[int, Entry] = {}
        self._read_s = float("-inf")

    def entries(self) -> dict[int, Entry]:
        """Return the processes by id."""
        with self._lock:
            if time.monotonic() - self._read_s > self._max_age_s:
                self._entries = read_processes()
                self._read_s = time.monotonic()
            return self._entries


def read_processes() -> dict[int, Entry]:
    """Return the live processes of this machine by id; the dead that nobody reaped are none."""
    entries = {}
    for pid in psutil.pids():
        # It may end, or be someone else's, while we look.
        with contextlib.suppress(OSError, psutil.Error, ValueError):
            entry = _read_stat(pid) if sys.platform == "linux" else _ask_psutil(pid)
            if entry is not None:
                entries[pid] = entry
    return entries


def kin_of(leader: int, entries: dict[int, Entry]) -> set[int]:
    """Return who descends from `leader` or is in its group or session, itself left out."""
    children: dict[int, list[int]] = {}
    found = set()
    for pid, entry in entries.items():
        children.setdefault(entry.parent, []).append(pid)
        if leader in (entry.group, entry.session):
            found.add(pid)
    fresh = [leader, *found]
    while fresh:
        below = [pid for pid in children.get(fresh.pop(), ()) if pid not in found]
        found.update(below)
        fresh += below
    return found - {leader}


def end_all(
    leader: int, mark: str, seen: Iterable[tuple[int, float]], user: int | None = None
) -> None:
    """Kill the child `leader` with all its kin; the leader is left for its parent to reap.

    Args:
        leader: The child, which must not have been reaped: its id is still its own.
        mark: Its value of `MARK`.
        seen: Kin that was seen before, as ids with the births that go with them.
        user: One that nobody else can be, if the child became one: all of its processes go.
    """
    # All of the group at once, before anyone is killed: what multiplies stops doing so,
    # and orphans have a parent to come back to.
    _signal_group(leader, signal.SIGSTOP)
    before = dict(seen)
    for _ in range(_MAX_ROUNDS):
        entries = read_processes()
        known = {pid for pid, birth in before.items() if _was_born(entries, pid, birth)}
        found = kin_of(leader, entries) | known | _marked(mark, entries)
        found |= set() if user is None else _of_user(user, entries)
        found -= {leader, os.getpid()}
        if not found:
            break
        for pid in found:
            send_kill(pid)
        time.sleep(_PAUSE_S)
    send_kill(leader)
    _signal_group(leader, signal.SIGKILL)


def send_kill(pid: int) -> None:
    """Kill a process, unless it is gone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def _signal_group(leader: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)


def _was_born(entries: dict[int, Entry], pid: int, birth: float) -> bool:
    return pid in entries and entries[pid].birth == birth


def _marked(mark: str, entries: dict[int, Entry]) -> set[int]:
    """Return who was started with the child's mark.

    Source:
        Jenkins' ProcessTreeKiller, which finds a build's stray processes so.
    """
    wanted = f"{MARK}={mark}\0".encode()
    found = set()
    for pid in entries:
        with contextlib.suppress(OSError):
            if wanted in Path(f"/proc/{pid}/environ").read_bytes() + b"\0":
                found.add(pid)
    return found


def _of_user(user: int, entries: dict[int, Entry]) -> set[int]:
    line = f"\nUid:\t{user}\t".encode()
    found = set()
    for pid in entries:
        with contextlib.suppress(OSError):
            if line in Path(f"/proc/{pid}/status").read_bytes():
                found.add(pid)
    return found


def _read_stat(pid: int) -> Entry | None:
    text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    # The name stands in parentheses and may hold anything.
    fields = text.rpartition(")")[2].split()
    if fields[0] in _DEAD:
        return None
    return Entry(
        parent=int(fields[1]),
        group=int(fields[2]),
        session=int(fields[3]),
        birth=float(fields[19]),
        rss_bytes=int(fields[21]) * os.sysconf("SC_PAGE_SIZE"),
    )


def _ask_psutil(pid: int) -> Entry | None:
    process = psutil.Process(pid)
    if process.status() == psutil.STATUS_ZOMBIE:
        return None
    return Entry(
        parent=process.ppid(),
        group=os.getpgid(pid),
        session=os.getsid(pid),
        birth=process.create_time(),
        rss_bytes=process.memory_info().rss,
    )
