"""What is asked of a child and what comes back, one attempt at a time.

The tag of a request is the name of the job that serves it.
"""

from __future__ import annotations

import msgspec

from opsgen.records.base import Record
from opsgen.records.evidence import (
    CanaryEvidence,
    Environment,
    Failure,
    MeasureEvidence,
    ProbeEvidence,
)
from opsgen.records.task import Task


class ProbeRequest(Record, frozen=True, kw_only=True, tag="probe"):
    """Ask what a CPU can show of a task."""

    task: Task
    """The task."""
    liveness: bool = True
    """Delete and freeze nodes, redraw inputs and parameters."""
    lazy_answers: bool = True
    """Try lazy answers on the twin."""
    benchmarks: tuple[str, ...] = ()
    """Fingerprint tables that the task is compared with: names, or paths of `.parquet` files."""
    trace_only: bool = False
    """Take the trace and nothing else, of code that breaks source rules too: for sandboxes."""
    seed: int
    """Seed of all draws."""


class MeasureRequest(Record, frozen=True, kw_only=True, tag="measure"):
    """Ask for a task's evidence and baselines on a device."""

    task: Task
    """The task."""
    device: str
    """`cpu` or `cuda`."""
    modes: tuple[str, ...]
    """Baselines to time, of `MODES`."""
    max_s_per_mode: float
    """Cap on timing one mode, seconds."""
    seed: int
    """Seed of all draws."""
    checks: bool = True
    """Look for the evidence of all criteria; otherwise take the baselines alone, and hold
    compiled code against eager."""
    autotuning: str = "race"
    """`race`: configurations that are clearly slower are timed no further; `full`: as Inductor does."""
    preload: bool = True
    """Load and compile eager kernels ahead, without launching them, outside the lease."""


class CalibrateRequest(Record, frozen=True, kw_only=True, tag="calibrate"):
    """Ask for the eager time of some code, and for nothing else about it."""

    code: str
    """Source in the KernelBench form."""
    device: str
    """`cpu` or `cuda`."""
    max_s: float
    """Cap on timing, seconds."""
    seed: int
    """Seed of parameters and inputs."""


class CalibrateEvidence(Record, frozen=True, kw_only=True, tag="calibrate"):
    """Answer of the calibration job."""

    eager_ms: float | None = None
    """Median of eager calls, milliseconds; absent where the code raised."""
    num_samples: int = 0
    """Calls timed."""
    input_bytes: int | None = None
    """Bytes of all inputs; absent where the code raised."""
    peak_bytes: int | None = None
    """Peak device memory of a call; absent on a CPU and where the code raised."""
    failure: Failure | None = None
    """What the code raised; absent where it ran."""


class EnvironmentRequest(Record, frozen=True, kw_only=True, tag="environment"):
    """Ask what a child is running on."""

    device: str
    """`cpu` or `cuda`."""


class CanaryRequest(Record, frozen=True, kw_only=True, tag="canary"):
    """Ask whether a device computes right and as fast as before."""

    device: str
    """`cpu` or `cuda`."""


class NoopRequest(Record, frozen=True, kw_only=True, tag="noop"):
    """A job that does what `behaviour` says: fleets are tried out with it."""

    key: str
    """Comes back unchanged."""
    behaviour: str = "return"
    """One of `opsgen.jobs.noop.BEHAVIOURS`: returning, or a kind of fault."""


class NoopEvidence(Record, frozen=True, kw_only=True, tag="noop"):
    """Answer of the no-op job."""

    key: str
    """The request's key."""
    pid: int
    """Process that answered."""
    metrics: dict[str, float] = msgspec.field(default_factory=dict)
    """Whatever the behaviour adds."""


Request = (
    ProbeRequest
    | MeasureRequest
    | CalibrateRequest
    | EnvironmentRequest
    | CanaryRequest
    | NoopRequest
)
Evidence = (
    ProbeEvidence
    | MeasureEvidence
    | CalibrateEvidence
    | Environment
    | CanaryEvidence
    | NoopEvidence
)


class Fault(Record, frozen=True, kw_only=True):
    """Why an attempt brought no evidence."""

    reason: str
    """A name of `opsgen.errors.REASONS`, with `:<stage>` behind it for timeouts."""
    stage: str
    """Last stage that the child announced."""
    detail: str
    """One line: the signal, exit code, limit or exception."""
    log: str = ""
    """Last lines of the traceback or of what the child printed."""


class Attempt(Record, frozen=True, kw_only=True):
    """One line of the journal: what one try at one job brought."""

    job: str
    """Tag of the request."""
    key: str
    """Whom the job was about: a task_id, with the environment id for measurements."""
    number: int
    """Tries made at this key before, from 0."""
    evidence: Evidence | None = None
    """What was observed; absent after a fault."""
    fault: Fault | None = None
    """What went wrong; absent when there is evidence."""
    host: str
    """Machine that ran it."""
    pid: int
    """Child process that ran it; 0 if none was started."""
    spoiled: str = ""
    """What the job left behind in that process, which was replaced for it; empty if nothing."""
    hold_s: float = 0.0
    """Seconds for which it held the device, as the supervisor saw it: of killed ones too."""
    started_s: float
    """Start, seconds since the epoch."""
    wall_s: float
    """Duration, seconds."""

    def __post_init__(self) -> None:
        """Hold that an attempt brought either evidence or a fault."""
        if (self.evidence is None) == (self.fault is None):
            raise ValueError("an attempt holds either evidence or a fault")
