"""The fleet on real devices: how fast it measures, how exactly, and where a hold of the device goes.

Run: python tests/benchmarks/fleet.py --out DIR --device cuda [--parts first,second,...]

Tasks come straight from the plan of a recipe, classes in proportion. Parts are
run one after the other; one that DIR holds already is skipped, so the command
can be cut at any time and given again. The last thing printed is the table of
all figures that DIR gives, which `DIR/fleet.json` holds as well; attempts stand
beside it, a file a run (data/fleet/README.md).

`sequential` is a protocol without a fleet, on a slice of the tasks; `slice` the
fleet on the same; `first` and `second` are independent runs over all tasks,
baselines alone; `certified` with all checks. `autotuning`, `preload` and
`cores` (together `ablations`) switch one thing off each; `gate` compares ways
to compile, `faults` mixes in tasks that break devices, `two` uses two GPUs.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from fleet_faults import FAULTS, FAULTY_TASKS, run_faults
from fleet_records import TASKS, WARM, Alone, Report, RunNote, Store
from fleet_rows import Found
from fleet_running import (
    PARTS,
    WARM_PER_CHILD,
    Bench,
    cheapest,
    host_id,
    now,
    run_setup,
    spread_evenly,
    visible,
)
from fleet_table import make_report, print_report
from sizing import sample_tasks

from opsgen.child import list_gpus
from opsgen.errors import MeasureError, UsageError
from opsgen.recipe import Recipe, read_recipe
from opsgen.records import Attempt, decode_line

ALONE = ("sequential", "gate")
ABLATIONS = ("autotuning", "preload", "cores")
ORDER = (
    *("sequential", "slice", "first", "second", "certified"),
    *ABLATIONS,
    *("gate", FAULTS, "two"),
)
NUM_SPARE = 40
"""Further tasks sampled for warming, beyond those that are used: the cheapest are taken."""


def main() -> int:
    """Run what is left of the parts and print the table."""
    options = _options()
    try:
        recipe = read_recipe(Path(options.recipe), tuple(options.set))
        store = Store(Path(options.out))
        _prepare(store, recipe, options)
    except UsageError as error:
        print(f"fleet: {error}", file=sys.stderr)
        return 2
    if options.only_sample:
        return 0
    if options.device == "cuda" and not list_gpus():
        print("fleet: this machine shows no GPU", file=sys.stderr)
        return 2
    is_whole = True
    begin_s = time.monotonic()
    bench = _bench(store, recipe, options)
    for part in options.parts:
        if time.monotonic() - begin_s > 60 * options.minutes:
            print(f"{part}: left for the next time", flush=True)
            continue
        is_whole &= _run_part(part, store, bench, options)
        store.write_report(_report(store))
    print_report(_report(store))
    return 0 if is_whole else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", required=True, metavar="DIR")
    parser.add_argument("--recipe", default="pipelines/ops6k.toml")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--parts", type=_part_names, default=ORDER, metavar="PART,...")
    parser.add_argument("--num", type=int, default=300, help="tasks")
    parser.add_argument("--children", type=int, default=14, help="on each device")
    parser.add_argument("--slice", type=int, default=12, help="tasks of the sequential protocol")
    parser.add_argument("--ablation-num", type=int, default=100, help="tasks of each ablation")
    parser.add_argument("--gate-num", type=int, default=24, help="tasks of the gate")
    parser.add_argument("--trials", type=int, default=100, help="of the sequential protocol")
    parser.add_argument("--minutes", type=float, default=60.0, help="begin no part after that")
    parser.add_argument(
        "--only-sample", action="store_true", help="sample the tasks, hold no device"
    )
    return parser.parse_args()


def _part_names(text: str) -> tuple[str, ...]:
    wanted: list[str] = []
    for name in text.split(","):
        if name != "ablations" and name not in ORDER:
            raise argparse.ArgumentTypeError(f"no part {name!r}; there are {', '.join(ORDER)}")
        wanted += ABLATIONS if name == "ablations" else (name,)
    return tuple(dict.fromkeys(wanted))


def _report(store: Store) -> Report:
    words = " ".join(["python", "tests/benchmarks/fleet.py", *sys.argv[1:]])
    command = words.replace(str(store.folder), "DIR")
    return make_report(Found.read(store, len(list_gpus())), now(), command)


def _prepare(store: Store, recipe: Recipe, options: argparse.Namespace) -> None:
    """Sample tasks, unless the folder holds some: all its parts are about the same."""
    if store.has_tasks():
        print(f"{len(store.tasks())} tasks there already", flush=True)
        return
    num_warm = WARM_PER_CHILD * options.children
    sampled = sample_tasks(recipe, options.num + num_warm + NUM_SPARE)
    tasks = sample_tasks(recipe, options.num)
    known = {task.task_id for task in tasks}
    store.write_lines(WARM, cheapest((t for t in sampled if t.task_id not in known), num_warm))
    store.write_lines(TASKS, tasks)
    print(f"{len(tasks)} tasks sampled", flush=True)


def _bench(store: Store, recipe: Recipe, options: argparse.Namespace) -> Bench:
    tasks = store.tasks()
    return Bench(
        recipe=recipe,
        device=options.device,
        children=options.children,
        tasks={
            "all": tasks,
            "slice": spread_evenly(tasks, options.slice),
            "ablation": tasks[: options.ablation_num],
            "gate": spread_evenly(tasks, options.gate_num),
        },
        warm=store.tasks(WARM),
    )


def _run_part(part: str, store: Store, bench: Bench, options: argparse.Namespace) -> bool:
    """Run a part, unless it is there; False if it broke off."""
    if _is_there(part, store):
        print(f"{part}: there already", flush=True)
        return True
    why_not = _why_not(part)
    if why_not is not None:
        print(f"{part}: {why_not}", flush=True)
        return True
    print(f"{part}: begun {now()}", flush=True)
    try:
        if part in ALONE:
            _run_alone(part, store, bench, options)
        elif part == FAULTS:
            _keep(run_faults(bench), store)
        else:
            _keep([run_setup(setup, part, bench) for setup in PARTS[part]], store)
    except (MeasureError, subprocess.CalledProcessError) as error:
        print(f"{part}: broke off: {error}", flush=True)
        return False
    return True


def _why_not(part: str) -> str | None:
    """Return why a part cannot be run here; None if it can."""
    if part == "two" and len(list_gpus()) < 2:
        return "one GPU"
    if part == FAULTS and not FAULTY_TASKS.exists():
        return f"there is no {FAULTY_TASKS}"
    return None


def _keep(runs: list[tuple[RunNote, list[Attempt]]], store: Store) -> None:
    """Keep the runs of a part, which are compared with each other: all of them or none."""
    for note, attempts in runs:
        store.write_lines(note.name, attempts)
        store.add(note)


def _is_there(part: str, store: Store) -> bool:
    names = [setup.name for setup in PARTS[part]] if part in PARTS else [part]
    return all(name in store.runs for name in names)


def _run_alone(part: str, store: Store, bench: Bench, options: argparse.Namespace) -> None:
    """Run what needs a process of its own, with caches that are empty."""
    tasks = bench.tasks["slice" if part == "sequential" else "gate"]
    with tempfile.TemporaryDirectory(prefix="opsgen-fleet-benchmark-") as name:
        folder = Path(name)
        given = Store(folder)
        given.write_lines(TASKS, tasks)
        given.write_lines(WARM, bench.warm)
        out = folder / "alone.json"
        caches = {
            "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
            "TRITON_CACHE_DIR": str(folder / "triton"),
        }
        script = Path(__file__).with_name("fleet_alone.py")
        inputs = (part, folder / f"{TASKS}.jsonl.gz", folder / f"{WARM}.jsonl.gz", out)
        settings = {
            "--device": bench.device,
            "--trials": options.trials,
            "--max-s": bench.recipe.measure.max_s_per_mode,
            "--seed": bench.recipe.seed,
        }
        words = [*inputs, *(word for pair in settings.items() for word in pair)]
        with visible(bench.device, 1, caches):
            subprocess.run([sys.executable, script, *map(str, words)], check=True, env=os.environ)
        alone = decode_line(out.read_bytes(), Alone)
    store.write_lines(part, alone.solos or alone.gates)
    store.add(
        RunNote(
            name=part,
            part=part,
            date=now(),
            host=host_id(),
            environment=alone.environment,
            num_gpus=1,
            children=0,
            num_requests=len(tasks),
            start_s=alone.start_s,
            wall_s=alone.wall_s,
        )
    )


if __name__ == "__main__":
    sys.exit(main())
