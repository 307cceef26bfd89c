"""One record per kind of row: the schemas and the card's column tables are read off them.

Columns hold plain values and lists of numbers; what has more structure is
JSON in a string, so that one schema fits every task and every reader.
"""

from __future__ import annotations

from opsgen.records import Record


class TaskRow(Record, frozen=True, kw_only=True):
    """An admitted task with its certificate."""

    ops: str
    """JSON list of the qualified op names in call order, such as `["torch.relu"]`; of class
    `transformers` one bare name: the public class that the block equals, or `opsgen.blocks.` and
    its own name."""
    data_source: str
    """Quota class, such as `torch#2` for two ops."""
    code: str
    """Self-contained module: `Model`, `get_inputs`, `get_init_inputs`. Run it in a sandbox."""
    task_id: str
    """Identity of graph and default sizes; joins the configs and sorts the rows."""
    graph_hash: str | None
    """Identity of the graph without sizes; null for foreign code."""
    family: str
    """Group of near-duplicates; no family is in two splits."""
    level: int
    """Number of ops; a block of class `transformers` counts as one."""
    stratum: str | None
    """What fusing the first two ops is about, such as `epilogue`; null for single ops, blocks and
    foreign code."""
    dtype: str | None
    """Working dtype; null for foreign code."""
    graph: str | None
    """JSON of the graph: inputs with their draw and order in memory, nodes with op, args and
    attributes, outputs, and `grad_output` where the task returns gradients; null for foreign
    code."""
    workloads: str
    """JSON list of size assignments: sizes, role (`default`, `smaller`, `held_out` or `twin`),
    shapes, dtypes and orders in memory of inputs and outputs; the code holds the first."""
    line: int
    """Place in the class's plan, or in the source of foreign rows."""
    seed: int
    """Seed of the plan: with `recipe_hash`, `opsgen_version` and `line` it gives the row again."""
    recipe_hash: str
    """Hash of the recipe, fleet settings left out."""
    opsgen_version: str
    """Version that sampled and measured the task."""
    origin: str | None
    """Where foreign code came from; null for sampled tasks."""
    tolerances: tuple[float, ...]
    """Admissible error of each output leaf, relative to the scale of its elements: the RMS over
    the last axis (of the leaf, if that axis is shorter than 32). 99.99 % of elements have to be
    within, the rest within 20 times; 0 asks for equality."""
    tolerance_errors: tuple[float | None, ...]
    """99.99 % quantile of the reference's own error against float64; null where it is assumed."""
    is_tolerance_assumed: bool
    """Some tolerance has no float64 reference behind it."""
    trivial_margin: float
    """Multiple of the tolerance at which the best lazy answer still fails on 5 % of elements."""
    trivial_answer: str
    """The lazy answer that comes nearest, such as `zeros`."""
    weak_at_1e_2: bool
    """A lazy answer passes the 1e-2 absolute plus relative that other harnesses use."""
    live_margin: float | None
    """Smallest effect of deleting or freezing a part, as a multiple of the tolerance; null where
    it was not looked at."""
    live_part: str | None
    """The part and the change with that effect."""
    compile_margin: float | None
    """Error of compiled against eager as a multiple of the tolerance; at most 1."""
    mode_class: str | None
    """What train mode does against eval mode: `same`, `differs` or `mutates`; eval is meant."""
    traffic_bytes: int | None
    """Bytes of distinct inputs, parameters and outputs, each moved once; null for foreign code."""
    flops: int | None
    """Floating-point operations of the graph; null for foreign code."""
    environment_id: str
    """Environment whose evidence admitted the task."""


