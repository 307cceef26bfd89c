"""Fingerprints of a folder of tasks: traced on the fleet, and how alike tasks are by chance."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from opsgen.errors import UsageError
from opsgen.fleet import Fleet, Journal, Ledger, Progress, Settled
from opsgen.records import ProbeEvidence, ProbeRequest, Request, Task, Trace
from opsgen.source import check_source, foreign_task, read_tasks
from opsgen.source.chance import draw_tasks, null_bins, null_pairs
from opsgen.source.fingerprints import Table, fingerprint, make_table

CANARY = """import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, groups=2)
        self.norm = nn.GroupNorm(2, channels)
        self.linear = nn.Linear(channels, channels)

    def forward(self, x, y):
        x = F.gelu(self.norm(self.conv(x))) + y * 0.5
        x = self.linear(x.mean(dim=(2, 3)))
        return torch.softmax(x @ x.t(), dim=-1)


channels = 8


def get_inputs():
    return [torch.rand(4, channels, 6, 6), torch.rand(4, channels, 6, 6)]


def get_init_inputs():
    return [channels]
"""
"""Traced with every table. Where a table's trace of it is another than today's, so are all."""
_CANARY_KEY = "canary"  # no name of a row, which has a slash
_SEED = 0  # of draws that nothing is kept of
_SUFFIX = re.compile(r"\.(py|parquet|jsonl(\.gz)?)(?=$|:)")


@dataclass(frozen=True, slots=True)
class Fingerprinted:
    """A table, and what is not or not wholly in it.

    Attributes:
        table: Fingerprints of all tasks that parse, with the null distribution.
        untraced: Tasks without a trace, by their names in the table, with the reason in a line.
        unread: Tasks that do not parse and are left out, with the reason.
    """

    table: Table
    untraced: dict[str, str]
    unread: dict[str, str]


def make_fingerprints(fleet: Fleet, source: Path, name: str, *, num_sampled: int) -> Fingerprinted:
    """Return the fingerprints of all tasks of a source; its code runs in the fleet's children.

    Args:
        fleet: Where tasks are traced.
        source: As `opsgen.source.read_tasks` takes it.
        name: First part of the tasks' names.
        num_sampled: Sampled tasks behind the null distribution.

    Raises:
        UsageError: The source cannot be read, or none of its tasks parses.
    """
    tasks = {task_name(task, source, name): task for task in read_tasks(source)}
    unread = {
        each: fault.witness
        for each, task in tasks.items()
        for fault in check_source(task.code)
        if fault.rule == "parses"
    }
    tasks = {each: task for each, task in tasks.items() if each not in unread}
    if not tasks:
        raise UsageError(f"{source}: holds no task that parses")
    traces: dict[str, Trace] = {}
    untraced: dict[str, str] = {}
    canary = foreign_task(CANARY, origin=_CANARY_KEY)
    for each, settled in _probe(fleet, {_CANARY_KEY: canary, **tasks}):
        found = settled.evidence
        if isinstance(found, ProbeEvidence) and found.trace is not None:
            traces[each] = found.trace
        elif each != _CANARY_KEY:
            untraced[each] = why_untraced(settled)
    rows = [fingerprint(task, traces.get(each), each) for each, task in tasks.items()]
    codes = {each: task.code for each, task in tasks.items()}
    null = null_bins(null_pairs(rows, codes, draw_tasks(num_sampled)))
    known = traces.get(_CANARY_KEY)
    table = make_table(rows, null, known.sized_hash if known else None)
    return Fingerprinted(table=table, untraced=untraced, unread=unread)


def task_name(task: Task, source: Path, name: str) -> str:
    """Return what a task is called in a table: `name`, its folder, its file, its row."""
    origin = task.origin or str(task.line)
    try:
        inner = str(Path(origin).relative_to(source))
    except ValueError:
        inner = Path(origin).name
    if inner == ".":
        inner = source.name
    return f"{name}/{_SUFFIX.sub('', inner)}"


def why_untraced(settled: Settled) -> str:
    """Return in a line why a probe brought no trace."""
    fault, found = settled.fault, settled.evidence
    if fault is not None:
        return f"{fault.reason}: {fault.detail}"
    assert isinstance(found, ProbeEvidence)
    if found.source_faults:
        first = found.source_faults[0]
        return f"line {first.line}: {first.rule}: {first.witness}"
    if found.failure is not None:
        return f"{found.failure.stage}: {found.failure.kind}: {found.failure.message}".partition(
            "\n"
        )[0]
    return "meta cannot run it"


def _probe(fleet: Fleet, tasks: dict[str, Task]) -> Iterator[tuple[str, Settled]]:
    """Yield what became of each task's probe."""

    def requests() -> Iterator[tuple[str, Request]]:
        for name, task in tasks.items():
            yield name, ProbeRequest(task=task, trace_only=True, seed=_SEED)

    ledger = Ledger()
    with (
        tempfile.TemporaryDirectory(prefix="opsgen-fingerprint-") as folder,
        Journal(Path(folder) / "journal.jsonl") as journal,
        Progress(len(tasks), "fingerprint") as bar,
    ):
        for attempt in fleet.run(requests(), journal):
            settled = ledger.add(attempt)
            if settled is not None:
                bar.update(settled.fault.reason if settled.fault else "ok")
                yield attempt.key, settled
