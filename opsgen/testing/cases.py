"""Strategies for judged tasks: alone, and as the lines of a plan."""

from __future__ import annotations

import msgspec
from hypothesis import strategies as st

from opsgen.admit import Case
from opsgen.records import Fault
from opsgen.testing.evidence import measure_evidence, probe_evidence
from opsgen.testing.graphs import tasks

_REASONS = (
    "crash",
    "cuda_sticky",
    "gpu_oom",
    "host_oom",
    "infrastructure",
    "raised",
    "timeout:compile",
    "timeout:eager",
    "worker_lost",
)


def faults() -> st.SearchStrategy[Fault]:
    """One fault of any reason that an attempt can bring."""
    return st.builds(
        Fault,
        reason=st.sampled_from(_REASONS),
        stage=st.sampled_from(("start", "build", "compile")),
        detail=st.sampled_from(("signal 11", "120 s are over")),
    )


@st.composite
def sound_cases(draw: st.DrawFn, *, line: int = 0) -> Case:
    """Tasks whose evidence passes the default thresholds."""
    task = draw(tasks(line=line))
    # What the device saw is fixed; the plan's prediction has to agree with it.
    measure = draw(measure_evidence(is_sound=True))
    workloads = tuple(
        msgspec.structs.replace(workload, outputs=measure.observed) for workload in task.workloads
    )
    return Case(
        task=msgspec.structs.replace(task, workloads=workloads),
        probe=draw(probe_evidence(is_sound=True)),
        measure=measure,
    )


@st.composite
def cases(draw: st.DrawFn, *, line: int = 0) -> Case:
    """Tasks at any stage: sound, failing, faulty, or not looked at yet."""
    if draw(st.booleans()):
        return draw(sound_cases(line=line))
    some_faults = st.lists(faults(), max_size=7).map(tuple)
    return Case(
        task=draw(tasks(line=line)),
        probe=draw(st.none() | probe_evidence()),
        measure=draw(st.none() | measure_evidence()),
        probe_faults=draw(some_faults),
        measure_faults=draw(some_faults),
    )


@st.composite
def plans(draw: st.DrawFn, *, max_size: int = 6, is_sound: bool = False) -> list[Case]:
    """Cases with different lines, as a plan has them.

    Args:
        draw: Given by hypothesis.
        max_size: Most cases drawn.
        is_sound: Draw only cases that the default thresholds admit one by one.

    Returns:
        Cases in plan order within each class; identities may repeat.
    """
    one = sound_cases if is_sound else cases
    return [draw(one(line=line)) for line in range(draw(st.integers(0, max_size)))]
