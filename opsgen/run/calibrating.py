"""Calibration: single ops measured on a device, and the speeds that follow from them.

Points are kept in a file, a line each as they come, so that the same command
resumes after any end, and a changed fit needs no device.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from opsgen.errors import UsageError
from opsgen.fleet import Fleet, Journal, Ledger, Progress
from opsgen.records import (
    Attempt,
    CalibrateEvidence,
    CalibrateRequest,
    Environment,
    EnvironmentRequest,
    Record,
    Request,
    encode_line,
    end_of_whole_lines,
    read_lines,
)
from opsgen.render import render_source
from opsgen.sampler.calibration import Calibration, render_calibration
from opsgen.sampler.fitting import KindFit, compare_fits, fit_calibration
from opsgen.sampler.points import Point
from opsgen.sampler.trials import ROUGH, Trial, draw_trials

LAUNCH_KEY = "launch"
"""Key of the request that times a call which does next to nothing."""

_LAUNCH_CODE = """import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x + 1


def get_inputs():
    return [torch.rand(1)]


def get_init_inputs():
    return []
"""
_MAX_S = {"cpu": 0.03, "cuda": 0.03}


class Measured(Record, frozen=True, kw_only=True):
    """One line of a file of points."""

    launch_ms: float | None = None
    """Of a call that does next to nothing; absent on lines of points."""
    point: Point | None = None
    """One op; absent on the line of the launch."""


class Settings(Record, frozen=True, kw_only=True):
    """What to measure and for how long."""

    device: str = "cpu"
    """`cpu` or `cuda`."""
    num_sizes: int = 3
    """Sizes of each op in float32."""
    max_s: float = 240.0
    """Seconds after which no further op is begun."""
    seed: int = 0
    """Seed of the draws."""


class Calibrated(Record, frozen=True, kw_only=True):
    """What a calibration brought."""

    calibration: Calibration
    """The fitted speeds."""
    fits: tuple[KindFit, ...]
    """How well they predict the points they were fitted to."""
    failures: dict[str, str]
    """Ops that could not be measured, by their key, and why."""
    num_left: int
    """Ops that there was no time for."""


def measure_and_fit(fleet: Fleet, settings: Settings, points_path: Path) -> Calibrated:
    """Measure what a file of points lacks, and fit a calibration to all that it holds.

    Args:
        fleet: Where it is measured.
        settings: What is measured.
        points_path: The file, which may not exist yet. Only one process may write to it.

    Raises:
        UsageError: The machine has no such device, or nothing could be measured.
    """
    environment = fleet.ask(EnvironmentRequest(device=settings.device))
    assert isinstance(environment, Environment)
    known = {line.point.key: line for line in read_lines(points_path, Measured) if line.point}
    trials = {
        trial.key: trial
        for trial in draw_trials(settings.device, settings.num_sizes, settings.seed)
    }
    missing = [trial for key, trial in trials.items() if key not in known]
    if missing:
        points_path.parent.mkdir(parents=True, exist_ok=True)
        points_path.touch()
        with points_path.open("r+b") as file:
            file.seek(end_of_whole_lines(points_path))
            file.truncate()
            for line in _measure(fleet, settings, missing):
                file.write(encode_line(line) + b"\n")
                file.flush()
    lines = list(read_lines(points_path, Measured))
    return _fitted(lines, settings, _origin(environment), set(trials))


def _measure(fleet: Fleet, settings: Settings, trials: list[Trial]) -> Iterator[Measured]:
    """Yield a line for each trial that comes to an end within the time there is."""
    by_key = {trial.key: trial for trial in trials}
    give_up_s = time.monotonic() + settings.max_s

    def requests() -> Iterator[tuple[str, Request]]:
        yield LAUNCH_KEY, _request(_LAUNCH_CODE, settings)
        for trial in trials:
            if time.monotonic() > give_up_s:
                return
            yield trial.key, _request(render_source(trial.graph, trial.sizes), settings)

    ledger = Ledger()
    with (
        tempfile.TemporaryDirectory(prefix="opsgen-calibrate-") as folder,
        Journal(Path(folder) / "journal.jsonl") as journal,
        Progress(len(trials) + 1, "calibrate", num_devices=fleet.num_devices) as bar,
    ):
        for attempt in fleet.run(requests(), journal):
            if ledger.add(attempt):
                line = _line(attempt, by_key)
                bar.update("ok" if line.point is None or not line.point.failure else "failed")
                yield line


def _request(code: str, settings: Settings) -> CalibrateRequest:
    return CalibrateRequest(
        code=code, device=settings.device, max_s=_MAX_S[settings.device], seed=settings.seed
    )


def _line(attempt: Attempt, trials: dict[str, Trial]) -> Measured:
    evidence = attempt.evidence
    failure = why_failed(attempt)
    if attempt.key == LAUNCH_KEY:
        measured_ms = evidence.eager_ms if isinstance(evidence, CalibrateEvidence) else None
        return Measured(launch_ms=measured_ms)
    trial = trials[attempt.key]
    point = Point(key=trial.key, graph=trial.graph, sizes=trial.sizes, failure=failure)
    if isinstance(evidence, CalibrateEvidence) and failure is None:
        point = msgspec.structs.replace(
            point, eager_ms=evidence.eager_ms, peak_bytes=evidence.peak_bytes
        )
    return Measured(point=point)


def why_failed(attempt: Attempt) -> str | None:
    """Return in a line why an attempt at a calibration job brought no time; None if it did."""
    if attempt.fault is not None:
        return f"{attempt.fault.reason}: {attempt.fault.detail}"
    if isinstance(attempt.evidence, CalibrateEvidence) and attempt.evidence.failure is not None:
        failure = attempt.evidence.failure
        return f"{failure.stage}: {failure.kind}: {failure.message.partition(chr(10))[0]}"
    return None


def _fitted(lines: list[Measured], settings: Settings, origin: str, wanted: set[str]) -> Calibrated:
    points = [line.point for line in lines if line.point is not None]
    launches = [line.launch_ms for line in lines if line.launch_ms is not None]
    base = ROUGH[settings.device]
    if not any(point.eager_ms for point in points):
        raise UsageError("calibrate: nothing could be measured in the time there was")
    base = msgspec.structs.replace(base, name=settings.device, source=origin)
    launch_ms = min(launches, default=base.launch_ms)
    fitted = fit_calibration(points, base, launch_ms)
    return Calibrated(
        calibration=fitted,
        fits=compare_fits(points, ROUGH[settings.device], fitted),
        failures={point.key: point.failure for point in points if point.failure},
        num_left=len(wanted - {point.key for point in points}),
    )


def _origin(environment: Environment) -> str:
    date = time.strftime("%Y-%m-%d", time.gmtime())
    threads = "" if environment.device == "cuda" else f", threads: {environment.num_threads}"
    return f"{environment.device_name}, torch {environment.torch}{threads}, {date}"


def write_calibration(path: Path, calibrated: Calibrated, comment: str) -> None:
    """Write a fitted calibration as TOML, whole or not at all.

    Raises:
        OSError: The disk is full, or the folder closed to this user.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.draft")
    draft.write_text(render_calibration(calibrated.calibration, comment), encoding="utf-8")
    draft.replace(path)
