"""The commands that show something and change nothing."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from opsgen.admit import judge
from opsgen.cli.display import certificate, console, environment_table, ops_table
from opsgen.cli.options import DEFAULT_RUNS, AsJson, Runs
from opsgen.errors import UsageError
from opsgen.fleet import Fleet
from opsgen.ops import CATALOGUE
from opsgen.recipe import FleetConfig, read_recipe
from opsgen.records import Environment, EnvironmentRequest
from opsgen.run import RunFolder, join_cases


def show(
    task: Annotated[str, typer.Argument(metavar="TASK", help="A task_id or the start of one.")],
    runs: Runs = DEFAULT_RUNS,
    as_json: AsJson = False,
) -> None:
    """Print a task's certificate: verdict, graph, baselines, margins and source."""
    for path in sorted(runs.glob("*/recipe.toml"), key=lambda each: -each.stat().st_mtime):
        recipe = read_recipe(path)
        folder = RunFolder(path.parents[1], recipe)
        folder.path = path.parent
        lines = [line for line in folder.lines() if line.task]
        found = [line.task for line in lines if line.task and line.task.task_id.startswith(task)]
        if not found:
            continue
        if len(found) > 1:
            names = ", ".join(each.task_id for each in found[:4])
            raise UsageError(f"{task}: could be any of {names}; give more of the task_id")
        case = join_cases(found, folder.attempts(), folder.environment())[0]
        stored = [v for v in folder.latest_verdicts() if v.task_id == found[0].task_id]
        verdict = stored[0] if stored else judge(case, recipe)
        if as_json:
            print(msgspec.json.encode({"case": case, "verdict": verdict}).decode())
        else:
            console().print(certificate(case, verdict))
        return
    raise UsageError(f"{task}: no task in {runs} has an id that starts so")


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
        print(msgspec.json.encode(rows).decode())
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
        print(msgspec.json.encode({"devices": found, "problems": problems}).decode())
        return
    out = console()
    for environment in found:
        out.print(environment_table(environment))
        out.print()
    for problem in problems:
        out.print(problem)
