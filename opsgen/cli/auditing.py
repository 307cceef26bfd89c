"""The audit of foreign task code."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from opsgen.admit import Case, admit_all, pending
from opsgen.cli.display import certificate, console
from opsgen.cli.options import AsJson
from opsgen.fleet import Fleet, Journal, Progress
from opsgen.recipe import Recipe, convert_recipe
from opsgen.records import Attempt, MeasureRequest, ProbeRequest, Request, Task
from opsgen.run import check_machine, join_cases, measure_key
from opsgen.source import read_task_file


def audit(
    source: Annotated[
        Path, typer.Argument(metavar="FILE.py", help="A task in the KernelBench form.")
    ],
    device: Annotated[str, typer.Option("--device", help="cpu or cuda.")] = "cpu",
    as_json: AsJson = False,
) -> None:
    """Probe, measure and judge a foreign task."""
    task = read_task_file(source)
    recipe = _recipe(device)
    case = _examine(task, recipe)
    verdict = admit_all([case], recipe)[0]
    if as_json:
        print(msgspec.json.encode({"case": case, "verdict": verdict}).decode())
    else:
        console().print(certificate(case, verdict))


def _recipe(device: str) -> Recipe:
    window = [0.05, 200.0] if device == "cpu" else [1.05, 95.0]
    tree = {
        "name": "audit",
        "seed": 20260817,
        "measure": {"device": device},
        "admit": {"runtime_window_ms": window},
        "fleet": {"children_per_device": 1},
        "release": {"want": {"foreign": 1}},
    }
    return convert_recipe(tree, f"--device {device}")


def _examine(task: Task, recipe: Recipe) -> Case:
    """Send a task through the stages that do not decide it earlier."""
    with (
        Fleet(recipe.fleet, recipe.measure.device) as fleet,
        tempfile.TemporaryDirectory(prefix="opsgen-audit-") as folder,
        Journal(Path(folder) / "journal.jsonl") as journal,
    ):
        environment = check_machine(fleet, recipe.measure.device)
        attempts: list[Attempt] = []

        def attempt(stage: str, key: str, request: Request) -> None:
            with Progress(1, stage) as bar:
                for each in fleet.run([(key, request)], journal):
                    attempts.append(each)
                    bar.update(each.fault.reason if each.fault else "ok")

        attempt("probe", task.task_id, ProbeRequest(task=task, seed=recipe.seed))
        case = join_cases([task], attempts, environment)[0]
        if not pending([case], recipe).measure:
            return case
        request = MeasureRequest(
            task=task,
            device=recipe.measure.device,
            modes=recipe.measure.modes,
            max_s_per_mode=recipe.measure.max_s_per_mode,
            seed=recipe.seed,
        )
        attempt("measure", measure_key(task, environment), request)
        return join_cases([task], attempts, environment)[0]
