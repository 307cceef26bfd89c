"""What the fleet's tests share: jobs to run, drivers to kill, processes to count."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import psutil
from distributed import Client

from opsgen.fleet import Fleet, Ledger, Settled
from opsgen.recipe import FleetConfig
from opsgen.records import Attempt, NoopRequest, Request, read_lines

NUM_CHILDREN = 2
CONFIG = FleetConfig(
    children_per_device=NUM_CHILDREN,
    memory_limit_gib=0.4,
    deadlines_s={"start": 60.0, "noop": 1.0},
)

_DRIVER = """
import sys
from pathlib import Path
from opsgen.fleet import Fleet, Journal
from opsgen.recipe import FleetConfig
from opsgen.records import Attempt, NoopRequest, read_lines

def main():
    folder, num = Path(sys.argv[1]), int(sys.argv[2])
    behaviours = dict(pair.split("=") for pair in sys.argv[3:])
    usual = behaviours.pop("all", "return")
    requests = [
        (f"k{i}", NoopRequest(key=f"k{i}", behaviour=behaviours.get(f"k{i}", usual)))
        for i in range(num)
    ]
    config = FleetConfig(children_per_device=2, deadlines_s={"noop": 60.0})
    path = folder / "journal.jsonl"
    history = list(read_lines(path, Attempt))
    with Fleet(config, "cpu") as fleet, Journal(path) as journal:
        for attempt in fleet.run(requests, journal, history):
            print(attempt.key, flush=True)

if __name__ == "__main__":
    main()
"""


def noop_requests(behaviours: dict[int, str], num: int) -> list[tuple[str, Request]]:
    """Return `num` no-op jobs k0, k1, ..., of which some behave otherwise."""
    return [
        (f"k{i}", NoopRequest(key=f"k{i}", behaviour=behaviours.get(i, "return")))
        for i in range(num)
    ]


def settle_all(attempts: Iterable[Attempt]) -> dict[str, Settled]:
    """Return what settled each key, holding that nothing settles or is numbered twice."""
    ledger, found, seen = Ledger(), {}, set()
    for attempt in attempts:
        assert (attempt.key, attempt.number) not in seen
        seen.add((attempt.key, attempt.number))
        settled = ledger.add(attempt)
        if settled is not None:
            assert attempt.key not in found
            found[attempt.key] = settled
    return found


def descendants() -> list[int]:
    """Return live processes below this one; the interpreter's own trackers do not count."""
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            is_own = "resource_tracker" in " ".join(process.cmdline())
            if not is_own and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except psutil.NoSuchProcess:
            continue
    return found


def is_alive(pid: int) -> bool:
    """Tell whether there is such a process, zombies left aside."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def client_of(fleet: Fleet) -> Client:
    """Return the Dask client of an open fleet."""
    assert fleet._cluster is not None
    return fleet._cluster.client


def start_driver(folder: Path, num: int, *behaviours: str) -> subprocess.Popen[str]:
    """Start a process that runs `num` no-op jobs against the journal in `folder`.

    It leads a process group of its own, as a terminal gives it, and prints the
    key of each attempt. `behaviours` are pairs such as `k3=hang` or `all=sleep:0.1`.
    """
    script = folder / "driver.py"
    script.write_text(_DRIVER)
    return subprocess.Popen(
        [sys.executable, str(script), str(folder), str(num), *behaviours],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "TMPDIR": str(folder), "PYTHONPATH": os.pathsep.join(sys.path)},
    )


def read_journal(folder: Path) -> list[Attempt]:
    """Return the attempts in the journal of a driver."""
    return list(read_lines(folder / "journal.jsonl", Attempt))
