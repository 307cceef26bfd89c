"""Hypothesis strategies for the records that cross rooms, for tests and users.

`graphs`, `workloads` and `tasks` draw well-formed records; `probe_evidence`
and `measure_evidence` draw what a stage might have seen, `sound_cases` tasks
that the default thresholds admit, and `cases` anything, faults included.
What is drawn is small, frozen and made of plain numbers: never a tensor, and
nothing is run. The graphs are well-formed DAGs whose ops have plausible names;
whether they are legal is the sampler's business. Needs hypothesis, which the
`test` extra brings.
"""

from opsgen.testing.cases import cases, faults, plans, sound_cases
from opsgen.testing.evidence import (
    device_states,
    effects,
    environments,
    lazy_answers,
    leases,
    measure_evidence,
    probe_evidence,
    speeds_of_light,
    timings,
    tolerances,
)
from opsgen.testing.graphs import graphs, tasks, tensor_specs, workloads
from opsgen.testing.verdicts import verdicts

__all__ = [
    "cases",
    "device_states",
    "effects",
    "environments",
    "faults",
    "graphs",
    "lazy_answers",
    "leases",
    "measure_evidence",
    "plans",
    "probe_evidence",
    "sound_cases",
    "speeds_of_light",
    "tasks",
    "tensor_specs",
    "timings",
    "tolerances",
    "verdicts",
    "workloads",
]
