"""Draws, tolerances, comparison and liveness: what probe, measure and score share.

`seeding` is the one place where global generators are seeded; `reference`
loads a task's code and builds it, with `state` and inputs as functions of
seeds; `running` turns what task code raises into a record. `comparison`
fixes what "equal within tolerance" means, `tolerances` measures what to ask,
`answers` and `effects` show whether the work and each part of it matter,
`checks` settle repeatability, purity and modes. Everything returns evidence.
Refused here: verdicts, timing, and any tensor left behind on a device.
"""

from opsgen.verify.answers import judge_answers, lazy_answers
from opsgen.verify.checks import (
    NUM_REPEATS,
    check_mode,
    check_pure,
    check_repeatable,
    check_stable_inputs,
)
from opsgen.verify.comparison import (
    comparison_margin,
    element_scale,
    kth_largest,
    outlier_quantile,
    scaled_error,
)
from opsgen.verify.effects import input_effects, node_effects, state_effects
from opsgen.verify.leaves import (
    Inputs,
    Leaves,
    count_nonfinite,
    equal_bits,
    fingerprint,
    map_tensors,
    output_leaves,
    spec_of,
    specs_of,
    tensors_of,
)
from opsgen.verify.reference import Reference, task_module, widen, working_eps
from opsgen.verify.running import TaskCodeError, task_code
from opsgen.verify.seeding import derive_seed, seeded
from opsgen.verify.state import State, redraw
from opsgen.verify.tolerances import Trials, run_trials, tolerance_of
from opsgen.verify.work import Outline, outline

__all__ = [
    "NUM_REPEATS",
    "Inputs",
    "Leaves",
    "Outline",
    "Reference",
    "State",
    "TaskCodeError",
    "Trials",
    "check_mode",
    "check_pure",
    "check_repeatable",
    "check_stable_inputs",
    "comparison_margin",
    "count_nonfinite",
    "derive_seed",
    "element_scale",
    "equal_bits",
    "fingerprint",
    "input_effects",
    "judge_answers",
    "kth_largest",
    "lazy_answers",
    "map_tensors",
    "node_effects",
    "outlier_quantile",
    "outline",
    "output_leaves",
    "redraw",
    "run_trials",
    "scaled_error",
    "seeded",
    "spec_of",
    "specs_of",
    "state_effects",
    "task_code",
    "task_module",
    "tensors_of",
    "tolerance_of",
    "widen",
    "working_eps",
]
