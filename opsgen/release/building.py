"""From judged cases to rows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from opsgen.admit import Case
from opsgen.recipe import Recipe
from opsgen.records import (
    DeviceState,
    Environment,
    MeasureEvidence,
    Record,
    Status,
    Task,
    Verdict,
    encode_line,
)
from opsgen.release.manifest import recipe_digest
from opsgen.release.rows import MeasurementRow, RejectedRow, TaskRow
from opsgen.sampler.plan import TRANSFORMERS


class Rows(Record, frozen=True, kw_only=True):
    """The rows of a release, each kind in its stable order."""

    tasks: tuple[TaskRow, ...]
    """Released tasks by task_id."""
    measurements: tuple[MeasurementRow, ...]
    """Their baselines by task_id, environment and mode."""
    rejected: tuple[RejectedRow, ...]
    """Rejected and deferred lines by class and line."""


def build_rows(
    cases: Iterable[Case],
    verdicts: Iterable[Verdict],
    chosen: frozenset[str],
    recipe: Recipe,
    environments: Mapping[str, Environment],
) -> Rows:
    """Turn judged cases into the rows of a release.

    Admitted tasks behind the cut are in no row: a larger release takes them.

    Args:
        cases: Every judged task with its evidence.
        verdicts: The verdicts on them.
        chosen: Task ids that the release takes.
        recipe: The recipe behind both.
        environments: Machines by the id that the evidence names.

    Returns:
        The rows of all configs; every verdict that does not admit has a row in `rejected`.
    """
    by_line = {(verdict.data_source, verdict.line): verdict for verdict in verdicts}
    tasks: list[TaskRow] = []
    measurements: list[MeasurementRow] = []
    rejected: list[RejectedRow] = []
    recipe_hash = recipe_digest(recipe)
    for case in cases:
        verdict = by_line[case.task.data_source, case.task.line]
        if verdict.status is not Status.ADMITTED:
            rejected.append(_rejected_row(case, verdict))
        elif case.task.task_id in chosen:
            assert case.measure is not None, "admitted without a measurement"
            environment = environments[case.measure.environment_id]
            tasks.append(_task_row(case, recipe.seed, recipe_hash, environment))
            measurements += _measurement_rows(case.task.task_id, case.measure, environment)
    return Rows(
        tasks=tuple(sorted(tasks, key=lambda row: row.task_id)),
        measurements=tuple(
            sorted(measurements, key=lambda row: (row.task_id, row.environment_id, row.mode))
        ),
        rejected=tuple(sorted(rejected, key=lambda row: (row.data_source, row.line, row.task_id))),
    )


def _task_row(case: Case, seed: int, recipe_hash: str, environment: Environment) -> TaskRow:
    task, probe, measure = case.task, case.probe, case.measure
    assert probe is not None
    assert measure is not None
    nearest = min(measure.answers, key=lambda answer: answer.margin)
    weakest = min(probe.effects, key=lambda effect: effect.margin, default=None)
    return TaskRow(
        ops=_ops_text(task),
        data_source=task.data_source,
        code=task.code,
        task_id=task.task_id,
        graph_hash=task.graph_hash,
        family=task.family,
        level=task.level,
        stratum=task.stratum,
        dtype=task.graph.dtype if task.graph else None,
        graph=encode_line(task.graph).decode() if task.graph else None,
        workloads=f"[{', '.join(encode_line(one).decode() for one in task.workloads)}]",
        line=task.line,
        seed=seed,
        recipe_hash=recipe_hash,
        opsgen_version=environment.opsgen,
        origin=task.origin,
        tolerances=tuple(tolerance.value for tolerance in measure.tolerances),
        tolerance_errors=tuple(tolerance.error for tolerance in measure.tolerances),
        is_tolerance_assumed=any(tolerance.is_assumed for tolerance in measure.tolerances),
        trivial_margin=nearest.margin,
        trivial_answer=nearest.name,
        weak_at_1e_2=any(answer.passes_1e_2 for answer in measure.answers),
        live_margin=weakest.margin if weakest else None,
        live_part=f"{weakest.subject} {weakest.change}" if weakest else None,
        compile_margin=measure.compile_margin,
        mode_class=probe.mode_class,
        traffic_bytes=task.estimate.traffic_bytes if task.estimate else None,
        flops=task.estimate.flops if task.estimate else None,
        environment_id=measure.environment_id,
    )


def _ops_text(task: Task) -> str:
    """Write the ops as CUDA-Agent-Ops-6K does: a JSON list, or a block's bare name."""
    if task.data_source == TRANSFORMERS:
        (name,) = task.ops
        return name
    return json.dumps(task.ops)


def _measurement_rows(
    task_id: str, measure: MeasureEvidence, environment: Environment
) -> list[MeasurementRow]:
    rows = []
    state, least = measure.state or DeviceState(), measure.speed_of_light
    for timing in measure.timings:
        # Of the further compiled modes it is not recorded.
        is_compiled = timing.mode == "compile"
        rows.append(
            MeasurementRow(
                task_id=task_id,
                environment_id=measure.environment_id,
                mode=timing.mode,
                median_ms=timing.median_ms,
                q25_ms=timing.q25_ms,
                q75_ms=timing.q75_ms,
                ci_low_ms=timing.ci_ms[0],
                ci_high_ms=timing.ci_ms[1],
                num_samples=len(timing.samples_ms),
                num_warmup=timing.num_warmup,
                num_overtaken=timing.num_overtaken,
                samples_ms=timing.samples_ms,
                is_advisory=measure.is_advisory,
                launch_floor_ms=measure.launch_floor_ms,
                speed_of_light_ms=least.time_ms if least else None,
                compile_s=measure.compile_s if is_compiled else None,
                num_generated_kernels=measure.num_generated_kernels if is_compiled else None,
                picks=measure.picks if is_compiled else (),
                peak_bytes=measure.peak_bytes,
                precision=encode_line(measure.precision).decode(),
                sm_mhz=state.sm_mhz,
                memory_mhz=state.memory_mhz,
                temperature_c=state.temperature_c,
                throttle=state.throttle,
                device=environment.device,
                device_name=environment.device_name,
                driver=environment.driver,
                cuda=environment.cuda,
                torch=environment.torch,
                triton=environment.triton,
                python=environment.python,
                compiler=environment.compiler,
                num_threads=environment.num_threads,
                opsgen_version=environment.opsgen,
            )
        )
    return rows


def _rejected_row(case: Case, verdict: Verdict) -> RejectedRow:
    task = case.task
    return RejectedRow(
        ops=_ops_text(task),
        data_source=task.data_source,
        code=task.code,
        task_id=task.task_id,
        status=verdict.status.value,
        reason=verdict.reason or "",
        witness=verdict.witness or "",
        failed=f"[{', '.join(encode_line(one).decode() for one in verdict.failed)}]",
        graph_hash=task.graph_hash,
        family=task.family,
        level=task.level,
        stratum=task.stratum,
        line=task.line,
        environment_id=case.measure.environment_id if case.measure else None,
    )
