"""Child processes: everything that executes a task sits in one.

`supervisor` runs jobs in a recycled process of its own (`process` starts,
watches and kills it, `deadline` counts its stages) and turns every way to fail
into a fault with a reason. `loop` is the other side, `context` what a job is
handed there, `frames` what the two say to each other, `guard` what one job
must leave as it was. `sandbox` shuts a child in before it runs foreign code
(`layers` says what holds; `view`, `landlock`, `seccomp` are its parts). `lease`
is the exclusive use of a device, `logbook` what its holders leave for the next,
`cores` where they run, `nvml` what GPUs there are and how they are. Jobs are
known by name only. Imports no torch, and of opsgen only `errors`, `records` and
`recipe`.
"""

from opsgen.child.context import JobContext, LocalContext
from opsgen.child.cores import CoreShare, share_of
from opsgen.child.deadline import DEFAULT_DEADLINE_S
from opsgen.child.faults import reason_of
from opsgen.child.layers import Layer, describe_layers, require_layers
from opsgen.child.lease import CHECK_EVERY, DeviceLease
from opsgen.child.nvml import Gpu, list_gpus, list_pids, read_state
from opsgen.child.process import ChildConfig
from opsgen.child.supervisor import Child

__all__ = [
    "CHECK_EVERY",
    "DEFAULT_DEADLINE_S",
    "Child",
    "ChildConfig",
    "CoreShare",
    "DeviceLease",
    "Gpu",
    "JobContext",
    "Layer",
    "LocalContext",
    "describe_layers",
    "list_gpus",
    "list_pids",
    "read_state",
    "reason_of",
    "require_layers",
    "share_of",
]
