"""The audit of foreign task code: one file, or whole collections."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from opsgen.cli.display import certificate, console
from opsgen.cli.options import DEFAULT_RUNS, AllowUnsandboxed, AsJson, Overrides, Runs, Scheduler
from opsgen.recipe import Recipe, read_recipe
from opsgen.records import encode_line

if TYPE_CHECKING:
    from opsgen.release.fetching import Source
    from opsgen.run.auditing import Audit, AuditOptions

# Foreign tasks are judged by the admission protocol's defaults; only the runtime window is a
# processor's own, since one of a GPU would refuse nearly all that a processor is given.
_GPU_WINDOW_MS = "admit.runtime_window_ms=[1.05, 95.0]"


def audit(  # noqa: PLR0913 - the options of a command are its parameters
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="Tasks in the KernelBench form: a .py file, a folder, .parquet, .jsonl, or the "
            "id of a dataset, owner/name.",
        ),
    ],
    probe_only: Annotated[
        bool, typer.Option("--probe-only", help="Stop where a device is needed; measure nothing.")
    ] = False,
    device: Annotated[
        str | None, typer.Option("--device", help="cpu or cuda; by default the recipe's.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, metavar="N", help="Only the first N rows.")
    ] = None,
    recipe: Annotated[
        Path | None,
        typer.Option("--recipe", metavar="FILE", help="In place of pipelines/audit.toml."),
    ] = None,
    overrides: Overrides = None,
    runs: Runs = DEFAULT_RUNS,
    scheduler: Scheduler = None,
    revision: Annotated[
        str | None, typer.Option("--revision", help="Branch, tag or commit of a dataset.")
    ] = None,
    allow_unsandboxed: AllowUnsandboxed = False,
    as_json: AsJson = False,
) -> None:
    """Probe, measure and judge foreign tasks, resuming what is there."""
    # Here, since it brings the libraries that write tables, which no other command waits for.
    from opsgen.release.fetching import find_source
    from opsgen.run.auditing import AuditOptions

    extra = list(overrides or ())
    if allow_unsandboxed:
        extra.append("fleet.sandbox=false")
    read = _recipe(recipe, device, extra)
    found = find_source(source, revision=revision)
    options = AuditOptions(runs=runs, probe_only=probe_only, limit=limit, scheduler=scheduler)
    if found.path.suffix == ".py":
        outcome = _audit_file(found, read, options, as_json=as_json)
    else:
        outcome = _audit_collection(found, read, options, as_json=as_json)
    if outcome.summary.num_faulted:
        raise typer.Exit(1)


def _recipe(path: Path | None, device: str | None, overrides: list[str]) -> Recipe:
    from opsgen.run.auditing import RECIPE_PATH

    own = [f"measure.device={device}"] if device else []
    if path is None and device == "cuda":
        own.append(_GPU_WINDOW_MS)
    return read_recipe(path or RECIPE_PATH, (*own, *overrides))


def _audit_file(source: Source, recipe: Recipe, options: AuditOptions, *, as_json: bool) -> Audit:
    """Audit a single file, of which nothing is kept, and print its certificate."""
    from opsgen.run.auditing import audit_source

    # A single task is its own run: to time it again would double what the command takes.
    fleet = msgspec.structs.replace(recipe.fleet, children_per_device=1, retimed=0.0)
    recipe = msgspec.structs.replace(recipe, fleet=fleet)
    with tempfile.TemporaryDirectory(prefix="opsgen-audit-") as folder:
        kept_nowhere = msgspec.structs.replace(options, runs=Path(folder))
        outcome = audit_source(source, recipe, kept_nowhere)
    (case,), (verdict,) = outcome.cases, outcome.verdicts
    if as_json:
        print(encode_line({"case": case, "verdict": verdict}).decode())
        return outcome
    console().print(certificate(case, verdict))
    if outcome.summary.total.probed:
        console().print("passes everything that needs no device")
    return outcome


def _audit_collection(
    source: Source, recipe: Recipe, options: AuditOptions, *, as_json: bool
) -> Audit:
    """Audit a collection and print what came of it."""
    from opsgen.cli.audit_tables import audit_report
    from opsgen.run.auditing import audit_source

    outcome = audit_source(source, recipe, options, _announce)
    if as_json:
        print(encode_line(_plain(outcome, source)).decode())
        return outcome
    out = console()
    for part in audit_report(outcome.summary, source.label, probe_only=options.probe_only):
        out.print(part)
        out.print()
    if outcome.columns:
        out.print(f"code from  column {', '.join(outcome.columns)}", soft_wrap=True)
    out.print(f"evidence   {outcome.table}    ({outcome.wall_s:.0f} s)", soft_wrap=True)
    return outcome


def _plain(outcome: Audit, source: Source) -> dict[str, object]:
    return {
        "source": source.label,
        "folder": str(outcome.folder),
        "table": str(outcome.table),
        "columns": outcome.columns,
        "summary": outcome.summary,
        "num_passing": outcome.summary.num_passing,
        "wall_s": round(outcome.wall_s, 3),
    }


def _announce(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
