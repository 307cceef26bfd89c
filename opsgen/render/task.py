"""A line of the plan as a task."""

from __future__ import annotations

from opsgen.ops import CATALOGUE
from opsgen.records import Task
from opsgen.render.source import render_source
from opsgen.sampler import Line, composite_of, family_hash, graph_hash, task_id


def render_task(line: Line) -> Task:
    """Return the task of a line that has a sampled graph.

    Raises:
        ValueError: The line has none; its `tries` say why.
    """
    if line.sampled is None:
        raise ValueError(f"{line.data_source} line {line.number} has no graph")
    graph = line.sampled.graph
    default = line.sampled.workloads[0]
    composite = composite_of(line.sequence)
    ops = (
        (composite.qualified_name,)
        if composite
        else tuple(CATALOGUE[node.op].spellings[node.spelling].name for node in graph.nodes)
    )
    identity = graph_hash(graph)
    return Task(
        task_id=task_id(graph, default.sizes, identity),
        data_source=line.data_source,
        line=line.number,
        level=len(ops),
        ops=ops,
        code=render_source(graph, default.sizes),
        workloads=line.sampled.workloads,
        graph=graph,
        graph_hash=identity,
        family=family_hash(graph),
        stratum=line.cell.stratum,
        estimate=line.sampled.estimate,
        origin=composite.credit if composite else None,
    )
