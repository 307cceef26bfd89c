"""The commands that show something and change nothing."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from opsgen.admit import admit_all
from opsgen.child import Layer, describe_layers
from opsgen.cli.display import (
    CatalogueCounts,
    certificate,
    composites_table,
    console,
    counts_table,
    ops_table,
)
from opsgen.cli.machine_tables import environment_table, gpu_shares, gpus_table, layers_table
from opsgen.cli.options import DEFAULT_RUNS, AsJson, OpsFile, Runs
from opsgen.errors import MeasureError, UsageError
from opsgen.fleet import Fleet
from opsgen.ops import BLOCK_OPS, CATALOGUE, Op
from opsgen.ops.counting import (
    VARIANTS,
    computing_ops,
    is_view,
    qualified_names,
    reachable_ops,
)
from opsgen.ops.user import load_ops, require_ops
from opsgen.recipe import FleetConfig
from opsgen.records import Environment, EnvironmentRequest, Task, encode_line
from opsgen.run import RunFolder, join_cases
from opsgen.sampler import COMPOSITES, Composite
from opsgen.sampler.counting import count_pairs
from opsgen.sampler.strata import role_of


def show(
    task: Annotated[str, typer.Argument(metavar="TASK", help="A task_id or the start of one.")],
    runs: Runs = DEFAULT_RUNS,
    ops: OpsFile = None,
    as_json: AsJson = False,
) -> None:
    """Print a task's certificate: verdict, graph, baselines, margins and source."""
    if ops is not None:
        load_ops(ops)
    folder, found = _find(task, runs)
    require_ops(folder.recipe.sample.user_ops)
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
        # A collection may hold a task several times; the first of them is shown.
        alike = {each.task_id: each for each in reversed(tasks) if each.task_id.startswith(task)}
        found = list(alike.values())
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
    composites: Annotated[
        bool, typer.Option("--composites", help="List the composites in place of the ops.")
    ] = False,
    ops_file: OpsFile = None,
    as_json: AsJson = False,
) -> None:
    """List the catalogue, and count it: ops, names, pairs by fusion stratum, composites."""
    if kind is not None and composites:
        raise UsageError("--kind, --composites: give one of them; composites have no kind")
    if ops_file is not None:
        load_ops(ops_file)
    kinds = sorted({op.kind.value for op in CATALOGUE.values()})
    if kind is not None and kind not in kinds:
        raise UsageError(f"--kind {kind}: is none of {', '.join(kinds)}")
    chosen = {name: op for name, op in CATALOGUE.items() if kind in (None, op.kind.value)}
    out = console()
    if not as_json:  # the counts take seconds, the list none
        out.print(
            composites_table(COMPOSITES.values()) if composites else ops_table(chosen.values())
        )
        out.print()
    counts = catalogue_counts(chosen, is_whole=kind is None)
    if not as_json:
        out.print(counts_table(counts))
        return
    told: dict[str, object] = {"counts": counts}
    if not composites:
        told["ops"] = [_op_row(op) for op in chosen.values()]
    if kind is None:
        told["composites"] = [_composite_row(one) for one in COMPOSITES.values()]
    print(encode_line(told).decode())


def _op_row(op: Op) -> dict[str, object]:
    return {
        "op": op.name,
        "kind": op.kind.value,
        "role": role_of(op),
        "ranks": op.ranks,
        "names": list(dict.fromkeys(spelling.name for spelling in op.spellings)),
        "variant_of": VARIANTS.get(op.name),
        "is_deterministic": op.is_deterministic,
        "is_backward_deterministic": op.is_backward_deterministic,
    }


def _composite_row(composite: Composite) -> dict[str, object]:
    return {
        "name": composite.name,
        "family": composite.family,
        "origin": composite.origin,
        "license": composite.license,
        "public_name": composite.public_name,
    }


def catalogue_counts(ops: dict[str, Op], *, is_whole: bool) -> CatalogueCounts:
    """Count entries as `opsgen.ops.counting` says; of the whole catalogue pairs and composites."""
    reachable, computing = reachable_ops(ops), computing_ops(ops)
    composites = list(COMPOSITES.values()) if is_whole else []
    return CatalogueCounts(
        entries=len(ops),
        ops=len(computing),
        names=len(qualified_names(reachable)),
        variants=len(reachable) - len(computing),
        blocks=len(ops.keys() & BLOCK_OPS),
        views=sum(is_view(op) for op in ops.values() if op.name not in BLOCK_OPS),
        nondeterministic=sum(not op.is_deterministic for op in ops.values()),
        nondeterministic_backward=sum(not op.is_backward_deterministic for op in reachable),
        by_kind=dict(sorted(Counter(op.kind.value for op in computing).items())),
        by_role=dict(sorted(Counter(map(role_of, computing)).items())),
        by_stratum=count_pairs() if is_whole else {},
        by_family=dict(sorted(Counter(one.family for one in composites).items())),
        public=sum(one.public_name is not None for one in composites),
    )


def doctor(as_json: AsJson = False) -> None:
    """Say what this machine can do, which GPUs it has, and how well it shuts foreign code in."""
    gpus = gpu_shares()
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
    layers: tuple[Layer, ...] = ()
    try:
        layers = describe_layers(found[-1].device if found else "cpu")
    except MeasureError as error:
        problems.append(str(error))
    if as_json:
        told = {"devices": found, "gpus": gpus, "sandbox": layers, "problems": problems}
        print(encode_line(told).decode())
        return
    out = console()
    for environment in found:
        out.print(environment_table(environment))
        out.print()
    if gpus:
        out.print(gpus_table(gpus))
        out.print()
    if layers:
        out.print(layers_table(layers))
        out.print()
    for problem in problems:
        out.print(problem)
