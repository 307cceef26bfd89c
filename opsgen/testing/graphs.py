"""Strategies for graphs, workloads and tasks."""

from __future__ import annotations

from hypothesis import strategies as st

from opsgen.records import Estimate, Graph, Input, Node, Task, TensorSpec, Workload, digest
from opsgen.sampler.strata import STRATA

_OPS = ("relu", "tanh", "sum", "softmax", "add", "mul")
_BINARY = frozenset({"add", "mul"})
_LAYOUTS = ("contiguous", "transposed", "channels_last")  # the last for rank 4 and 5 only
_ROLES = ("smaller", "held_out", "twin")
_NAMES = st.sampled_from(("x", "y", "batch_size", "features", "weight"))


@st.composite
def tensor_specs(draw: st.DrawFn, *, is_input: bool = False) -> TensorSpec:
    """Shapes of up to four dims in common types.

    Args:
        draw: Given by hypothesis.
        is_input: Draw an order in memory, too; what a task returns is free in it.

    Returns:
        A spec whose order in memory its rank has.
    """
    shape = draw(st.lists(st.integers(1, 64), max_size=4).map(tuple))
    return TensorSpec(
        shape=shape,
        dtype=draw(st.sampled_from(("float32", "bfloat16", "int64", "bool"))),
        layout=draw(_layouts(len(shape))) if is_input else "contiguous",
    )


def _layouts(rank: int) -> st.SearchStrategy[str]:
    return st.sampled_from(_LAYOUTS[: 1 if rank < 2 else 2 if rank < 4 else 3])


@st.composite
def workloads(draw: st.DrawFn, *, role: str = "default") -> Workload:
    """Up to three size names with one or two inputs and one or two outputs."""
    specs = st.lists(tensor_specs(is_input=True), min_size=1, max_size=2).map(tuple)
    outputs = st.lists(tensor_specs(), min_size=1, max_size=2).map(tuple)
    return Workload(
        sizes=draw(st.dictionaries(_NAMES, st.integers(1, 4096), max_size=3)),
        inputs=draw(specs),
        outputs=draw(outputs),
        role=role,
    )


@st.composite
def graphs(draw: st.DrawFn, *, num_nodes: int | None = None) -> Graph:
    """Connected DAGs of one to four nodes, with one or two outputs or returning gradients.

    Args:
        draw: Given by hypothesis.
        num_nodes: Fixes the number of nodes.

    Returns:
        A graph in topological order in which every node reads the value before it.
    """
    dtype = draw(st.sampled_from(("float32", "bfloat16")))
    values = list(range(draw(st.integers(1, 2))))
    inputs = [draw(_inputs(f"x{number}", dtype)) for number in values]
    is_gradient = draw(st.booleans())
    if is_gradient:
        inputs.append(draw(_inputs("grad_output", dtype)))
    nodes: list[Node] = []
    for _ in range(draw(st.integers(1, 4)) if num_nodes is None else num_nodes):
        op = draw(st.sampled_from(_OPS))
        args = (values[-1], draw(st.sampled_from(values))) if op in _BINARY else (values[-1],)
        attrs = draw(st.dictionaries(st.just("dim"), st.integers(-1, 1), max_size=1))
        values.append(len(inputs) + len(nodes))
        nodes.append(Node(op=op, args=args, attrs=dict(attrs), sizes={}))
    early = values[-2:-1] if len(nodes) > 1 and not is_gradient and draw(st.booleans()) else []
    return Graph(
        dtype=dtype,
        inputs=tuple(inputs),
        nodes=tuple(nodes),
        outputs=(values[-1], *early),
        grad_output=len(inputs) - 1 if is_gradient else None,
    )


@st.composite
def _inputs(draw: st.DrawFn, name: str, dtype: str) -> Input:
    dims = draw(st.sampled_from((("batch_size", 32), ("batch_size", 8, "height", "height // 2"))))
    return Input(
        name=name,
        dims=dims,
        dtype=dtype,
        draw=draw(st.sampled_from(("normal", "uniform"))),
        layout=draw(_layouts(len(dims))),
    )


@st.composite
def tasks(
    draw: st.DrawFn, *, is_sampled: bool | None = None, level: int | None = None, line: int = 0
) -> Task:
    """Tasks whose identities are digests of what is drawn: stacks, composites, foreign ones.

    Args:
        draw: Given by hypothesis.
        is_sampled: Fixes whether the task has a graph.
        level: Fixes the number of ops, and that it is no composite.
        line: Position in the plan of the task's class.

    Returns:
        A task with one workload or several if it is sampled, and with none if it is foreign.
    """
    if is_sampled is None:
        is_sampled = draw(st.booleans())
    graph = draw(graphs(num_nodes=level or draw(st.integers(1, 3))))
    ops = tuple(f"torch.{node.op}" for node in graph.nodes)
    is_composite = is_sampled and level is None and draw(st.booleans())
    if is_composite:
        ops = ("opsgen.blocks.block",)
    roles = ("default", *(role for role in _ROLES if draw(st.booleans())))
    sizes = tuple(draw(workloads(role=role)) for role in roles)
    graph_hash = digest(graph)
    code = f"# {' '.join(ops)}\nclass Model: ...\n"
    data_source = "transformers" if is_composite else f"torch#{len(ops)}"
    origin = "after arXiv 1706.03762" if is_composite else None
    return Task(
        task_id=digest(graph_hash, sizes[0]) if is_sampled else digest(code),
        data_source=data_source if is_sampled else "foreign",
        line=line,
        level=len(ops),
        ops=ops if is_sampled else (),
        code=code,
        workloads=sizes if is_sampled else (),
        graph=graph if is_sampled else None,
        graph_hash=graph_hash if is_sampled else None,
        family=digest(ops),
        stratum=draw(st.sampled_from([*STRATA])) if is_sampled and len(ops) > 1 else None,
        estimate=draw(_estimates()) if is_sampled else None,
        origin=origin if is_sampled else "rows.parquet",
    )


def _estimates() -> st.SearchStrategy[Estimate]:
    return st.builds(
        Estimate,
        eager_ms=st.floats(0.01, 100.0),
        traffic_bytes=st.integers(0, 2**40),
        flops=st.integers(0, 2**50),
        peak_bytes=st.integers(0, 2**33),
        num_terms=st.integers(1, 2**20),
    )
