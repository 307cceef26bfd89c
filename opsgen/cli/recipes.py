"""The commands that take a recipe."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import msgspec
import typer

from opsgen.admit import compare, funnel, select
from opsgen.cli.display import (
    certificate,
    changes_text,
    class_table,
    console,
    funnel_table,
)
from opsgen.cli.options import (
    DEFAULT_RUNS,
    AsJson,
    DryRun,
    OpsFile,
    Overrides,
    RecipePath,
    Runs,
    Scheduler,
)
from opsgen.errors import UsageError
from opsgen.ops.user import load_ops
from opsgen.recipe import Recipe, read_recipe
from opsgen.records import Status, encode_line
from opsgen.run import (
    Outcome,
    Stages,
    open_fleet_stages,
    open_stages,
    plan_run,
    run_recipe,
)


def run(  # noqa: PLR0913 - the options of a command are its parameters
    recipe: RecipePath,
    overrides: Overrides = None,
    ops: OpsFile = None,
    runs: Runs = DEFAULT_RUNS,
    scheduler: Scheduler = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Do everything from sampling to the release folder, resuming what is there."""
    read = _read(recipe, overrides, ops)
    if dry_run:
        _print_estimate(read, runs, as_json=as_json)
        return
    outcome = run_recipe(read, runs, scheduler=scheduler, announce=_announce)
    if as_json:
        print(json.dumps(outcome.to_plain()))
    else:
        _print_outcome(outcome, recipe)
    if outcome.num_faulted:
        raise typer.Exit(1)


def sample(
    recipe: RecipePath,
    overrides: Overrides = None,
    ops: OpsFile = None,
    runs: Runs = DEFAULT_RUNS,
    as_json: AsJson = False,
) -> None:
    """Sample the first round of tasks; needs no torch."""
    with open_stages(_read(recipe, overrides, ops), runs, is_new=True) as stages:
        added = stages.sample()
        _say(as_json, stages, f"{added} lines sampled, {len(stages.tasks())} tasks in all")


def probe(
    recipe: RecipePath,
    overrides: Overrides = None,
    ops: OpsFile = None,
    runs: Runs = DEFAULT_RUNS,
    scheduler: Scheduler = None,
    as_json: AsJson = False,
) -> None:
    """Probe the sampled tasks on this machine's processor."""
    with open_fleet_stages(_read(recipe, overrides, ops), runs, scheduler) as stages:
        stages.probe()
        _say(as_json, stages, "probed")


def measure(
    recipe: RecipePath,
    overrides: Overrides = None,
    ops: OpsFile = None,
    runs: Runs = DEFAULT_RUNS,
    scheduler: Scheduler = None,
    as_json: AsJson = False,
) -> None:
    """Measure the probed tasks on the recipe's device."""
    with open_fleet_stages(_read(recipe, overrides, ops), runs, scheduler) as stages:
        stages.measure()
        _say(as_json, stages, "measured")


def admit(
    recipe: RecipePath,
    overrides: Overrides = None,
    ops: OpsFile = None,
    runs: Runs = DEFAULT_RUNS,
    as_json: AsJson = False,
) -> None:
    """Judge the recorded evidence under the recipe's thresholds; measures nothing."""
    with open_stages(_read(recipe, overrides, ops), runs) as stages:
        after = stages.admit()
        changes = compare(stages.first_verdicts(), after)
        if as_json:
            print(encode_line({"funnel": funnel(after), "changes": changes}).decode())
            return
        out = console()
        out.print(funnel_table(funnel(after), stages.lines()))
        if changes:
            out.print(f"\n{len(changes)} verdicts differ from the thresholds the run began with:")
            out.print(changes_text(changes))
        else:
            out.print("\nNo verdict differs from the thresholds the run began with.")
        unmeasured = sum(verdict.reason == "unmeasured" for verdict in after)
        if unmeasured:
            out.print(f"\n{unmeasured} tasks lack evidence under these thresholds: `run` fills it.")
        out.print(f"\nverdicts: {stages.folder.verdicts_path}")


def release(
    recipe: RecipePath,
    overrides: Overrides = None,
    ops: OpsFile = None,
    runs: Runs = DEFAULT_RUNS,
    as_json: AsJson = False,
) -> None:
    """Write the release folder from the recorded evidence."""
    with open_stages(_read(recipe, overrides, ops), runs) as stages:
        path = stages.release(stages.admit())
        print(json.dumps({"release": str(path)}) if as_json else f"release: {path}")


def _read(path: Path, overrides: list[str] | None, ops: Path | None) -> Recipe:
    """Read a recipe and load the user's own ops, whose digest becomes a key of it."""
    recipe = read_recipe(path, tuple(overrides or ()))
    if ops is None:
        return recipe
    digest = load_ops(ops)
    if recipe.sample.user_ops not in (None, digest):
        raise UsageError(f"{ops}: is {digest}; {path} was made with {recipe.sample.user_ops}")
    section = msgspec.structs.replace(recipe.sample, user_ops=digest)
    return msgspec.structs.replace(recipe, sample=section)


def _announce(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _say(as_json: bool, stages: Stages, done: str) -> None:
    verdicts = stages.admit()
    report = stages.report(verdicts)
    if report.drift:
        _announce(report.drift)
    if as_json:
        print(encode_line({"funnel": funnel(verdicts)}).decode())
        return
    out = console()
    out.print(funnel_table(funnel(verdicts), stages.lines()))
    out.print(f"\n{done}; run folder: {stages.folder.path}")


def _print_estimate(recipe: Recipe, runs: Path, *, as_json: bool) -> None:
    estimate = plan_run(recipe, runs)
    if as_json:
        print(encode_line(estimate).decode())
        return
    out = console()
    out.print(f"run folder      {estimate.folder}")
    out.print(f"admitted        {estimate.num_wanted} tasks wanted")
    out.print(
        f"candidates      about {estimate.num_candidates}, {estimate.num_known} sampled already"
    )
    out.print(f"device minutes  about {estimate.device_minutes:.0f} on {recipe.measure.device}")
    out.print(f"disk            about {estimate.disk_mb:.1f} MB")


def _print_outcome(outcome: Outcome, recipe: Path) -> None:
    out = console()
    out.print(funnel_table(outcome.funnel, outcome.lines))
    out.print()
    out.print(class_table(outcome.funnel, outcome.recipe.release.want))
    admitted = [v for v in outcome.verdicts if v.status is Status.ADMITTED]
    if admitted:
        chosen = select(outcome.verdicts, outcome.recipe.release.want).task_ids
        verdict = next(
            (v for v in admitted if v.task_id in chosen and "#2" in v.data_source), admitted[0]
        )
        case = next(case for case in outcome.cases if case.task.task_id == verdict.task_id)
        out.print("\nOne of the tasks beside its baselines:\n")
        out.print(certificate(case, verdict))
    out.print(f"\nrelease: {outcome.release}    ({outcome.wall_s:.0f} s)\n")
    example = admitted[0].task_id if admitted else "TASK"
    program, python = _programs()
    out.print("Next:")
    for command in (
        f"{program} show {example}",
        f"{program} admit {recipe} --set admit.trivial_margin=1e6",
        f"""{python} -c "import datasets; print(datasets.load_dataset('{outcome.release}', 'tasks'))\"""",
    ):
        out.print(f"  {command}", soft_wrap=True)


def _programs() -> tuple[str, str]:
    """Return how this user calls opsgen and its Python: by name, or by path from here."""
    here = Path(sys.argv[0])
    if shutil.which("opsgen") or here.name != "opsgen":
        return "opsgen", "python"
    return str(here), str(here.with_name("python"))
