"""A task: source code with its workloads and, if sampled, its graph."""

from __future__ import annotations

from opsgen.records.base import Record
from opsgen.records.graph import Graph, Workload


class Estimate(Record, frozen=True, kw_only=True):
    """What the cost model says about the default workload."""

    eager_ms: float
    """Predicted device time of one eager call, milliseconds, on the recipe's calibration."""
    traffic_bytes: int
    """Bytes of distinct inputs, parameters and outputs, each moved once."""
    flops: int
    """Floating-point operations of the whole graph."""
    peak_bytes: int
    """Predicted peak memory of an eager call, inputs and parameters included."""
    num_terms: int
    """Longest chain of additions behind one output element (the reduction length), at least 1."""


class Task(Record, frozen=True, kw_only=True):
    """Source code in the KernelBench form with what is known of it before it runs."""

    task_id: str
    """Sampled: graph hash and default workload; foreign: hash of the normalised source."""
    data_source: str
    """Quota class, such as `torch#2` or `transformers`."""
    line: int
    """Position in the class's plan; for foreign rows their position in the source."""
    level: int
    """Number of ops; a composite counts as one, whatever its graph holds."""
    ops: tuple[str, ...]
    """Qualified names in call order, such as `torch.nn.Conv2d`; empty when unknown. A composite
    is one name: the public class that it equals, or `opsgen.blocks.` and its own name."""
    code: str
    """Self-contained source: `Model`, `get_inputs`, `get_init_inputs`."""
    workloads: tuple[Workload, ...]
    """Assignments of the module-level sizes: the default, a smaller one, one held out for
    judging if the recipe asks for it, and last the tiny twin."""
    graph: Graph | None = None
    """The sampled graph; absent for foreign code."""
    graph_hash: str | None = None
    """Identity of the graph without sizes; absent for foreign code."""
    family: str
    """Group of near-duplicates: the graph with its attributes abstracted."""
    stratum: str | None = None
    """Fusion stratum, a name of `opsgen.sampler.STRATA`; absent for tasks of one op and
    foreign code."""
    estimate: Estimate | None = None
    """Cost model's view of the default workload; absent for foreign code."""
    origin: str | None = None
    """Where foreign code came from, or what a composite follows, with its licence; absent for
    other sampled tasks."""


class PlanLine(Record, frozen=True, kw_only=True):
    """One line of the plan as it stands in a run folder."""

    data_source: str
    """Quota class."""
    line: int
    """Place in the class's list, from 0."""
    task: Task | None
    """The task; absent if no try at the line gave a legal graph."""
    tries: tuple[str, ...]
    """Reasons of the rejected tries, in order."""
