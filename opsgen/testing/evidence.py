"""Strategies for what the stages see, sound and unsound."""

from __future__ import annotations

import statistics

from hypothesis import strategies as st

from opsgen.records import (
    DeviceState,
    Effect,
    Environment,
    Failure,
    LazyAnswer,
    Lease,
    MeasureEvidence,
    Overlap,
    ProbeEvidence,
    SourceFault,
    SpeedOfLight,
    TensorSpec,
    Timing,
    Tolerance,
    Trace,
)

_LEAF = (TensorSpec(shape=(64, 32), dtype="float32"),)
_LEAVES = st.sampled_from((_LEAF, (TensorSpec(shape=(64, 1), dtype="float32"),), _LEAF + _LEAF, ()))
_ANSWERS = st.sampled_from(("zeros", "constant", "mean", "replay", "input", "redrawn"))
_MARGINS = st.floats(min_value=0.0) | st.just(float("nan"))
_CLAIMS = st.none() | st.booleans()
_PARTS = ("build", "inputs", "answers", "autotune", "time")
_PICKS = st.sampled_from(((), ("triton_poi_fused_relu_0 XBLOCK=1024 warps=4 stages=1",)))
_PRECISIONS = st.sampled_from(({}, {"matmul": "ieee", "conv": "tf32", "rnn": "tf32"}))
_FAILURES = st.builds(
    Failure,
    criterion=st.sampled_from(("executes", "judgeable", "self_contained")),
    stage=st.sampled_from(("build", "eager", "compile")),
    kind=st.just("RuntimeError"),
    message=st.just("mat1 and mat2 shapes\ncannot be multiplied"),
    trace=st.just(""),
)


def device_states() -> st.SearchStrategy[DeviceState]:
    """GPUs right after timing, as far as NVML told."""
    return st.builds(
        DeviceState,
        sm_mhz=st.none() | st.integers(210, 2000),
        memory_mhz=st.none() | st.integers(400, 3201),
        temperature_c=st.none() | st.integers(20, 95),
        power_w=st.none() | st.floats(30.0, 700.0),
        throttle=st.sampled_from(((), ("sw_power_cap",), ("hw_slowdown", "sw_power_cap"))),
    )


def speeds_of_light(max_ms: float = 90.0) -> st.SearchStrategy[SpeedOfLight]:
    """Least times up to `max_ms`, of tasks with products and without."""
    return st.builds(
        SpeedOfLight,
        moved_bytes=st.integers(1, 2**34),
        flops=st.integers(0, 2**44),
        bandwidth_gb_s=st.floats(10.0, 5000.0),
        rate_tflop_s=st.none() | st.floats(0.01, 900.0),
        time_ms=st.floats(1e-3, max_ms),
    )


@st.composite
def leases(draw: st.DrawFn) -> Lease:
    """Two holds, of which some parts are accounted for."""
    parts_s = draw(st.dictionaries(st.sampled_from(_PARTS), st.floats(0.0, 0.2), max_size=3))
    rest_s = draw(st.floats(0.0, 0.1))
    hold_s = sum(parts_s.values()) + rest_s
    return Lease(wait_s=draw(st.floats(0.0, 9.0)), hold_s=hold_s, num_holds=2, parts_s=parts_s)


def tolerances() -> st.SearchStrategy[Tolerance]:
    """Tolerances that tell answers apart, assumed or measured."""
    return st.builds(
        Tolerance,
        value=st.floats(0.0, 0.01),
        error=st.none() | st.floats(0.0, 0.01),
        num_terms=st.integers(1, 2**20),
        is_assumed=st.booleans(),
    )


def lazy_answers(margins: st.SearchStrategy[float] = _MARGINS) -> st.SearchStrategy[LazyAnswer]:
    """Lazy answers with margins from the given range."""
    return st.builds(LazyAnswer, name=_ANSWERS, margin=margins, passes_1e_2=st.booleans())


def effects(margins: st.SearchStrategy[float] = _MARGINS) -> st.SearchStrategy[Effect]:
    """Effects of changes to parts, with margins from the given range."""
    return st.builds(
        Effect,
        subject=st.sampled_from(("node 0 (relu)", "input x", "parameter linear.weight")),
        change=st.sampled_from(("deleted", "frozen", "redrawn")),
        margin=margins,
    )


def traces() -> st.SearchStrategy[Trace]:
    """Traces of one call or two, often equal ones."""
    return st.builds(
        Trace,
        hash=st.sampled_from(("t0", "t1")),
        sized_hash=st.sampled_from(("s0", "s1", "s2")),
        calls=st.sampled_from((("torch.relu",), ("torch.relu", "torch.sum"))),
        signature=st.just(("float32[2]", ">", "float32[2]")),
        num_nodes=st.integers(1, 9),
    )


def overlaps(*, is_sound: bool = False) -> st.SearchStrategy[Overlap]:
    """Nearness to a benchmark; sound ones are below the limit of chance."""
    name = "kernelbench/level1/19_ReLU"
    same = st.none() if is_sound else st.none() | st.just(name)
    return st.builds(
        Overlap,
        nearest=st.just(name),
        similarity=st.floats(0.0, 0.8 if is_sound else 1.0),
        limit=st.floats(0.8, 1.0),
        same_trace=same,
        same_calls=same,
        tables=st.just("d0"),
    )


@st.composite
def timings(draw: st.DrawFn, *, mode: str = "eager", low_ms: float = 1e-3) -> Timing:
    """Seven to nine samples between `low_ms` and 90 ms with matching statistics."""
    samples = draw(st.lists(st.floats(low_ms, 90.0), min_size=7, max_size=9))
    q25, median, q75 = statistics.quantiles(samples, n=4, method="inclusive")
    return Timing(
        mode=mode,
        samples_ms=tuple(samples),
        median_ms=median,
        q25_ms=q25,
        q75_ms=q75,
        ci_ms=(q25, q75),
        num_warmup=draw(st.integers(1, 9)),
        num_overtaken=draw(st.integers(0, 2)),
    )


