"""Calibration end to end on this machine, with a handful of ops."""

from __future__ import annotations

import pytest

from opsgen.errors import UsageError
from opsgen.fleet import Fleet
from opsgen.recipe import FleetConfig
from opsgen.records import read_lines
from opsgen.run import calibrating
from opsgen.run.calibrating import Measured, Settings, measure_and_fit, write_calibration
from opsgen.sampler.calibration import load_calibration
from opsgen.sampler.trials import Trial, draw_trials

OPS = ("relu", "sum", "softmax")


@pytest.fixture
def few(monkeypatch) -> list[Trial]:
    """Leave few ops to measure, the last of which cannot be rendered into code that runs."""
    chosen = [
        trial
        for trial in draw_trials("cpu", 1, 0)
        if trial.key.split("/")[0] in OPS and trial.key.count("/") == 2
        if trial.graph.dtype == "float32"
    ]
    broken = Trial("broken/float32/0.500", chosen[0].graph, chosen[0].sizes)
    trials = [*chosen, broken]

    def render(graph, sizes) -> str:
        rendered.append(sizes)
        code = render_source(graph, sizes)
        is_broken = len(rendered) == len(trials)
        return (
            code.replace("def get_inputs():\n", "def get_inputs():\n    0 / 0\n")
            if is_broken
            else code
        )

    rendered: list[dict[str, int]] = []
    render_source = calibrating.render_source
    monkeypatch.setattr(calibrating, "render_source", render)
    monkeypatch.setattr(calibrating, "draw_trials", lambda device, num_sizes, seed: iter(trials))
    return trials


@pytest.fixture
def fleet():
    with Fleet(FleetConfig(children_per_device=1), "cpu") as opened:
        yield opened


def test_measured_fitted_written_and_resumed(few, fleet, tmp_path) -> None:
    path = tmp_path / "points.jsonl"
    path.write_bytes(b'{"point": torn')  # a cut run
    found = measure_and_fit(fleet, Settings(device="cpu"), path)
    assert list(found.failures) == ["broken/float32/0.500"]
    assert "ZeroDivisionError" in found.failures["broken/float32/0.500"]
    assert found.num_left == 0
    (overall,) = [fit for fit in found.fits if fit.kind == "all"]
    assert overall.num_points == len(OPS)
    assert overall.after[1] == pytest.approx(1.0, abs=0.05)
    lines = list(read_lines(path, Measured))
    assert sum(line.launch_ms is not None for line in lines) == 1
    assert {line.point.key for line in lines if line.point} == {trial.key for trial in few}

    out = tmp_path / "mine.toml"
    write_calibration(out, found, "a comment")
    assert load_calibration(str(out)).ops.keys() == found.calibration.ops.keys()

    before = path.read_bytes()
    again = measure_and_fit(fleet, Settings(device="cpu"), path)
    assert path.read_bytes() == before
    assert again.calibration == found.calibration


def test_no_time_is_a_mistake(few, fleet, tmp_path) -> None:
    with pytest.raises(UsageError, match="nothing could be measured"):
        measure_and_fit(fleet, Settings(device="cpu", max_s=-1.0), tmp_path / "points.jsonl")
