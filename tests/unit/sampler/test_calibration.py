"""Calibrations: read by name and by path, and recovered from the times that a known one gives."""

from __future__ import annotations

import random
from functools import cache
from math import exp

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opsgen.errors import UsageError
from opsgen.sampler.calibration import (
    Calibration,
    calibration_digest,
    load_calibration,
    render_calibration,
)
from opsgen.sampler.cost import predict_ms, predict_peak_bytes
from opsgen.sampler.fitting import compare_fits, fit_calibration
from opsgen.sampler.points import Point
from opsgen.sampler.resolution import resolve
from opsgen.sampler.trials import ROUGH, Trial, calibration_ops, draw_trials

LAUNCH_MS = 0.004
GOOD = """source = "a test"
launch_ms = 0.01
[bandwidth_gb_s]
default = 8.0
[rate_gflop_s.float32]
default = 4.0
"""


@cache
def trials() -> tuple[Trial, ...]:
    """Return every fourth draw of a GPU, which keeps the shape of the whole."""
    return tuple(draw_trials("cuda", 3, seed=1))[::4]


def planted(rng: random.Random) -> Calibration:
    """Return a calibration that no fit has seen."""

    def some(spread: float) -> float:
        return exp(rng.uniform(-spread, spread))

    base = ROUGH["cuda"]
    kinds = {op.kind.value for op in calibration_ops()}
    return msgspec.structs.replace(
        base,
        launch_ms=LAUNCH_MS,
        bandwidth_gb_s={"default": 1.0} | {kind: 3000 * some(1.0) for kind in sorted(kinds)},
        half_length={"reduction": rng.choice((0.0, 30.0, 300.0)), "scan": rng.choice((0.0, 900.0))},
        ops={op.name: some(1.0) for op in calibration_ops()},
        dtypes={"bfloat16": {"pointwise": some(0.5)}},
        scratch={"softsign": 0.5},
    )


def measured(truth: Calibration, rng: random.Random, noise: float, odd: float) -> list[Point]:
    """Return what a device of these speeds would show, with a share of points far off."""
    points = []
    for trial in trials():
        resolution = resolve(trial.graph, trial.sizes)
        time_ms = predict_ms(trial.graph, resolution, truth) * exp(rng.gauss(0, noise))
        if rng.random() < odd:
            time_ms *= 20
        points.append(
            Point(
                key=trial.key,
                graph=trial.graph,
                sizes=trial.sizes,
                eager_ms=time_ms,
                peak_bytes=predict_peak_bytes(trial.graph, resolution, truth),
            )
        )
    return points


@settings(max_examples=5)
@given(st.integers(0, 2**32))
def test_a_fit_recovers_what_was_planted(seed: int) -> None:
    rng = random.Random(seed)
    truth = planted(rng)
    fitted = fit_calibration(measured(truth, rng, 0.02, 0.0), ROUGH["cuda"], LAUNCH_MS)
    clean = measured(truth, rng, 0.0, 0.0)
    plain = [point for point in clean if "/float32/0" in point.key]
    (overall,) = [fit for fit in compare_fits(plain, ROUGH["cuda"], fitted) if fit.kind == "all"]
    low, middle, high = overall.after
    assert 0.8 < low < 0.99
    assert middle == pytest.approx(1.0, abs=0.03)
    assert 1.01 < high < 1.25
    before_low, _, before_high = overall.before
    assert before_high / before_low > 2 * high / low


def test_odd_points_move_nothing() -> None:
    truth, rng = planted(random.Random(3)), random.Random(4)
    points = [point for point in measured(truth, rng, 0.0, 0.0) if "pointwise" in kind_of(point)]
    worse = [
        msgspec.structs.replace(point, eager_ms=point.eager_ms * 50) if place % 10 == 0 else point
        for place, point in enumerate(points)
        if point.eager_ms
    ]
    clean, spoiled = (fit_calibration(each, ROUGH["cuda"], LAUNCH_MS) for each in (points, worse))
    ratio = spoiled.bandwidth("pointwise") / clean.bandwidth("pointwise")
    assert ratio == pytest.approx(1.0, rel=0.25)


