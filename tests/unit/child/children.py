"""Children for tests: quick deadlines, a small memory limit, and who is left of them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import psutil

from opsgen.child import Child, ChildConfig
from opsgen.recipe import FleetConfig
from opsgen.records import Evidence, Fault, NoopEvidence, NoopRequest

STAGE_S = 1.2
DEADLINES = {"start": 60.0, "noop": STAGE_S, "eager": STAGE_S, "build": STAGE_S, "long": 60.0}


def config_in(folder: Path, *, has_spare: bool = False, **fleet: object) -> ChildConfig:
    settings = {"deadlines_s": DEADLINES, "memory_limit_gib": 0.4, **fleet}
    for name in ("work", "lease"):
        (folder / name).mkdir(exist_ok=True)
    return ChildConfig(
        num_threads=3,
        fleet=FleetConfig(**settings),  # type: ignore[arg-type]
        lease_dir=str(folder / "lease"),
        work_dir=str(folder / "work"),
        has_spare=has_spare,
    )


def run(
    child: Child,
    behaviour: str,
    *,
    is_fresh: bool = False,
    is_cancelled: Callable[[], bool] = lambda: False,
) -> Evidence | Fault:
    request = NoopRequest(key="k", behaviour=behaviour)
    return child.run(request, is_fresh=is_fresh, is_cancelled=is_cancelled)


def answer(child: Child, behaviour: str = "return") -> NoopEvidence:
    evidence = run(child, behaviour)
    assert isinstance(evidence, NoopEvidence), evidence
    assert evidence.pid == child.pid
    return evidence


def fault(child: Child, behaviour: str) -> Fault:
    outcome = run(child, behaviour)
    assert isinstance(outcome, Fault), outcome
    return outcome


def alive_in(folder: Path) -> list[int]:
    """Return the processes that belong to children with work folders below `folder`."""
    found = []
    for process in psutil.process_iter(["status"]):
        if process.info["status"] in {psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD}:
            continue
        try:
            environment = Path(f"/proc/{process.pid}/environ").read_bytes()
        except OSError:
            continue
        if f"OPSGEN_CHILD_FOLDER={folder}/".encode() in environment:
            found.append(process.pid)
    return [pid for pid in found if pid != os.getpid()]
