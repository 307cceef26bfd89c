"""What checks and devices observed of a task: numbers, never judgements.

The jobs fill these in a child process, the journal keeps them, and only
`opsgen.admit` turns them into verdicts.
"""

from __future__ import annotations

import msgspec

from opsgen.records.base import Record
from opsgen.records.graph import TensorSpec

MODES = ("eager", "compile", "compile_max_autotune", "eager_high", "compile_high")
"""Baselines that can be recorded: as PyTorch runs it; under `torch.compile`; under
`torch.compile(mode="max-autotune-no-cudagraphs")`; the first two with
`torch.set_float32_matmul_precision("high")`."""

MAX_DRIFT = 0.03
"""A time that differs from an earlier one by more than this share has not repeated."""


class Failure(Record, frozen=True, kw_only=True):
    """An exception that a check caught because the task's own code raised it."""

    criterion: str
    """Criterion that the failure speaks to, mostly `executes`."""
    stage: str
    """What was being done, such as `build`, `eager` or `compile`."""
    kind: str
    """Exception type."""
    message: str
    """First lines of the message, at most 500 characters."""
    trace: str
    """Last 20 lines of the traceback."""


class SourceFault(Record, frozen=True, kw_only=True):
    """One source rule that the code breaks."""

    criterion: str = "self_contained"
    """Criterion that the rule speaks to."""
    rule: str
    """Name of the rule."""
    line: int
    """Line in the task's code, from 1."""
    witness: str
    """The name or statement that breaks it."""


class Trace(Record, frozen=True, kw_only=True):
    """What one call on `meta` at the default workload runs, without its values."""

    hash: str
    """The trace_hash: identity of the core-ATen trace without sizes, the same for every
    spelling, name and commutative order."""
    sized_hash: str
    """The same with all sizes."""
    calls: tuple[str, ...]
    """Qualified names of the public calls that compute, in order, such as
    `torch.nn.functional.relu`; a call goes by one name however it is spelled."""
    signature: tuple[str, ...]
    """Inputs, `>`, outputs; each as dtype and rank, such as `float32[4]`."""
    num_nodes: int
    """Core-ATen ops that compute."""


class Overlap(Record, frozen=True, kw_only=True):
    """The nearest task of the benchmarks, and those that are the same."""

    nearest: str
    """Its name, such as `kernelbench/level1/19_ReLU`."""
    similarity: float
    """Jaccard index of the shingles of both normalised sources, 0 to 1."""
    limit: float
    """99.9 % quantile of that index over unrelated pairs of this length."""
    same_trace: str | None = None
    """Benchmark task with an equal trace (of one call: with equal sizes); absent without one."""
    same_calls: str | None = None
    """Benchmark task with equal calls and signature (of one call: with equal attributes and
    sizes); absent without one."""
    tables: str
    """Digest of the fingerprint tables that it was compared with."""


class Tolerance(Record, frozen=True, kw_only=True):
    """How far one output leaf may be off, relative to the scale of its elements."""

    value: float
    """Admissible scaled error; 0 for integer and boolean leaves, which are exact."""
    error: float | None
    """99.99 % quantile of the scaled error against float64; absent where it is assumed."""
    num_terms: int
    """Reduction length behind the rounding floor."""
    is_assumed: bool
    """No float64 reference was affordable or possible."""


class LazyAnswer(Record, frozen=True, kw_only=True):
    """How well an answer that ignores the work would have done."""

    name: str
    """Which answer, such as `zeros` or `replay`."""
    margin: float
    """Largest multiple of the tolerance at which 5 % of a leaf's elements fail; exact leaves: inf or 0."""
    passes_1e_2: bool
    """Every element is within 1e-2 absolute plus 1e-2 relative, as other harnesses ask."""


class Effect(Record, frozen=True, kw_only=True):
    """What a change to one part of the task does to its output."""

    subject: str
    """The part: `node 1 (relu)`, `input x`, `parameter linear.weight` or `buffer bn.running_var`."""
    change: str
    """`deleted`, `frozen` at another draw's value, `redrawn`, or `rolled` by an element where no
    draw changes it."""
    margin: float
    """Error of the changed output in units of what a comparison bears: at most 1 passes as equal.
    Infinite where the output has another shape, an element that is finite on one side only, an
    exact leaf that differs, or could not be computed at all (see `raised`)."""
    raised: str | None = None
    """Exception of the changed task where it cannot run without the part, so that nothing was
    measured; absent where the margin is a comparison's."""


