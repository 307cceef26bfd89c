"""The fleet's benchmark: its arithmetic on made-up attempts, and the whole script on a CPU."""

from __future__ import annotations

import gzip
import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from opsgen.recipe import Recipe
from opsgen.records import (
    Attempt,
    CanaryEvidence,
    DeviceState,
    Environment,
    Estimate,
    Failure,
    Fault,
    Lease,
    MeasureEvidence,
    Task,
    Timing,
)

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
MODULES = ("figures", "faults", "pairs", "records", "rows", "running", "table")


@pytest.fixture(scope="module")
def bench() -> Iterator[SimpleNamespace]:
    """Return the benchmark's modules."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(BENCHMARKS)
        yield SimpleNamespace(**{n: importlib.import_module(f"fleet_{n}") for n in MODULES})


def timing(mode: str, median_ms: float, num: int = 8, num_warmup: int = 2) -> Timing:
    return Timing(
        mode=mode,
        samples_ms=(median_ms,) * num,
        median_ms=median_ms,
        q25_ms=median_ms,
        q75_ms=median_ms,
        ci_ms=(median_ms, median_ms),
        num_warmup=num_warmup,
    )


def evidence(
    eager_ms: float = 10.0, compile_ms: float = 5.0, hold_s: float = 0.5, **more: Any
) -> MeasureEvidence:
    parts_s = more.pop("parts_s", {"autotune": 0.1, "time": 0.15})
    usual = {
        "environment_id": "e",
        "num_graphs": 1,
        "compile_margin": 0.5,
        "compile_s": 2.0,
        "timings": (timing("eager", eager_ms), timing("compile", compile_ms)),
        "lease": Lease(wait_s=1.0, hold_s=hold_s, num_holds=2, parts_s=parts_s),
    }
    return MeasureEvidence(**(usual | more))


def attempt(key: str, outcome: Any, **more: Any) -> Attempt:
    is_fault = isinstance(outcome, Fault)
    usual = {
        "job": "measure",
        "number": 0,
        "host": "h",
        "pid": 1,
        "started_s": 0.0,
        "wall_s": 4.0,
        "fault" if is_fault else "evidence": outcome,
    }
    return Attempt(key=key, **(usual | more))


def loaded(
    bench: Any, name: str, attempts: list[Attempt], wall_s: float = 60.0, **more: Any
) -> Any:
    environment = Environment(
        device="cuda", device_name="G", driver=None, cuda=None, torch="2", triton=None,
        python="3", compiler=None, num_threads=1, num_cores=1, opsgen="0",
    )  # fmt: skip
    usual = {"part": name, "date": "d", "host": "a", "num_gpus": 1, "children": 2, "start_s": 30.0}
    usual |= {"environment": environment, "num_requests": len(attempts), "wall_s": wall_s}
    return bench.rows.Loaded.of(bench.records.RunNote(name=name, **(usual | more)), attempts)


def found_of(bench: Any, *runs: Any, solos: Any = (), gates: Any = ()) -> Any:
    named = {run.note.name: run for run in runs}
    notes = {name: run.note for name, run in named.items()}
    if solos:
        notes["sequential"] = loaded(bench, "sequential", []).note
    return bench.rows.Found(named, list(solos), list(gates), notes)


def table(bench: Any, found: Any) -> dict[tuple[str, str], Any]:
    report = bench.table.make_report(found, "d", "c")
    rows = {(row.part, row.name): row for row in report.rows}
    assert len(rows) == len(report.rows)
    return rows


CRASH = Fault(reason="crash", stage="eager", detail="signal 9")


@pytest.mark.parametrize(
    ("outcome", "why"),
    [
        (evidence(), None),
        (CRASH, "crash"),
        (evidence(num_graphs=2), "2 graphs"),
        (evidence(compile_margin=1.01), "differs"),
        (evidence(compile_margin=None), "differs"),
        (evidence(compile_margin=float("nan")), "differs"),
        (evidence(timings=(timing("eager", 1.0),)), "mode"),
        (
            evidence(
                failure=Failure(
                    criterion="executes", stage="eager", kind="E", message="a\nb", trace=""
                )
            ),
            "eager: E: a",
        ),
    ],
)
def test_what_counts_as_measured(bench: Any, outcome: Any, why: str | None) -> None:
    measured, failed = bench.figures.split_outcomes([attempt("t", outcome)])
    if why is None:
        assert (list(measured), failed) == (["t"], {})
    else:
        assert not measured
        assert why in failed["t"]


def test_a_retry_that_brings_evidence_is_one_measured_task(bench: Any) -> None:
    tries = [attempt("t", CRASH, hold_s=2.0), attempt("t", evidence(), number=1, hold_s=0.4)]
    other = attempt("c", CanaryEvidence(is_right=True, median_ms=1.0), job="canary", hold_s=0.1)
    run = loaded(bench, "first", [*tries, other], wall_s=10.0)
    assert run.rate == pytest.approx(6.0)
    assert run.hold_s == pytest.approx(0.5)
    # The device was held by the killed child, by the canary, and by the second try as it says.
    assert bench.figures.held_s(run.attempts) == pytest.approx(2.0 + 0.5 + 0.1)


def test_necessary_time_is_added_up_by_hand(bench: Any) -> None:
    timings = (timing("eager", 10.0, num=7, num_warmup=2), timing("compile", 4.0, 9, 3))
    tuned = evidence(timings=timings)
    # 9 eager and 12 compiled calls timed, one eager call to compare with, 0.1 s of autotuning.
    assert bench.figures.necessary_s(tuned, is_certified=False) == pytest.approx(0.248)
    assert bench.figures.necessary_s(tuned, is_certified=True) == pytest.approx(0.308)
    untuned = evidence(timings=timings, parts_s={})
    assert bench.figures.necessary_s(untuned, is_certified=False) == pytest.approx(0.152)


def test_parts_of_a_hold_add_up_to_it(bench: Any) -> None:
    parts = bench.figures.parts_ms(
        [
            evidence(hold_s=0.5, parts_s={"time": 0.3, "watch": 0.1}),
            evidence(hold_s=0.3, parts_s={"time": 0.3}),
            evidence(hold_s=0.1, parts_s={"time": 0.1}),
        ]
    )
    assert list(parts) == ["time", "watch", bench.figures.BETWEEN]
    assert parts["time"] == pytest.approx((700 / 3, 300.0))
    assert parts["watch"] == pytest.approx((100 / 3, 0.0))
    assert sum(mean for mean, _ in parts.values()) == pytest.approx(300.0)
    assert bench.table.largest_parts(parts)[0] == "time 233.3 ms (78%)"


def test_seconds_outside_the_lease_exclude_waiting(bench: Any) -> None:
    assert bench.figures.outside_s(attempt("t", evidence())) == pytest.approx(4.0 - 1.0 - 0.5)
    assert bench.figures.outside_s(attempt("t", CRASH)) is None


def test_pairs_with_other_picks_are_kept_apart(bench: Any) -> None:
    left = {"a": evidence(10.0, 5.0, picks=("k 1",)), "b": evidence(10.0, 5.0), "c": evidence()}
    right = {"a": evidence(11.0, 10.0, picks=("k 2",)), "b": evidence(10.0, 5.2), "d": evidence()}
    same, other = bench.figures.differences(left, right, "compile")
    assert same == [(pytest.approx(0.2 / 5.1), "b")]
    assert other == [(pytest.approx(5.0 / 7.5), "a")]
    eager, nothing = bench.figures.differences(left, right, "eager")
    assert eager == [(0.0, "b"), (pytest.approx(1.0 / 10.5), "a")]
    assert nothing == []
    # b has no picks.
    assert bench.figures.count_picks(left, right) == (1, 0)
    assert bench.figures.ratios(left, right, "compile") == pytest.approx([0.5, 5.0 / 5.2])


def test_bounds_hold_at_themselves_and_say_by_how_much_they_are_missed(bench: Any) -> None:
    rows = bench.rows
    assert rows.at_least("p", "n", 150.0, 150.0).verdict == "holds"
    assert rows.at_least("p", "n", 120.0, 150.0).verdict == "short by 20.0 %"
    assert rows.at_most("p", "n", 1.25, 1.25).verdict == "holds"
    assert rows.at_most("p", "n", 1.5, 1.25).verdict == "short by 20.0 %"
    assert rows.at_most("p", "n", None, 1.25).verdict == "not measured"


def test_the_tables_rates_and_shares(bench: Any) -> None:
    first = loaded(bench, "first", [attempt(f"t{i}", evidence()) for i in range(3)], wall_s=1.6)
    slowly = [attempt(f"t0~{i}", evidence(hold_s=0.1)) for i in range(4)]
    slices = loaded(bench, "slice", slowly, wall_s=4.0)
    solo = bench.records.Solo
    times = bench.records.Times(mean_ms=1.0, median_ms=10.1, samples_ms=())
    solos = [
        solo(task_id="t0", wall_s=4.0, times={"eager": times, "compile": times}),
        solo(task_id="t1", wall_s=9.0, failure="E: broken"),
    ]
    found = found_of(bench, first, slices, solos=solos)
    rows = table(bench, found)
    assert rows["first", "tasks a minute"].figure == pytest.approx(112.5)
    assert rows["first", "tasks a minute"].verdict == "short by 25.0 %"
    assert rows["first", "device held, of the wall"].figure == pytest.approx(93.75)
    assert rows["first", "held / necessary"].figure == pytest.approx(0.5 / 0.26)
    assert rows["sequential", "tasks a minute"].figure == pytest.approx(15.0)
    assert rows["slice", "rate / sequential rate, same tasks"].figure == pytest.approx(4.0)
    assert rows["first", "rate / sequential rate, all tasks"].figure == pytest.approx(7.5)
    against = rows["first, sequential", "eager: difference, max"]
    assert against.figure == pytest.approx(100 * 0.1 / 10.05)
    assert against.note == "1 tasks; t0"
    assert rows["slice", "held / necessary"].bound == ""
    failures = bench.table.make_report(found, "d", "c").failures
    assert failures == {"sequential": {"t1": "E: broken"}}


def test_settings_are_put_beside_the_usual_one(bench: Any) -> None:
    runs = {
        "race": (("a 1",), ("b 1",), ()),
        "full": (("a 2",), ("b 1",), ()),
        "full-again": (("a 1",), ("b 2",), ()),
    }
    compile_ms = {"race": 5.0, "full": 4.0, "full-again": 4.2}
    found = found_of(
        bench,
        *(
            loaded(
                bench,
                name,
                [
                    attempt(f"t{i}", evidence(10.0, compile_ms[name], picks=chosen))
                    for i, chosen in enumerate(picks)
                ],
                wall_s=2.0,
            )
            for name, picks in runs.items()
        ),
    )
    rows = table(bench, found)
    assert rows["race", "tasks a minute"].figure == pytest.approx(90.0)
    assert rows["full", "held a task"].figure == pytest.approx(500.0)
    assert rows["full", "held a task"].note == "of it autotuning 100.0 ms"
    assert rows["race, full", "same picks"].figure == pytest.approx(50.0)
    assert rows["race, full", "same picks"].note == "of 2 tasks with picks"
    assert rows["race, full", "compile: ratio, median"].figure == pytest.approx(1.25)
    assert rows["full, full-again", "same picks"].figure == pytest.approx(0.0)
    assert rows["full, full-again", "compile: |ratio - 1|, p95"].figure == pytest.approx(
        100 * (1 - 4.0 / 4.2)
    )
    assert ("preload-on", "tasks a minute") not in rows


def test_two_gpus_are_held_against_twice_the_wall_and_the_first_run(bench: Any) -> None:
    attempts = [attempt(f"t{i}", evidence()) for i in range(8)]
    first = loaded(bench, "first", attempts, wall_s=4.0)
    rows = table(bench, found_of(bench, first))
    assert rows["two", "rate / rate of one GPU"].verdict == ""
    two = loaded(bench, "two", attempts, wall_s=2.0, num_gpus=2, host="b")
    rows = table(bench, found_of(bench, first, two))
    assert rows["two", "device held, of the wall"].figure == pytest.approx(100.0)
    assert rows["two", "rate / rate of one GPU"].figure == pytest.approx(2.0)
    assert rows["two", "rate / rate of one GPU"].note == "on different machines: a, b"
    assert rows["first, two", "eager: difference, p95"].verdict == "holds"


def test_faulty_tasks_their_neighbours_and_the_canary(bench: Any) -> None:
    good = [attempt(f"g{i}", evidence()) for i in range(4)]
    alone = loaded(bench, "faults-alone", good)
    charged = [attempt("g0", CRASH), attempt("g0", evidence(), number=1)]
    sticky = replace(CRASH, reason="cuda_sticky")
    faulty = [attempt("faulty:illegal_access", sticky, number=n, pid=n) for n in range(2)]
    lost = attempt("faulty:hang", evidence())
    canary = attempt("after", CanaryEvidence(is_right=False, median_ms=1.0), job="canary")
    mixed = loaded(bench, "faults", [*charged, *good[1:], *faulty, lost, canary])
    rows = table(bench, found_of(bench, alone, mixed))
    illegal = rows["faults", "illegal_access: ends in"]
    assert (illegal.bound, illegal.verdict) == ("cuda_sticky", "holds")
    assert illegal.note == "cuda_sticky; 2 attempts in 2 processes"
    assert rows["faults", "hang: ends in"].verdict == "differs"
    assert rows["faults", "neighbours measured at once"].figure == pytest.approx(75.0)
    assert rows["faults", "canary after"].verdict == "differs"


def test_many_failures_are_counted_and_the_first_named(bench: Any) -> None:
    long = replace(CRASH, detail="x" * 1000)
    run = loaded(bench, "first", [attempt(f"t{i}", long) for i in range(300)])
    failures = bench.table.make_report(found_of(bench, run), "d", "c").failures["first"]
    assert "t0" in failures
    assert failures["further"] == f"{300 - (len(failures) - 1)} tasks"
    assert len(json.dumps(failures)) < 20_000
    assert table(bench, found_of(bench, run))["first", "tasks a minute"].figure == 0.0


def test_states_are_summed_up(bench: Any) -> None:
    states = [
        DeviceState(sm_mhz=1980, temperature_c=40),
        DeviceState(sm_mhz=1500, temperature_c=60, throttle=("sw_power_cap",)),
        DeviceState(sm_mhz=1700, temperature_c=50, throttle=("sw_power_cap", "hw_slowdown")),
        None,
    ]
    summary = bench.figures.summarize_states([evidence(state=state) for state in states])
    assert (summary.num, summary.sm_mhz) == (3, (1500.0, 1700.0, 1980.0))
    assert summary.temperature_c == (40.0, 50.0, 60.0)
    assert summary.throttle == {"sw_power_cap": 2, "hw_slowdown": 1}


def test_a_slice_is_spread_over_all_predicted_times(bench: Any) -> None:
    tasks = [
        Task(
            task_id=f"t{i}", data_source="torch#1", line=i, level=1, ops=(), code="", workloads=(),
            family="f",
            estimate=Estimate(
                eager_ms=float(i * 37 % 100), traffic_bytes=1, flops=1, peak_bytes=1, num_terms=1
            ),
        )
        for i in range(100)
    ]  # fmt: skip
    times = [task.estimate.eager_ms for task in bench.running.spread_evenly(tasks, 4)]
    assert times == [12.0, 37.0, 62.0, 87.0]
    assert len(bench.running.spread_evenly(tasks[:3], 4)) == 3
    cheap = bench.running.cheapest(tasks, 2)
    assert [task.estimate.eager_ms for task in cheap] == [0.0, 1.0]
    few = bench.running.Bench(Recipe(name="n", seed=0), "cpu", 2, {"all": tasks}, cheap)
    assert few.config(0).timing_cores == 0
    assert few.config().retimed == 0.0
    warming = dict(few.warming(bench.running.Setup("s", num_gpus=2)))
    assert len(warming) == 8


def test_faulty_requests_are_spread_among_good_ones(bench: Any) -> None:
    order = list(bench.faults.mix([("g", 0)] * 4, [("f0", 0), ("f1", 0)]))
    assert [key for key, _ in order] == ["g", "g", "f0", "g", "g", "f1"]
    crowded = list(bench.faults.mix([("g", 0)] * 2, [(f"f{i}", 0) for i in range(5)]))
    assert [key for key, _ in crowded] == ["g", "f0", "f1", "g", "f2", "f3", "f4"]


@pytest.mark.check
def test_the_whole_script_runs_here_and_goes_on_where_it_was_cut(tmp_path: Path) -> None:
    def run(parts: str) -> str:
        words = [sys.executable, BENCHMARKS / "fleet.py", "--out", tmp_path / "out"]
        words += ["--recipe", "pipelines/quickstart.toml", "--device", "cpu", "--parts", parts]
        words += ["--set", "sample.target_ms=[0.3, 1.0]", "--set", "measure.max_s_per_mode=0.02"]
        words += ["--num", "2", "--children", "1", "--slice", "1", "--trials", "4"]
        root = BENCHMARKS.parents[1]
        ended = subprocess.run(
            list(map(str, words)), capture_output=True, text=True, check=False, cwd=root
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout

    run("sequential")
    shown = run("sequential,first")
    assert "sequential: there already" in shown
    report = json.loads((tmp_path / "out" / "fleet.json").read_bytes())
    rows = {(row["part"], row["name"]): row["figure"] for row in report["rows"]}
    note = report["runs"]["first"]
    lines = gzip.decompress((tmp_path / "out" / "first.jsonl.gz").read_bytes()).splitlines()
    keys = {json.loads(line)["key"] for line in lines}
    assert len(keys) == note["num_requests"] >= 2
    num_measured = len(keys) - len(report["failures"].get("first", {}))
    assert rows["first", "tasks a minute"] == pytest.approx(60 * num_measured / note["wall_s"])
    assert rows["sequential", "tasks a minute"] > 0
    assert str(tmp_path) not in json.dumps(report)
