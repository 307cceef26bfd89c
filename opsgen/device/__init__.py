"""The device that measurements belong to: its record, its compiler, its clock.

`environment` says what machine and software this is and what it lacks,
`preloading` loads eager kernels and `compiling` compiles without launching
anything, `autotuning` watches what the first compiled call tries out, `modes`
are the baselines there are, `peaks` what the device reaches at best. `clock` times calls and refuses to without the
lease (`stopwatch` reads one), `interval` holds the statistics of its adaptive
stop, `memory` gives storage back between holds. `canary` tells whether the device
is right, and as fast as when it was first asked. CPU and CUDA go through the
same calls, so that what a laptop tests is what a GPU host runs. Importing
this room loads torch but not Inductor, which the first compile brings in.
Refused here: task semantics, comparisons, and anything that decides.
"""

from opsgen.device.autotuning import Autotuning, lend_lease, watched_autotuning
from opsgen.device.canary import guard_device
from opsgen.device.clock import MIN_SAMPLES, Clock
from opsgen.device.compiling import CompileFacts, GatedCompile, compiler_faults, reset_compiler
from opsgen.device.environment import environment_id, find_cpp_compiler, read_environment
from opsgen.device.interval import median_interval
from opsgen.device.memory import PeakMemory, free_storage, settle
from opsgen.device.modes import Mode, matmul_precision, mode_named, read_precision
from opsgen.device.peaks import TF32, measure_bandwidth, measure_rate
from opsgen.device.preloading import preload

__all__ = [
    "MIN_SAMPLES",
    "TF32",
    "Autotuning",
    "Clock",
    "CompileFacts",
    "GatedCompile",
    "Mode",
    "PeakMemory",
    "compiler_faults",
    "environment_id",
    "find_cpp_compiler",
    "free_storage",
    "guard_device",
    "lend_lease",
    "matmul_precision",
    "measure_bandwidth",
    "measure_rate",
    "median_interval",
    "mode_named",
    "preload",
    "read_environment",
    "read_precision",
    "reset_compiler",
    "settle",
    "watched_autotuning",
]