class ProbeEvidence(Record, frozen=True, kw_only=True, tag="probe"):
    """What a CPU shows of a task on `meta` and on its tiny twin."""

    source_faults: tuple[SourceFault, ...] = ()
    """Broken source rules; the code does not run if there are any."""
    failure: Failure | None = None
    """What stopped the probe; everything after it is absent."""
    predicted: tuple[TensorSpec, ...] = ()
    """Output leaves that the graph predicts for the default workload; empty for foreign code."""
    observed: tuple[TensorSpec, ...] = ()
    """Output leaves on `meta` at the default workload; empty where `meta` cannot run it."""
    ops_difference: str | None = None
    """How the calls that ran on `meta` differ from the declared ops; absent where they do not,
    where `meta` cannot run the task, and for foreign code."""
    num_draws: int = 0
    """Input draws over all weight seeds that ran."""
    num_nonfinite: int = 0
    """NaN or infinite output elements over all of them."""
    tolerances: tuple[Tolerance, ...] = ()
    """The twin's own, one per output leaf."""
    is_repeatable: bool | None = None
    """Three runs on one input were bitwise equal."""
    is_pure: bool | None = None
    """Inputs and state were unchanged by a call."""
    has_stable_inputs: bool | None = None
    """Three draws have one structure and every floating input varies."""
    mode_class: str | None = None
    """`same`, `differs` or `mutates`: what train mode does against eval mode."""
    answers: tuple[LazyAnswer, ...] = ()
    """Lazy answers on the twin: each at its best weight seed, over several draws."""
    is_full_size: bool | None = None
    """Whether the answers are those at the default workload of foreign code, not at a cut of it;
    absent for sampled tasks, and without answers."""
    effects: tuple[Effect, ...] = ()
    """Deleted and frozen nodes, redrawn inputs and parameters."""
    trace: Trace | None = None
    """What runs; absent where `meta` cannot run the task."""
    overlap: Overlap | None = None
    """Nearness to the benchmarks; absent where no tables were asked for."""
    unverified_fraction: float | None = None
    """Of foreign code: share of the cost of all traced ops in those whose results do not matter
    or are thrown away; absent for sampled tasks, whose nodes all have to matter."""
    kept_fraction: float | None = None
    """Elements of the outputs over elements of the largest computed value, at most 1."""
    axis_ambiguity: tuple[str, ...] = ()
    """Module-level sizes equal to another one without which the code does not run: a wrong axis
    may hide behind them."""
    batch_mixing: bool | None = None
    """Elements of the first axis influence each other: with one of them, or all but one, from
    another draw the outputs change elsewhere too; absent where outputs and inputs share none."""
    draw_s: float | None = None
    """Seconds that building the model and drawing its inputs take at the default workload on
    this CPU; absent where the default workload is too large to draw here."""
    peak_bytes: int | None = None
    """Predicted peak memory of a call at the default workload, inputs and state included."""
    largest_elements: int | None = None
    """Elements of the largest tensor of that call."""


class Timing(Record, frozen=True, kw_only=True):
    """One timed mode of a reference."""

    mode: str
    """One of `MODES`."""
    samples_ms: tuple[float, ...]
    """Milliseconds of every timed call, in call order."""
    median_ms: float
    """Median of the samples."""
    q25_ms: float
    """First quartile."""
    q75_ms: float
    """Third quartile."""
    ci_ms: tuple[float, float]
    """95 % bootstrap interval of the median."""
    num_warmup: int
    """Untimed calls made first."""
    num_overtaken: int = 0
    """Samples that the device may have begun before the whole call was queued, so that gaps
    between its launches may count; they were taken again as long as that helped."""


class DeviceState(Record, frozen=True, kw_only=True):
    """How a GPU was right after something was timed on it, as NVML tells it."""

    sm_mhz: int | None = None
    """Clock of the multiprocessors."""
    memory_mhz: int | None = None
    """Clock of the memory."""
    temperature_c: int | None = None
    """Temperature of the chip, degrees Celsius."""
    power_w: float | None = None
    """Power drawn, watts."""
    throttle: tuple[str, ...] = ()
    """Reasons for which clocks were lowered, such as `sw_power_cap`; none when they were not."""


class SpeedOfLight(Record, frozen=True, kw_only=True):
    """How fast a device could do a task's work at best; a roofline of two measured peaks."""

    moved_bytes: int
    """Bytes of inputs, parameters, buffers and outputs, each moved once."""
    flops: int
    """Floating-point operations of matrix products, convolutions and attention; others count as
    free."""
    bandwidth_gb_s: float
    """What a large copy reaches on the device, bytes read plus written."""
    rate_tflop_s: float | None
    """What a large product reaches there in the type and precision of the task; absent without
    such operations."""
    time_ms: float
    """The longer of the two times, milliseconds."""


