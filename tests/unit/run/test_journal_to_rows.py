"""Journal to records to Parquet to records is the identity, NaN and infinities included."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from opsgen.admit import Case, admit_all
from opsgen.fleet import Journal
from opsgen.recipe import Recipe
from opsgen.records import (
    Attempt,
    DeviceState,
    Environment,
    Graph,
    Status,
    Task,
    Workload,
    decode_line,
    encode_line,
    read_lines,
)
from opsgen.release import CONFIGS, TaskRow, build_rows, read_rows, write_rows
from opsgen.run import join_cases, measure_key
from opsgen.testing import environments, plans, sound_cases


def attempts_of(case: Case, environment: Environment) -> list[Attempt]:
    found = []
    for job, key, evidence, faults in (
        ("probe", case.task.task_id, case.probe, case.probe_faults),
        ("measure", measure_key(case.task, environment), case.measure, case.measure_faults),
    ):
        contents: list[dict[str, object]] = [{"fault": fault} for fault in faults]
        contents += [{"evidence": evidence}] if evidence else []
        found += [
            Attempt(
                job=job, key=key, number=n, host="h", pid=1, started_s=0.5, wall_s=1.5, **content
            )  # type: ignore[arg-type]
            for n, content in enumerate(contents)
        ]
    return found


@given(st.one_of(plans(), plans(is_sound=True)), environments())
def test_the_whole_chain_is_the_identity(plan: list[Case], environment: Environment) -> None:
    recipe = Recipe(name="chain", seed=3)
    by_id = {case.task.task_id: case for case in plan}
    cases = list(by_id.values())
    with TemporaryDirectory() as folder:
        attempts = [each for case in cases for each in attempts_of(case, environment)]
        with Journal(Path(folder) / "journal.jsonl") as journal:
            for attempt in attempts:
                journal.append(attempt)
        again = list(read_lines(journal.path, Attempt))
        assert repr(again) == repr(attempts)
        joined = join_cases([case.task for case in cases], again, environment)
        for case, back in zip(cases, joined, strict=True):
            assert repr(back.probe) == repr(case.probe)
            assert repr(back.measure) == repr(case.measure)
            assert repr(back.measure_faults) == repr(case.measure_faults)
        verdicts = admit_all(joined, recipe)
        chosen = frozenset(v.task_id for v in verdicts if v.status is Status.ADMITTED)
        known = {case.measure.environment_id: environment for case in joined if case.measure}
        rows = build_rows(joined, verdicts, chosen, recipe, known)
        for name, kind in CONFIGS.items():
            path = Path(folder) / f"{name}.parquet"
            write_rows(path, getattr(rows, name), kind)
            back_rows = read_rows(path, kind)
            assert [encode_line(row) for row in back_rows] == [
                encode_line(row) for row in getattr(rows, name)
            ]
        for row in read_rows(Path(folder) / "tasks.parquet", TaskRow):
            assert_tells_all(row, by_id[row.task_id].task)


@given(sound_cases(), environments())
def test_what_a_gpu_tells_stands_in_its_rows(case: Case, environment: Environment) -> None:
    assert case.measure is not None
    eager, compiled = case.measure.timings
    high = msgspec.structs.replace(eager, mode="eager_high", num_overtaken=2)
    measure = msgspec.structs.replace(
        case.measure,
        timings=(eager, compiled, high),
        picks=("triton_red_fused_0 XBLOCK=8 num_warps=4",),
        precision={"matmul": "ieee", "conv": "tf32"},
        state=DeviceState(sm_mhz=1980, temperature_c=54, throttle=("sw_power_cap",)),
    )
    case = msgspec.structs.replace(case, measure=measure)
    recipe = Recipe(name="rows", seed=3)
    verdicts = admit_all([case], recipe)
    chosen = frozenset({case.task.task_id})
    known = {measure.environment_id: environment}
    overtaken = {timing.mode: timing.num_overtaken for timing in measure.timings}
    by_mode = {
        row.mode: row for row in build_rows([case], verdicts, chosen, recipe, known).measurements
    }
    assert by_mode.keys() == {"eager", "compile", "eager_high"}
    for mode, row in by_mode.items():
        # What is known of the default compile says nothing of the other modes.
        assert (row.compile_s is not None) == (mode == "compile")
        assert row.picks == (measure.picks if mode == "compile" else ())
        assert row.num_overtaken == overtaken[mode]
        least = measure.speed_of_light
        assert row.speed_of_light_ms == (least.time_ms if least else None)
        assert json.loads(row.precision) == measure.precision
        assert (row.sm_mhz, row.memory_mhz, row.temperature_c) == (1980, None, 54)
        assert row.throttle == ("sw_power_cap",)


def assert_tells_all(row: TaskRow, task: Task) -> None:
    """A row holds all that its task is, so that a reader can rebuild it."""
    graph = decode_line(row.graph, Graph) if row.graph else None
    assert graph == task.graph
    assert decode_line(row.workloads, tuple[Workload, ...]) == task.workloads
    named = (row.ops,) if row.data_source == "transformers" else tuple(json.loads(row.ops))
    rebuilt = Task(
        task_id=row.task_id,
        data_source=row.data_source,
        line=row.line,
        level=row.level,
        ops=named,
        code=row.code,
        workloads=task.workloads,
        graph=graph,
        graph_hash=row.graph_hash,
        family=row.family,
        stratum=row.stratum,
        estimate=task.estimate,
        origin=row.origin,
    )
    assert rebuilt == task
