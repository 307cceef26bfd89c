"""The recipe's sections and keys, with their defaults.

The names of the criteria's thresholds and their defaults follow the admission
protocol; every key is documented under its field.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from opsgen.records import Record

Positive = Annotated[float, msgspec.Meta(gt=0)]
NonNegative = Annotated[float, msgspec.Meta(ge=0)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Count = Annotated[int, msgspec.Meta(ge=0)]
AtLeastOne = Annotated[int, msgspec.Meta(ge=1)]
Name = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9][a-z0-9-]*$")]


class SampleConfig(Record, frozen=True, kw_only=True):
    """Which tasks are sampled.

    Composites follow their own recipes: of the shares they know dtypes alone.
    """

    dtypes: dict[str, NonNegative] = msgspec.field(default_factory=lambda: {"float32": 1.0})
    """Share of tasks by working dtype; shares are relative."""
    dags: Share = 0.2
    """Share of graphs that are not chains: in equal parts several inputs that meet, values read
    more than once, and several outputs."""
    gradients: Share = 0.0
    """Share of tasks that return gradients: `forward(x, grad_output)`, on chains."""
    prior: Share = 0.0
    """Share of forward tasks whose opening pair of ops stands in real code, the common ones more
    often; the others open with pairs that do not. Strata without such pairs go without. At 0 nobody
    asks."""
    strata: dict[str, NonNegative] = msgspec.field(
        default_factory=lambda: {
            "epilogue": 0.12,
            "statistics": 0.06,
            "prologue": 0.16,
            "chain": 0.03,
            "row": 0.20,
            "window": 0.16,
            "layout": 0.12,
            "scan": 0.08,
            "other": 0.03,
            "pointwise": 0.04,
        }
    )
    """Share of tasks by fusion stratum, relative; tasks of one op belong to none."""
    target_ms: tuple[Positive, Positive] = (1.2, 30.0)
    """Eager time that sizes aim at, milliseconds, drawn log-uniformly between the two."""
    calibration: str = "cpu"
    """Table of device speeds that the cost model uses: a name, or the path of a `.toml` file that
    `opsgen calibrate` wrote."""
    memory_gib: Positive = 16.0
    """Largest predicted peak memory of a task, GiB."""
    input_gib: Positive = 2.5
    """Most that a task's inputs hold together, GiB: creating them takes seconds."""
    min_axis: AtLeastOne = 1
    """Some axis of an input is at least as long."""
    odd_sizes: bool = False
    """Widths may be odd and more sizes prime; otherwise widths are round and most sizes multiples
    of 8."""
    values: Share = 0.2
    """Share of floating inputs drawn from another distribution than the usual one, `randn` where
    an op takes all numbers."""
    layouts: Share = 0.0
    """Share of floating inputs that are channels-last or transposed in memory."""
    held_out: bool = False
    """Whether tasks bring a further workload of full size, for judging only."""
    user_ops: str | None = None
    """Digest of the file of own ops that `--ops` loads; set by it, absent without own ops."""


class ProbeConfig(Record, frozen=True, kw_only=True):
    """What is checked on the CPU before a device is used."""

    liveness: bool = True
    """Delete and freeze nodes and redraw inputs and parameters on the twin."""
    lazy_answers: bool = True
    """Try lazy answers on the twin."""
    benchmarks: tuple[str, ...] = ("kernelbench",)
    """Fingerprint tables of benchmarks that tasks must not repeat: names, or paths of `.parquet`
    files that `opsgen fingerprint` wrote."""


class MeasureConfig(Record, frozen=True, kw_only=True):
    """How baselines are measured."""

    device: str = "cpu"
    """`cpu` or `cuda`."""
    modes: tuple[str, ...] = ("eager", "compile")
    """Baselines to record: `eager` and `compile`, and if wanted `compile_max_autotune`,
    `eager_high` and `compile_high` (float32 products in TF32)."""
    autotuning: str = "race"
    """`race`: the compiler's trials stop early for configurations that are clearly slower;
    `full`: they are what `torch.compile` does, for twice the device's time."""
    max_s_per_mode: Positive = 0.15
    """Cap on timing one mode, seconds; at least 7 samples are taken whatever the cap."""


