"""The device that measurements belong to: its record, its compiler, its clock.

`environment` says what machine and software this is and what it lacks,
`compiling` compiles without launching anything, `clock` times calls and
refuses to without the lease, `interval` holds the statistics of its adaptive
stop, `memory` gives storage back between holds. CPU and CUDA go through the
same calls, so that what a laptop tests is what a GPU host runs. Importing
this room loads torch but not Inductor, which the first compile brings in.
Refused here: task semantics, comparisons, and anything that decides.
"""

from opsgen.device.clock import MIN_SAMPLES, Clock
from opsgen.device.compiling import CompileFacts, GatedCompile, compiler_faults, reset_compiler
from opsgen.device.environment import environment_id, find_cpp_compiler, read_environment
from opsgen.device.interval import median_interval
from opsgen.device.memory import PeakMemory, free_storage, settle

__all__ = [
    "MIN_SAMPLES",
    "Clock",
    "CompileFacts",
    "GatedCompile",
    "PeakMemory",
    "compiler_faults",
    "environment_id",
    "find_cpp_compiler",
    "free_storage",
    "median_interval",
    "read_environment",
    "reset_compiler",
    "settle",
]
