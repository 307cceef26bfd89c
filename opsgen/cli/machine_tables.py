"""What a person sees of a machine: what it can measure on, its GPUs, how it shuts code in."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from opsgen.child import Layer, list_gpus, share_of
from opsgen.recipe import FleetConfig
from opsgen.records import Environment, Record


def environment_table(environment: Environment) -> Table:
    """Return what a machine is and what it lacks."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_row("device", f"{environment.device}: {environment.device_name}")
    for name in ("driver", "cuda", "torch", "triton", "python", "compiler", "num_cores"):
        value = getattr(environment, name)
        table.add_row(name.removeprefix("num_"), "none" if value is None else str(value))
    for problem in environment.problems:
        table.add_row(Text("lacking", "red"), Text(problem, "red"))
    if not environment.problems:
        table.add_row(Text("ready", "green"), f"can measure on {environment.device}")
    return table


class GpuShare(Record, frozen=True, kw_only=True):
    """One GPU of this machine, and what of its cores a fleet would give to it."""

    uuid: str
    """NVML's UUID."""
    name: str
    """Model."""
    driver: str
    """Driver version."""
    timing_cores: tuple[int, ...]
    """Cores for whoever holds the GPU, under the default recipe."""
    other_cores: tuple[int, ...]
    """Cores for compiling and all else; empty where it shares what there is."""


def gpu_shares() -> list[GpuShare]:
    """Return the GPUs that NVML shows this process, with the cores that a fleet gives to each."""
    gpus = list_gpus()
    uuids = [gpu.uuid for gpu in gpus]
    cores = [share_of(uuid, uuids, FleetConfig().timing_cores) for uuid in uuids]
    return [
        GpuShare(
            uuid=gpu.uuid,
            name=gpu.name,
            driver=gpu.driver,
            timing_cores=share.timing,
            other_cores=share.rest,
        )
        for gpu, share in zip(gpus, cores, strict=True)
    ]


def gpus_table(gpus: Sequence[GpuShare]) -> Table:
    """Return the GPUs that NVML shows, with the cores that each would have."""
    table = Table(title="GPUs", title_justify="left", box=None, pad_edge=False)
    for heading in ("uuid", "name", "driver", "timing cores", "other cores"):
        table.add_column(heading, overflow="fold")
    for gpu in gpus:
        cores = [_ranges(each) for each in (gpu.timing_cores, gpu.other_cores)]
        table.add_row(gpu.uuid, gpu.name, gpu.driver, *cores)
    return table


def _ranges(cores: Sequence[int]) -> str:
    """Return cores with the runs among them written short: `0-3, 8`."""
    runs: list[list[int]] = []
    for core in sorted(cores):
        if runs and core == runs[-1][-1] + 1:
            runs[-1].append(core)
        else:
            runs.append([core])
    return ", ".join(str(r[0]) if len(r) == 1 else f"{r[0]}-{r[-1]}" for r in runs) or "none"


def layers_table(layers: Sequence[Layer]) -> Table:
    """Return what keeps foreign code in on this machine, and what a missing layer means."""
    table = Table(title="Sandbox for foreign code", title_justify="left", box=None, pad_edge=False)
    for heading in ("layer", "holds", ""):
        table.add_column(heading)
    for layer in layers:
        if layer.holds:
            state = Text("yes", "green")
        else:
            state = Text("no, required" if layer.is_required else "no", "red")
        why = f" ({layer.obstacle})" if layer.obstacle else ""
        table.add_row(layer.name, state, f"{layer.meaning}{why}")
    missing = [layer.name for layer in layers if layer.is_required and not layer.holds]
    if missing:
        verdict = f"Foreign code is refused for want of: {', '.join(missing)}."
        table.add_row("", Text("refused", "red"), f"{verdict} --allow-unsandboxed runs it anyway.")
    return table