class AdmitConfig(Record, frozen=True, kw_only=True):
    """Thresholds: changing them needs no new measurement."""

    runtime_window_ms: tuple[Positive, Positive] = (1.05, 95.0)
    """Eager medians outside are rejected, milliseconds."""
    launch_floor_ratio: NonNegative = 10.0
    """Eager must take this many times the launch floor of the same process."""
    trivial_margin: NonNegative = 10.0
    """Every lazy answer must fail on 5 % of elements at this multiple of the tolerance."""
    weak_at_1e_2: str = "reject"
    """`reject` or `label` tasks where a lazy answer passes at 1e-2."""
    twin_trivial_margin: NonNegative = 1.0
    """The same on the tiny twin, where less shows: degeneracy grows with size."""
    live_margin: NonNegative = 1.0
    """Deleting or freezing any part must change the output by this multiple of the tolerance."""
    unverified_fraction: Share = 0.05
    """Most of the cost of foreign code whose results may not matter."""
    contamination: str = "reject"
    """`reject` tasks that stand in a benchmark, or `label` them: for auditing the benchmark."""
    max_draw_s: Positive = 10.0
    """Longest that building a model and drawing its inputs may take, seconds."""
    memory_gib: Positive = 16.0
    """Largest measured peak memory, GiB."""
    headroom: NonNegative = 0.0
    """Compiled code must take this many times what the device needs at best; 0 to ask nothing."""
    max_tensor_elements: AtLeastOne = 2**31 - 1
    """Largest tensor that any task may hold."""


class FleetConfig(Record, frozen=True, kw_only=True):
    """Processes. Of these keys only the limits on a task can change what is admitted."""

    sandbox: bool = False
    """Whether children give up network, user and files before they run a task: for foreign code.
    A machine that cannot do that is refused."""

    children_per_device: AtLeastOne = 2
    """Child processes that share one device."""
    timing_cores: Count = 2
    """Cores of each GPU's share of the host that only the holder of its lease runs on; 0 for
    none. Of a share with fewer than four none is set aside."""
    retimed: Share = 0.02
    """Share of measured tasks that are timed once more later in the run, to see whether times
    still agree."""
    memory_limit_gib: Positive = 8.0
    """A child whose resident memory outgrows this is killed."""
    recycle_after: AtLeastOne = 100
    """Tasks after which a child is replaced."""
    max_child_age_s: Positive = 1200.0
    """Age at which a child is replaced, seconds."""
    deadlines_s: dict[str, Positive] = msgspec.field(
        default_factory=lambda: {
            "start": 180.0,
            "probe": 120.0,
            "build": 60.0,
            "eager": 120.0,
            "compile": 300.0,
            "time": 120.0,
        }
    )
    """Deadline of each stage, seconds; stages left out keep their default. Waiting for the
    device is never charged."""


class ReleaseConfig(Record, frozen=True, kw_only=True):
    """What is released."""

    want: dict[str, Count] = msgspec.field(default_factory=lambda: {"torch#2": 40})
    """Admitted tasks wanted by quota class."""
    split: dict[str, NonNegative] = msgspec.field(
        default_factory=lambda: {"train": 0.9, "validation": 0.05, "test": 0.05}
    )
    """Shares of the splits; families are never divided."""


class Recipe(Record, frozen=True, kw_only=True):
    """One named pipeline, from seed to release."""

    name: Name
    """Names the run folder."""
    seed: Count
    """Seed of the plan, the graphs, the sizes and all draws."""
    sample: SampleConfig = SampleConfig()
    """Which tasks are sampled."""
    probe: ProbeConfig = ProbeConfig()
    """What is checked on the CPU."""
    measure: MeasureConfig = MeasureConfig()
    """How baselines are measured."""
    admit: AdmitConfig = AdmitConfig()
    """Thresholds of admission."""
    fleet: FleetConfig = FleetConfig()
    """Processes."""
    release: ReleaseConfig = ReleaseConfig()
    """What is released."""
