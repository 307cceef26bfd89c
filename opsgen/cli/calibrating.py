"""The command that measures how fast a device is."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from opsgen.cli.display import console
from opsgen.cli.options import AsJson
from opsgen.errors import UsageError
from opsgen.fleet import Fleet
from opsgen.recipe import FleetConfig
from opsgen.records import encode_line
from opsgen.run.calibrating import Calibrated, Settings, measure_and_fit, write_calibration
from opsgen.sampler.fitting import KindFit

# Building one op while another is timed; more children would only wait for the device.
_CHILDREN = {"cpu": 1, "cuda": 3}
_NUM_FAILURES_SHOWN = 8


def calibrate(
    device: Annotated[str, typer.Option("--device", help="cpu or cuda.")] = "cpu",
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE.toml", help="Where the calibration goes."),
    ] = None,
    minutes: Annotated[
        float, typer.Option("--minutes", min=0.05, help="When to stop measuring.")
    ] = 4.0,
    num_sizes: Annotated[int, typer.Option("--sizes", min=1, max=9, help="Sizes of each op.")] = 3,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the draws.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Measure the ops on a device and fit the cost model to it: `sample.calibration` of a recipe.

    The points are kept beside the calibration, in FILE.jsonl: the same command resumes.
    """
    if device not in _CHILDREN:
        raise UsageError(f"--device {device}: is neither cpu nor cuda")
    out = out or Path(f"{device}-measured.toml")
    if out.suffix != ".toml":
        raise UsageError(f"--out {out}: must end in .toml")
    settings = Settings(device=device, num_sizes=num_sizes, max_s=60 * minutes, seed=seed)
    with Fleet(FleetConfig(children_per_device=_CHILDREN[device]), device) as fleet:
        found = measure_and_fit(fleet, settings, out.with_suffix(".jsonl"))
    command = f"opsgen calibrate --device {device} --sizes {num_sizes} --seed {seed}"
    write_calibration(out, found, f"Fitted by `{command}` to {found.fits[-1].num_points} points.")
    if as_json:
        print(encode_line(found).decode())
        return
    _print(found, out)


def _print(found: Calibrated, out: Path) -> None:
    console().print(fits_table(found.fits))
    for key, why in list(found.failures.items())[:_NUM_FAILURES_SHOWN]:
        print(f"not measured: {key}: {why}", file=sys.stderr)
    more = len(found.failures) - _NUM_FAILURES_SHOWN
    if more > 0:
        print(f"not measured: {more} more", file=sys.stderr)
    if found.num_left:
        print(f"no time for {found.num_left} points: the same command goes on", file=sys.stderr)
    print(f'wrote {out}; a recipe uses it by sample.calibration = "{out}"')


def fits_table(fits: tuple[KindFit, ...]) -> Table:
    """Return predicted over measured time by kind, before and after the fit."""
    table = Table(title="Predicted / measured", title_justify="left", box=None, pad_edge=False)
    for name in ("kind", "dtype"):
        table.add_column(name)
    for name in ("points", "before", "p10", "p90", "after", "p10", "p90"):
        table.add_column(name, justify="right")
    for fit in fits:
        ratios = [
            f"{value:.3g}"
            for low, middle, high in (fit.before, fit.after)
            for value in (middle, low, high)
        ]
        table.add_row(fit.kind, fit.dtype, str(fit.num_points), *ratios)
    return table
