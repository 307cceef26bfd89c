"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

RecipePath = Annotated[
    Path, typer.Argument(metavar="RECIPE", help="A recipe, such as pipelines/quickstart.toml.")
]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a recipe key, e.g. seed=7."),
]
Runs = Annotated[Path, typer.Option("--runs", metavar="FOLDER", help="Folder of all runs.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]
Scheduler = Annotated[
    str | None,
    typer.Option("--scheduler", metavar="ADDRESS", help="A running Dask scheduler, tcp://..."),
]
OpsFile = Annotated[
    Path | None,
    typer.Option("--ops", metavar="FILE.py", help="Own ops: see opsgen/ops/user.py."),
]
AllowUnsandboxed = Annotated[
    bool,
    typer.Option("--allow-unsandboxed", help="Run the code with all that you may do yourself."),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Say what would be done and what it takes, and stop.")
]

DEFAULT_RUNS = Path("data/runs")