@st.composite
def probe_evidence(draw: st.DrawFn, *, is_sound: bool | None = None) -> ProbeEvidence:
    """What a probe might have seen; sound evidence passes the default thresholds."""
    if is_sound or (is_sound is None and draw(st.booleans())):
        leaves = draw(st.sampled_from((_LEAF, ())))
        return ProbeEvidence(
            predicted=leaves,
            observed=leaves,
            num_draws=15,
            tolerances=(draw(tolerances()),),
            is_repeatable=True,
            is_pure=True,
            has_stable_inputs=True,
            mode_class=draw(st.sampled_from(("same", "differs", "mutates"))),
            answers=tuple(draw(st.lists(lazy_answers(st.floats(1.5)), max_size=2))),
            effects=tuple(draw(st.lists(effects(st.floats(1.5)), min_size=1, max_size=3))),
            overlap=draw(st.none() | overlaps(is_sound=True)),
            unverified_fraction=draw(st.none() | st.floats(0.0, 0.05)),
            draw_s=draw(st.none() | st.floats(0.0, 10.0)),
        )
    fault = SourceFault(rule="imports", line=3, witness="import os")
    return ProbeEvidence(
        source_faults=draw(st.sampled_from(((), (), (fault,), (fault, fault)))),
        failure=draw(st.none() | _FAILURES),
        predicted=draw(_LEAVES),
        observed=draw(_LEAVES),
        ops_difference=draw(st.none() | st.just("torch.relu is not called")),
        num_draws=draw(st.integers(0, 15)),
        num_nonfinite=draw(st.integers(0, 2)),
        tolerances=tuple(draw(st.lists(tolerances(), max_size=2))),
        is_repeatable=draw(_CLAIMS),
        is_pure=draw(_CLAIMS),
        has_stable_inputs=draw(_CLAIMS),
        answers=tuple(draw(st.lists(lazy_answers(), max_size=2))),
        effects=tuple(draw(st.lists(effects(), max_size=3))),
        trace=draw(st.none() | traces()),
        overlap=draw(st.none() | overlaps()),
        unverified_fraction=draw(st.none() | st.floats(0.0, 1.0)),
        draw_s=draw(st.none() | st.floats(0.0, 60.0)),
    )


@st.composite
def measure_evidence(draw: st.DrawFn, *, is_sound: bool | None = None) -> MeasureEvidence:
    """What a device might have seen; sound evidence passes the default thresholds."""
    if is_sound or (is_sound is None and draw(st.booleans())):
        answer = LazyAnswer(name="zeros", margin=draw(st.floats(10.0)), passes_1e_2=False)
        return MeasureEvidence(
            environment_id="here",
            observed=_LEAF,
            compiled=_LEAF,
            num_graphs=1,
            num_generated_kernels=draw(st.integers(0, 3)),
            compile_s=draw(st.floats(0.1, 60.0)),
            is_repeatable=True,
            is_pure=True,
            num_nonfinite=0,
            tolerances=(draw(tolerances()),),
            compile_margin=draw(st.floats(0.0, 1.0)),
            answers=(answer,),
            has_stable_inputs=True,
            effects=(draw(effects(st.floats(1.5))),),
            timings=(draw(timings(low_ms=1.1)), draw(timings(mode="compile"))),
            launch_floor_ms=draw(st.floats(0.0, 0.1)),
            peak_bytes=draw(st.none() | st.integers(0, 2**34)),
            is_advisory=draw(st.booleans()),
            speed_of_light=draw(speeds_of_light(max_ms=1.0)),
            picks=draw(_PICKS),
            precision=draw(_PRECISIONS),
            state=draw(st.none() | device_states()),
            lease=draw(st.none() | leases()),
        )
    return MeasureEvidence(
        environment_id="here",
        failure=draw(st.none() | _FAILURES),
        observed=draw(_LEAVES),
        compiled=draw(_LEAVES),
        num_graphs=draw(st.none() | st.integers(1, 2)),
        is_repeatable=draw(_CLAIMS),
        is_pure=draw(_CLAIMS),
        num_nonfinite=draw(st.none() | st.integers(0, 2)),
        tolerances=tuple(draw(st.lists(tolerances(), max_size=2))),
        compile_margin=draw(st.none() | _MARGINS),
        answers=tuple(draw(st.lists(lazy_answers(), max_size=3))),
        has_stable_inputs=draw(_CLAIMS),
        effects=tuple(draw(st.lists(effects(), max_size=1))),
        timings=tuple(draw(st.lists(timings(), max_size=1))),
        launch_floor_ms=draw(st.none() | st.floats(0.0, 10.0)),
        peak_bytes=draw(st.none() | st.integers(0, 2**36)),
        speed_of_light=draw(st.none() | speeds_of_light()),
    )


def environments() -> st.SearchStrategy[Environment]:
    """CPU and GPU machines."""
    version = st.sampled_from(("1.0.0", "2.13.0"))
    return st.builds(
        Environment,
        device=st.sampled_from(("cpu", "cuda")),
        device_name=st.sampled_from(("AMD EPYC 9554", "NVIDIA H200")),
        driver=st.none() | version,
        cuda=st.none() | version,
        torch=version,
        triton=st.none() | version,
        python=version,
        compiler=st.none() | st.just("g++ 14.2"),
        num_threads=st.integers(1, 64),
        num_cores=st.integers(1, 64),
        opsgen=st.just("0.1.0"),
    )
