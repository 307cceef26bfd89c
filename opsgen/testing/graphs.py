"""Strategies for graphs, workloads and tasks."""

from __future__ import annotations

from hypothesis import strategies as st

from opsgen.records import Estimate, Graph, Input, Node, Task, TensorSpec, Workload, digest

_OPS = ("relu", "tanh", "sum", "softmax", "add", "mul")
_BINARY = frozenset({"add", "mul"})
_NAMES = st.sampled_from(("x", "y", "batch_size", "features", "weight"))


def tensor_specs() -> st.SearchStrategy[TensorSpec]:
    """Shapes of up to four dims in common types."""
    return st.builds(
        TensorSpec,
        shape=st.lists(st.integers(1, 64), max_size=4).map(tuple),
        dtype=st.sampled_from(("float32", "bfloat16", "int64", "bool")),
    )


def workloads() -> st.SearchStrategy[Workload]:
    """Up to three size names with one or two inputs and one output."""
    specs = st.lists(tensor_specs(), min_size=1, max_size=2).map(tuple)
    return st.builds(
        Workload,
        sizes=st.dictionaries(_NAMES, st.integers(1, 4096), max_size=3),
        inputs=specs,
        outputs=tensor_specs().map(lambda spec: (spec,)),
    )


@st.composite
def graphs(draw: st.DrawFn, *, num_nodes: int | None = None) -> Graph:
    """Connected DAGs of one to four nodes.

    Args:
        draw: Given by hypothesis.
        num_nodes: Fixes the number of nodes.

    Returns:
        A graph in topological order in which every node reads the value before it.
    """
    num_inputs = draw(st.integers(1, 2))
    inputs = tuple(
        Input(name=f"x{i}", dims=("batch_size", 32), dtype="float32", draw="normal")
        for i in range(num_inputs)
    )
    nodes: list[Node] = []
    for index in range(draw(st.integers(1, 4)) if num_nodes is None else num_nodes):
        op = draw(st.sampled_from(_OPS))
        last = num_inputs + index - 1
        args = (last, draw(st.integers(0, last))) if op in _BINARY else (last,)
        attrs = draw(st.dictionaries(st.just("dim"), st.integers(-1, 1), max_size=1))
        nodes.append(Node(op=op, args=args, attrs=dict(attrs), sizes={}))
    return Graph(
        dtype="float32", inputs=inputs, nodes=tuple(nodes), outputs=(num_inputs + len(nodes) - 1,)
    )


@st.composite
def tasks(
    draw: st.DrawFn, *, is_sampled: bool | None = None, level: int | None = None, line: int = 0
) -> Task:
    """Tasks whose identities are digests of what is drawn, sampled and foreign ones.

    Args:
        draw: Given by hypothesis.
        is_sampled: Fixes whether the task has a graph.
        level: Fixes the number of ops.
        line: Position in the plan of the task's class.

    Returns:
        A task with one or two workloads if it is sampled, and with none if it is foreign.
    """
    if is_sampled is None:
        is_sampled = draw(st.booleans())
    graph = draw(graphs(num_nodes=level or draw(st.integers(1, 3))))
    ops = tuple(f"torch.{node.op}" for node in graph.nodes)
    sizes = draw(st.lists(workloads(), min_size=1, max_size=2))
    graph_hash = digest(graph)
    code = f"# {' '.join(ops)}\nclass Model: ...\n"
    return Task(
        task_id=digest(graph_hash, sizes[0]) if is_sampled else digest(code),
        data_source=f"torch#{len(ops)}" if is_sampled else "foreign",
        line=line,
        level=len(ops),
        ops=ops if is_sampled else (),
        code=code,
        workloads=tuple(sizes) if is_sampled else (),
        graph=graph if is_sampled else None,
        graph_hash=graph_hash if is_sampled else None,
        family=digest(ops),
        estimate=draw(_estimates()) if is_sampled else None,
        origin=None if is_sampled else "rows.parquet",
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
