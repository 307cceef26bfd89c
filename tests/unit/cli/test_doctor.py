"""What `opsgen doctor` says of the sandbox."""

from __future__ import annotations

import json

import pytest
from rich.console import Console
from typer.testing import CliRunner

from opsgen.child import Layer
from opsgen.child.layers import NAMES, layer_of
from opsgen.cli.app import app
from opsgen.cli.display import layers_table


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


@pytest.mark.check
def test_the_layers_of_this_machine_stand_in_the_answer() -> None:
    done = CliRunner().invoke(app, ["doctor", "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout.splitlines()[-1])
    assert [layer["name"] for layer in told["sandbox"]] == list(NAMES)
    assert [device["device"] for device in told["devices"]][:1] == ["cpu"]
