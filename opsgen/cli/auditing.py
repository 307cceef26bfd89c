"""The audit of foreign task code."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from opsgen.admit import admit_all
from opsgen.cli.display import certificate, console
from opsgen.cli.options import AsJson
from opsgen.recipe import Recipe, convert_recipe
from opsgen.records import encode_line
from opsgen.run import audit_task
from opsgen.source import read_task_file

# Foreign tasks are judged by the admission protocol's defaults; only the runtime window is a
# processor's own, since one of a GPU would refuse nearly all that a processor is given.
_WINDOW_MS = {"cpu": [0.05, 200.0], "cuda": [1.05, 95.0]}


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
    case = audit_task(task, recipe)
    verdict = admit_all([case], recipe)[0]
    if as_json:
        print(encode_line({"case": case, "verdict": verdict}).decode())
    else:
        console().print(certificate(case, verdict))


def _recipe(device: str) -> Recipe:
    tree = {
        "name": "audit",
        "seed": 20260817,
        "measure": {"device": device},
        "admit": {"runtime_window_ms": _WINDOW_MS.get(device, _WINDOW_MS["cpu"])},
        "fleet": {"children_per_device": 1},
        "release": {"want": {"foreign": 1}},
    }
    return convert_recipe(tree, f"--device {device}")
