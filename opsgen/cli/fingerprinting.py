"""The command that makes a reference table of a benchmark."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.table import Table

from opsgen.cli.display import console
from opsgen.cli.options import AllowUnsandboxed, AsJson
from opsgen.errors import UsageError
from opsgen.fleet import Fleet
from opsgen.recipe import FleetConfig
from opsgen.records import encode_line
from opsgen.run.fingerprinting import Fingerprinted, make_fingerprints
from opsgen.source.fingerprints import NullBin, write_table

_PROBE_S = 900.0  # recurrent benchmarks are ten thousands of calls to trace


def fingerprint(
    source: Annotated[
        Path,
        typer.Argument(metavar="SOURCE", help="A folder of tasks, a .py, .parquet or .jsonl file."),
    ],
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE.parquet", help="Where the table goes.")
    ],
    name: Annotated[
        str | None, typer.Option("--name", help="First part of the tasks' names; else FILE.")
    ] = None,
    num_sampled: Annotated[
        int,
        typer.Option("--sampled", min=0, help="Sampled tasks that show what is alike by chance."),
    ] = 20_000,
    allow_unsandboxed: AllowUnsandboxed = False,
    as_json: AsJson = False,
) -> None:
    """Make a table of fingerprints for `probe.benchmarks`: hashes and names of ops, no code."""
    if out.suffix != ".parquet":
        raise UsageError(f"--out {out}: must end in .parquet")
    deadlines_s = {**FleetConfig().deadlines_s, "probe": _PROBE_S}
    config = FleetConfig(sandbox=not allow_unsandboxed, deadlines_s=deadlines_s)
    with Fleet(config, "cpu") as fleet:
        found = make_fingerprints(fleet, source, name or out.stem, num_sampled=num_sampled)
    write_table(out, found.table)
    if as_json:
        told = {
            "tasks": len(found.table.rows),
            "traced": len(found.table.rows) - len(found.untraced),
            "untraced": found.untraced,
            "unread": found.unread,
            "null": found.table.null,
            "digest": found.table.digest,
        }
        print(encode_line(told).decode())
    else:
        _print(found, out)


def _print(found: Fingerprinted, out: Path) -> None:
    console().print(null_table(found.table.null))
    for what, reasons in (("no trace", found.untraced), ("left out", found.unread)):
        for each, reason in sorted(reasons.items()):
            print(f"{what}: {each}: {reason}", file=sys.stderr)
    num_tasks = len(found.table.rows)
    print(
        f"wrote {out}: {num_tasks} tasks, {num_tasks - len(found.untraced)} of them traced; "
        f"{len(found.unread)} left out"
    )
    print(f'a recipe compares with it by probe.benchmarks = ["{out}"]')


def null_table(null: tuple[NullBin, ...]) -> Table:
    """Return how alike unrelated tasks are, by the number of their tokens."""
    table = Table(title="Alike by chance", title_justify="left", box=None, pad_edge=False)
    table.add_column("tokens from")
    for heading in ("pairs", "median", "90 %", "99 %", "99.9 %", "largest"):
        table.add_column(heading, justify="right")
    for each in null:
        num_tokens, num_pairs, *values = msgspec.structs.astuple(each)
        table.add_row(str(num_tokens), str(num_pairs), *(f"{value:.3f}" for value in values))
    return table
