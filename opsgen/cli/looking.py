"""The commands that show something and change nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from opsgen.admit import admit_all
from opsgen.cli.display import certificate, console, environment_table, ops_table
from opsgen.cli.options import DEFAULT_RUNS, AsJson, Runs
from opsgen.errors import UsageError
from opsgen.fleet import Fleet
from opsgen.ops import CATALOGUE
from opsgen.recipe import FleetConfig
from opsgen.records import Environment, EnvironmentRequest, Task, encode_line
from opsgen.run import RunFolder, join_cases


def show(
    task: Annotated[str, typer.Argument(metavar="TASK", help="A task_id or the start of one.")],
    runs: Runs = DEFAULT_RUNS,
    as_json: AsJson = False,
) -> None:
    """Print a task's certificate: verdict, graph, baselines, margins and source."""
    folder, found = _find(task, runs)
    cases = join_cases(
        [line.task for line in folder.lines() if line.task], folder.attempts(), folder.environment()
    )
    verdict = next(
        each for each in admit_all(cases, folder.recipe) if each.task_id == found.task_id
    )
    case = next(each for each in cases if each.task.task_id == found.task_id)
    if as_json:
        print(encode_line({"case": case, "verdict": verdict}).decode())
    else:
        console().print(certificate(case, verdict))
        console().print(f"under the thresholds of {folder.path / 'recipe.toml'}", soft_wrap=True)


def _find(task: str, runs: Path) -> tuple[RunFolder, Task]:
    """Return the task whose id starts so, from the newest run that has it."""
    recipes = sorted(runs.glob("*/recipe.toml"), key=lambda each: -each.stat().st_mtime)
    unreadable = []
    for path in recipes:
        try:
            folder = RunFolder.at(path.parent)
        except UsageError as error:
            unreadable.append(str(error))
            continue
        tasks = [line.task for line in folder.lines() if line.task]
        found = [each for each in tasks if each.task_id.startswith(task)]
        if len(found) > 1:
            names = ", ".join(each.task_id for each in found[:4])
            raise UsageError(f"{task}: could be any of {names}; give more of the task_id")
        if found:
            return folder, found[0]
    note = f" (passed over: {'; '.join(unreadable)})" if unreadable else ""
    raise UsageError(f"{task}: no task in {runs} has an id that starts so{note}")


def ops(
    kind: Annotated[
        str | None, typer.Option("--kind", help="Only this kind, such as pooling.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the catalogue."""
    kinds = sorted({op.kind.value for op in CATALOGUE.values()})
    if kind is not None and kind not in kinds:
        raise UsageError(f"--kind {kind}: is none of {', '.join(kinds)}")
    chosen = [op for op in CATALOGUE.values() if kind in (None, op.kind.value)]
    if as_json:
        rows = [
            {
                "op": op.name,
                "kind": op.kind.value,
                "ranks": op.ranks,
                "names": list(dict.fromkeys(spelling.name for spelling in op.spellings)),
            }
            for op in chosen
        ]
        print(encode_line(rows).decode())
        return
    console().print(ops_table(chosen))


def doctor(as_json: AsJson = False) -> None:
    """Say what this machine can do."""
    found: list[Environment] = []
    problems: list[str] = []
    for device in ("cpu", "cuda"):
        try:
            with Fleet(FleetConfig(children_per_device=1), device) as fleet:
                environment = fleet.ask(EnvironmentRequest(device=device))
                assert isinstance(environment, Environment)
                found.append(environment)
        except UsageError as error:
            problems.append(str(error))
    if as_json:
        print(encode_line({"devices": found, "problems": problems}).decode())
        return
    out = console()
    for environment in found:
        out.print(environment_table(environment))
        out.print()
    for problem in problems:
        out.print(problem)