class Lease(Record, frozen=True, kw_only=True):
    """Use of the device by one task."""

    wait_s: float
    """Seconds spent waiting for the device, over all holds."""
    hold_s: float
    """Seconds the device was held, over all holds."""
    num_holds: int
    """How often it was taken."""
    parts_s: dict[str, float] = msgspec.field(default_factory=dict)
    """Seconds held by what they went into, such as `answers` or `autotune`; absent parts took
    none, and what is left of `hold_s` is between parts."""


class MeasureEvidence(Record, frozen=True, kw_only=True, tag="measure"):
    """What the timing device shows of a task at full size."""

    environment_id: str
    """Which machine and software; see `Environment`."""
    failure: Failure | None = None
    """What stopped the measurement; everything after it is absent."""
    observed: tuple[TensorSpec, ...] = ()
    """Output leaves of eager."""
    compiled: tuple[TensorSpec, ...] = ()
    """Output leaves of the compiled module."""
    num_graphs: int | None = None
    """Graphs that `torch.compile(fullgraph=True)` captured."""
    num_generated_kernels: int | None = None
    """Kernels that Inductor generated; library calls do not count."""
    compile_s: float | None = None
    """Seconds of the gated compile, outside the lease."""
    is_repeatable: bool | None = None
    """Three eager runs on one input were bitwise equal."""
    is_pure: bool | None = None
    """Inputs and state were unchanged by a call."""
    num_nonfinite: int | None = None
    """NaN or infinite elements over two draws."""
    tolerances: tuple[Tolerance, ...] = ()
    """Released tolerances, one per output leaf."""
    compile_margin: float | None = None
    """Error of compiled against eager as a multiple of the tolerance; at most 1 passes."""
    answers: tuple[LazyAnswer, ...] = ()
    """Lazy answers at full size."""
    has_stable_inputs: bool | None = None
    """Of foreign code: three draws have one structure and every floating input varies."""
    effects: tuple[Effect, ...] = ()
    """Of foreign code: redrawn inputs at full size, and state where no smaller size can show it."""
    timings: tuple[Timing, ...] = ()
    """Baselines, one per mode."""
    launch_floor_ms: float | None = None
    """Median of an empty call through the same clock, once in each process."""
    speed_of_light: SpeedOfLight | None = None
    """The least time on this device; absent where `meta` cannot run the task."""
    picks: tuple[str, ...] = ()
    """What each generated Triton kernel runs with, in call order: kernel, block sizes, warps, stages;
    chosen by autotuning where it had a choice."""
    precision: dict[str, str] = msgspec.field(default_factory=dict)
    """How float32 is computed in the baselines: `ieee` or `tf32` by kind of op, such as `matmul`."""
    state: DeviceState | None = None
    """The device right after timing; absent on a CPU and where NVML does not answer."""
    peak_bytes: int | None = None
    """Peak device memory of an eager call; on a CPU the prediction is all there is."""
    is_advisory: bool = True
    """The clock is the host's, so timings may move with other load (CPU runs)."""
    lease: Lease | None = None
    """Waits and holds."""


class CanaryEvidence(Record, frozen=True, kw_only=True, tag="canary"):
    """How a device does a fixed piece of work that no task can have touched."""

    is_right: bool
    """Its result was right in every bit."""
    median_ms: float
    """Its time, milliseconds."""
    reference_ms: float | None = None
    """Its time when the device was first asked on this host; absent then."""
    state: DeviceState | None = None
    """The device right after it; absent on a CPU and where NVML does not answer."""


class Environment(Record, frozen=True, kw_only=True, tag="environment"):
    """Machine and software that baselines belong to."""

    device: str
    """`cpu` or `cuda`."""
    device_name: str
    """Processor or GPU model."""
    driver: str | None
    """GPU driver version; absent on a CPU."""
    cuda: str | None
    """CUDA version of torch; absent for CPU builds."""
    torch: str
    """torch version."""
    triton: str | None
    """triton version; absent where it is not installed."""
    python: str
    """Python version."""
    compiler: str | None
    """C++ compiler that Inductor uses on a CPU; absent if there is none."""
    num_threads: int
    """Threads that torch may use in one child."""
    num_cores: int
    """Processor cores open to this process."""
    opsgen: str
    """opsgen version."""
    problems: tuple[str, ...] = ()
    """What this machine lacks for measuring on `device`, one sentence each; empty when ready."""
