"""A typed DAG of ops, and the assignment of sizes that makes it concrete."""

from __future__ import annotations

from opsgen.records.base import Record

Scalar = int | float | bool | str | None
AttrValue = Scalar | tuple[Scalar, ...]


class Input(Record, frozen=True, kw_only=True):
    """One tensor that `get_inputs` returns."""

    name: str
    """Argument name of `forward`."""
    dims: tuple[int | str, ...]
    """Each dim: a fixed number, or a Python expression over the task's size names."""
    dtype: str
    """torch dtype without the prefix, such as `float32`."""
    draw: str
    """Distribution: a name of `opsgen.ops.DRAWS`."""
    high: int | str | None = None
    """Exclusive upper bound of an index draw; absent for other draws."""
    layout: str = "contiguous"
    """Order in memory: `contiguous`, `channels_last` (rank 4 and 5), or `transposed` (the last
    two dims swapped)."""


class Node(Record, frozen=True, kw_only=True):
    """One application of a catalogue op."""

    op: str
    """Name in the catalogue."""
    args: tuple[int, ...]
    """Values it reads, in argument order: inputs count from 0, nodes follow."""
    attrs: dict[str, AttrValue]
    """Chosen attributes, part of the graph's identity."""
    sizes: dict[str, int | str]
    """Attributes that are sizes: expressions over size names, not part of the identity."""
    spelling: int = 0
    """Which of the op's equivalent spellings the source uses; not part of the identity."""
    label: str | None = None
    """Name of its module in the source, such as `q_proj`; absent: the op's. Not part of the
    identity."""


class Graph(Record, frozen=True, kw_only=True):
    """A directed acyclic graph of ops without concrete sizes."""

    dtype: str
    """Working dtype of the floating tensors."""
    inputs: tuple[Input, ...]
    """Tensors the graph reads."""
    nodes: tuple[Node, ...]
    """Ops in topological order, the order in which the source calls them."""
    outputs: tuple[int, ...]
    """Values the graph returns, numbered as in `Node.args`."""
    grad_output: int | None = None
    """Of a gradient task: the input, the last one, that holds the gradient of the only output.
    The task then returns the gradients of its other floating inputs, in their order. Absent for
    a task that returns its outputs."""


class TensorSpec(Record, frozen=True, kw_only=True):
    """Shape and type of one tensor."""

    shape: tuple[int, ...]
    """Sizes of the dims."""
    dtype: str
    """torch dtype without the prefix."""
    layout: str = "contiguous"
    """Order in memory of an input, as in `Input.layout`; what a task returns is free in it."""


class Workload(Record, frozen=True, kw_only=True):
    """An assignment of a task's module-level sizes."""

    sizes: dict[str, int]
    """Value of each size name, in the order of the source; empty for foreign code without sizes."""
    inputs: tuple[TensorSpec, ...]
    """What `get_inputs` returns under these sizes."""
    outputs: tuple[TensorSpec, ...]
    """Predicted (sampled tasks) leaves that `forward` returns; empty when unknown."""
    role: str = "default"
    """`default`, `smaller` (about an eighth of the work), `held_out` (for judging only) or
    `twin` (tiny, for the probe)."""
