"""What `opsgen doctor` says of the sandbox and of GPUs."""

from __future__ import annotations

import json

import pytest
from rich.console import Console
from typer.testing import CliRunner

from opsgen.child import Gpu, Layer, list_gpus
from opsgen.child.layers import NAMES, layer_of
from opsgen.cli.app import app
from opsgen.cli.machine_tables import GpuShare, gpu_shares, gpus_table, layers_table
from opsgen.recipe import FleetConfig


def shown(layers: list[Layer]) -> str:
    console = Console(width=200, record=True, force_terminal=False)
    with console.capture() as capture:
        console.print(layers_table(layers))
    return capture.get()


@pytest.mark.parametrize("gap", NAMES)
def test_a_missing_layer_is_told_in_words(gap: str) -> None:
    layers = [layer_of(name, holds=name != gap, obstacle="refused here") for name in NAMES]
    text = shown(layers)
    (line,) = [line for line in text.splitlines() if line.startswith(gap)]
    assert "no" in line.split()[1]
    assert layer_of(gap, holds=False, obstacle=None).meaning in line
    assert "(refused here)" in line
    is_refused = gap in ("network", "files", "privileges")
    assert ("--allow-unsandboxed" in text) == is_refused
    assert text.count("refused here") == 1


def test_nothing_is_refused_where_all_layers_hold() -> None:
    text = shown([layer_of(name, holds=True, obstacle=None) for name in NAMES])
    assert "allow-unsandboxed" not in text
    assert text.count("yes") == len(NAMES)


def test_gpus_are_told_with_the_cores_that_each_would_get(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = [Gpu(uuid=f"GPU-{n}", name=f"Model {n}", driver="570.1") for n in range(2)]
    monkeypatch.setattr("opsgen.cli.machine_tables.list_gpus", lambda: gpus)
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(16)))
    shares = gpu_shares()
    assert [share.uuid for share in shares] == ["GPU-0", "GPU-1"]
    cores = [core for s in shares for core in (*s.timing_cores, *s.other_cores)]
    assert sorted(cores) == list(range(16))
    assert [len(s.timing_cores) for s in shares] == [FleetConfig().timing_cores] * 2
    apart = [
        GpuShare(
            uuid="GPU-0", name="Model", driver="570.1", timing_cores=(4, 1), other_cores=(2, 8, 9)
        ),
        GpuShare(uuid="GPU-1", name="Model", driver="570.1", timing_cores=(), other_cores=(0,)),
    ]
    console = Console(width=200, record=True, force_terminal=False)
    with console.capture() as capture:
        console.print(gpus_table(apart))
    first, second = capture.get().splitlines()[-2:]
    assert first.split()[:1] == ["GPU-0"]
    assert "570.1" in first
    assert "1, 4" in first
    assert "2, 8-9" in first
    assert second.split()[-2:] == ["none", "0"]


def test_a_machine_without_gpus_shows_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opsgen.cli.machine_tables.list_gpus", list)
    assert gpu_shares() == []


@pytest.mark.check
def test_the_layers_of_this_machine_stand_in_the_answer() -> None:
    done = CliRunner().invoke(app, ["doctor", "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout.splitlines()[-1])
    assert [layer["name"] for layer in told["sandbox"]] == list(NAMES)
    assert [device["device"] for device in told["devices"]][:1] == ["cpu"]
    assert [gpu["uuid"] for gpu in told["gpus"]] == [gpu.uuid for gpu in list_gpus()]