class MeasurementRow(Record, frozen=True, kw_only=True):
    """One timed mode of a task's reference on one machine."""

    task_id: str
    """The task."""
    environment_id: str
    """Machine and software, described by the last columns."""
    mode: str
    """`eager`, `compile` (`torch.compile`, default mode), `compile_max_autotune` (without CUDA
    graphs), or `eager_high` and `compile_high` (float32 products in TF32)."""
    median_ms: float
    """Median of the samples, milliseconds."""
    q25_ms: float
    """First quartile, milliseconds."""
    q75_ms: float
    """Third quartile, milliseconds."""
    ci_low_ms: float
    """Lower end of the 95 % bootstrap interval of the median, milliseconds."""
    ci_high_ms: float
    """Upper end of that interval, milliseconds."""
    num_samples: int
    """Timed calls."""
    num_warmup: int
    """Untimed calls before them."""
    num_overtaken: int
    """Samples that the device may have begun before all of the call was queued."""
    samples_ms: tuple[float, ...]
    """Every timed call in order, milliseconds."""
    is_advisory: bool
    """Timed by the host's clock (CPU runs): other load on the machine may have moved it."""
    launch_floor_ms: float | None
    """Median of an empty call through the same clock, milliseconds."""
    speed_of_light_ms: float | None
    """Least time that the device needs for the task: its bytes at the speed of a copy, or its products
    at that of a large product, whichever is longer; null where it is not known."""
    compile_s: float | None
    """Seconds of compilation; null but for `compile`."""
    num_generated_kernels: int | None
    """Kernels that Inductor generated, library calls left out; null but for `compile`."""
    picks: tuple[str, ...]
    """What each generated Triton kernel runs with: block sizes, warps, stages; empty but for
    `compile`."""
    peak_bytes: int | None
    """Peak device memory of an eager call; null on a CPU."""
    precision: str
    """JSON object: how float32 is computed outside the `high` modes, `ieee` or `tf32` by kind of
    op; empty on a CPU."""
    sm_mhz: int | None
    """Clock of the multiprocessors right after timing; null where it is not known."""
    memory_mhz: int | None
    """Clock of the memory; null where it is not known."""
    temperature_c: int | None
    """Temperature of the chip, degrees Celsius; null where it is not known."""
    throttle: tuple[str, ...]
    """Reasons for which clocks were lowered."""
    device: str
    """`cpu` or `cuda`."""
    device_name: str
    """Processor or GPU model."""
    driver: str | None
    """GPU driver version; null on a CPU."""
    cuda: str | None
    """CUDA version of torch; null for CPU builds."""
    torch: str
    """torch version."""
    triton: str | None
    """triton version; null where it is not installed."""
    python: str
    """Python version."""
    compiler: str | None
    """C++ compiler that Inductor uses on a CPU; null if there is none."""
    num_threads: int
    """Threads that torch was allowed."""
    opsgen_version: str
    """opsgen version."""


class RejectedRow(Record, frozen=True, kw_only=True):
    """A sampled line that was not admitted."""

    ops: str
    """JSON list of the qualified op names in call order; of class `transformers` one bare name."""
    data_source: str
    """Quota class."""
    code: str
    """The task's source. Some of it fails on purpose: run it in a sandbox or not at all."""
    task_id: str
    """Identity of graph and default sizes."""
    status: str
    """`rejected` (the task is at fault) or `deferred` (resources or the machine are)."""
    reason: str
    """First failing criterion in the protocol's order, or what happened to the process."""
    witness: str
    """What shows it, with the numbers."""
    failed: str
    """JSON list of all that failed among the measured: criterion and witness."""
    graph_hash: str | None
    """Identity of the graph without sizes; null for foreign code."""
    family: str
    """Group of near-duplicates."""
    level: int
    """Number of ops."""
    stratum: str | None
    """What fusing the first two ops is about; null for single ops, blocks and foreign code."""
    line: int
    """Place in the class's plan."""
    environment_id: str | None
    """Environment that measured it; null if it never got that far."""


CONFIGS: dict[str, type[Record]] = {
    "tasks": TaskRow,
    "measurements": MeasurementRow,
    "rejected": RejectedRow,
}
"""The row record of each config, the default config first."""
