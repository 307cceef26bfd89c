"""The audit of a single foreign task: the same stages, without a run folder."""

from __future__ import annotations

import tempfile
from pathlib import Path

from opsgen.admit import Case, pending
from opsgen.fleet import Fleet, Journal, Progress
from opsgen.recipe import Recipe
from opsgen.records import Attempt, Request, Task
from opsgen.run.cases import join_cases
from opsgen.run.requests import measure_key, measure_request, probe_request
from opsgen.run.stages import check_machine


def audit_task(task: Task, recipe: Recipe) -> Case:
    """Probe a task and, unless that decides it, measure it.

    Raises:
        UsageError: This machine cannot measure on the recipe's device.
    """
    with (
        Fleet(recipe.fleet, recipe.measure.device) as fleet,
        tempfile.TemporaryDirectory(prefix="opsgen-audit-") as folder,
        Journal(Path(folder) / "journal.jsonl") as journal,
    ):
        environment = check_machine(fleet, recipe.measure.device)
        attempts: list[Attempt] = []

        def attempt(stage: str, key: str, request: Request) -> Case:
            with Progress(1, stage) as bar:
                for each in fleet.run([(key, request)], journal):
                    attempts.append(each)
                    bar.update(each.fault.reason if each.fault else "ok")
            return join_cases([task], attempts, environment)[0]

        case = attempt("probe", task.task_id, probe_request(task, recipe))
        if pending([case], recipe).measure:
            key = measure_key(task, environment)
            case = attempt("measure", key, measure_request(task, recipe))
        return case
