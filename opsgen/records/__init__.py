"""Every record that crosses a room, as immutable msgspec structs.

`graph` and `task` say what is measured, `evidence` what was seen, `job` how
it was asked for, `verdict` what follows. Records hold no behaviour beyond
checks of their own consistency; `base` fixes how they are written as JSON.
Imports nothing of opsgen but `errors`.
"""

from opsgen.records.base import Record, decode_line, digest, encode_line
from opsgen.records.evidence import (
    MAX_DRIFT,
    MODES,
    CanaryEvidence,
    DeviceState,
    Effect,
    Environment,
    Failure,
    LazyAnswer,
    Lease,
    MeasureEvidence,
    Overlap,
    ProbeEvidence,
    SourceFault,
    SpeedOfLight,
    Timing,
    Tolerance,
    Trace,
)
from opsgen.records.graph import AttrValue, Graph, Input, Node, Scalar, TensorSpec, Workload
from opsgen.records.job import (
    Attempt,
    CalibrateEvidence,
    CalibrateRequest,
    CanaryRequest,
    EnvironmentRequest,
    Evidence,
    Fault,
    MeasureRequest,
    NoopEvidence,
    NoopRequest,
    ProbeRequest,
    Request,
)
from opsgen.records.lines import end_of_whole_lines, read_lines
from opsgen.records.task import Estimate, PlanLine, Task
from opsgen.records.verdict import Finding, Status, Verdict

__all__ = [
    "MAX_DRIFT",
    "MODES",
    "Attempt",
    "AttrValue",
    "CalibrateEvidence",
    "CalibrateRequest",
    "CanaryEvidence",
    "CanaryRequest",
    "DeviceState",
    "Effect",
    "Environment",
    "EnvironmentRequest",
    "Estimate",
    "Evidence",
    "Failure",
    "Fault",
    "Finding",
    "Graph",
    "Input",
    "LazyAnswer",
    "Lease",
    "MeasureEvidence",
    "MeasureRequest",
    "Node",
    "NoopEvidence",
    "NoopRequest",
    "Overlap",
    "PlanLine",
    "ProbeEvidence",
    "ProbeRequest",
    "Record",
    "Request",
    "Scalar",
    "SourceFault",
    "SpeedOfLight",
    "Status",
    "Task",
    "TensorSpec",
    "Timing",
    "Tolerance",
    "Trace",
    "Verdict",
    "Workload",
    "decode_line",
    "digest",
    "encode_line",
    "end_of_whole_lines",
    "read_lines",
]