def kind_of(point: Point) -> str:
    return resolve(point.graph, point.sizes).nodes[0].op.kind.value


def test_scratch_and_failures() -> None:
    truth, rng = planted(random.Random(5)), random.Random(6)
    trial = next(each for each in draw_trials("cuda", 1, 0) if each.key.startswith("softsign/"))
    resolution = resolve(trial.graph, trial.sizes)
    point = Point(
        key=trial.key,
        graph=trial.graph,
        sizes=trial.sizes,
        eager_ms=1.0,
        peak_bytes=predict_peak_bytes(trial.graph, resolution, truth),
    )
    failed = msgspec.structs.replace(point, eager_ms=None, peak_bytes=None, failure="crash: died")
    others = measured(truth, rng, 0.0, 0.0)
    fitted = fit_calibration([*others, point, failed], ROUGH["cuda"], LAUNCH_MS)
    assert fitted.scratch["softsign"] == pytest.approx(0.5, abs=0.01)
    assert set(fitted.scratch) == {"softsign"}


def test_draws_are_the_same_everywhere_and_cover_the_catalogue() -> None:
    first, again = (list(draw_trials("cpu", 1, 7)) for _ in range(2))
    assert first == again
    assert len({trial.key for trial in first}) == len(first)
    drawn = {trial.graph.nodes[0].op for trial in first if "/float32/" in trial.key}
    names = {op.name for op in calibration_ops()}
    assert len(drawn & names) > 0.95 * len(names)
    kinds = {kind_of(Point(key="", graph=t.graph, sizes=t.sizes)) for t in first}
    half = {
        kind_of(Point(key="", graph=t.graph, sizes=t.sizes))
        for t in first
        if t.graph.dtype == "bfloat16"
    }
    assert len(kinds - half) <= 1  # transforms have no kernels at half precision


def test_a_table_written_is_the_table_read(tmp_path) -> None:
    table = msgspec.structs.replace(planted(random.Random(1)), name="mine", source='say "H200"')
    path = tmp_path / "mine.toml"
    path.write_text(render_calibration(table, "one\ntwo"))
    read = load_calibration(str(path))
    assert path.read_text().startswith("# one\n# two\n")
    assert read.name == "mine"
    assert read.source == table.source
    for name, factor in table.ops.items():
        assert read.ops[name] == pytest.approx(factor, rel=1e-3)
    assert calibration_digest(str(path)) == calibration_digest(str(path))
    path.write_text(render_calibration(msgspec.structs.replace(table, launch_ms=1.0), ""))
    assert load_calibration(str(path)).launch_ms == 1.0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, ("cannot be read", "No such file")),
        ("launch_ms = [", ("is not TOML",)),
        (GOOD.replace("default = 8.0", "other = 8.0"), ("bandwidth_gb_s", "default")),
        (GOOD.replace("default = 8.0", "default = -8.0"), ("bandwidth_gb_s.default", "> 0")),
        (GOOD.replace("default = 4.0", "default = 'x'"), ("rate_gflop_s.float32.default",)),
        (GOOD.replace("rate_gflop_s.float32", "rate_gflop_s.int8"), ("rate_gflop_s", "float32")),
        (GOOD.replace("0.01", "'fast'"), ("launch_ms",)),
        ("speed = 3\n" + GOOD, ("speed",)),
    ],
)
def test_bad_files(tmp_path, text: str | None, words: tuple[str, ...]) -> None:
    path = tmp_path / "mine.toml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(UsageError) as caught:
        load_calibration(str(path))
    message = str(caught.value)
    assert "\n" not in message
    for word in (str(path), *words):
        assert word in message


def test_names() -> None:
    assert load_calibration("h200").name == "h200"
    with pytest.raises(UsageError, match=r"tpu.*cpu, h200"):
        load_calibration("tpu")
