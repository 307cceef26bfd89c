"""Draws, tolerances, comparison and liveness: what probe, measure and score share.

`seeding` is the one place where global generators are seeded; `reference` loads a task's code and
builds it, with `state` and inputs as functions of seeds; `running` turns what task code raises into
a record; `unfilled` does without values; `work`, `twins` and `terms` find out how much foreign code does and what smaller code does
the same. `comparison` fixes what "equal within tolerance" means, `tolerances` measures what to ask.
`answers`, `pooling` and `effects` show whether the work and each part of it matter; for foreign code
`surgery` changes single calls (`tapping`, `changes`), `operating` all in turn, `detours` finds those
that undo one another, `dissection` adds up what nobody checks. `checks` and `axes` settle
repeatability, purity, modes and axes. `recording` sees what a task calls, `spellings` and `declared`
whether that is what it declares, `tracing` hashes its core-ATen ops (`canon`, `describing`,
`viewing`, `naming`). Returns evidence; refused here: verdicts, timing, tensors left on a device.
"""

from opsgen.verify.answers import judge_answers, lazy_answers
from opsgen.verify.axes import check_axes, check_mixing
from opsgen.verify.checks import (
    NUM_REPEATS,
    CallWatch,
    check_mode,
    check_repeatable,
    check_stable_inputs,
    describe_sharing,
    validate_draws,
    validate_outputs,
)
from opsgen.verify.comparison import (
    comparison_margin,
    element_scale,
    kth_largest,
    outlier_quantile,
    scaled_error,
)
from opsgen.verify.dissection import full_dataflow, unverified_fraction
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
    validate_inputs,
)
from opsgen.verify.naming import alias_of, canonical_call
from opsgen.verify.operating import call_effects
from opsgen.verify.pooling import pooled_answers
from opsgen.verify.recording import Call, Recording, record_calls
from opsgen.verify.reference import Reference, task_module, widen, working_eps
from opsgen.verify.running import TaskCodeError, guarded, task_code, task_fault
from opsgen.verify.seeding import derive_seed, seeded
from opsgen.verify.spellings import check_ops, describe_calls, spelled_calls
from opsgen.verify.state import State, redraw
from opsgen.verify.surgery import Surgery
from opsgen.verify.terms import count_terms
from opsgen.verify.tolerances import Trials, assumed_tolerances, run_trials, tolerance_of
from opsgen.verify.tracing import trace_call, trace_code
from opsgen.verify.twins import ForeignWork, Twin, find_twins, full_size, proportional_twins
from opsgen.verify.unfilled import in_other_order, unfilled
from opsgen.verify.work import Outline, Rehearsal, outline, rehearse

__all__ = [
    "NUM_REPEATS",
    "Call",
    "CallWatch",
    "ForeignWork",
    "Inputs",
    "Leaves",
    "Outline",
    "Recording",
    "Reference",
    "Rehearsal",
    "State",
    "Surgery",
    "TaskCodeError",
    "Trials",
    "Twin",
    "alias_of",
    "assumed_tolerances",
    "call_effects",
    "canonical_call",
    "check_axes",
    "check_mixing",
    "check_mode",
    "check_ops",
    "check_repeatable",
    "check_stable_inputs",
    "comparison_margin",
    "count_nonfinite",
    "count_terms",
    "derive_seed",
    "describe_calls",
    "describe_sharing",
    "element_scale",
    "equal_bits",
    "find_twins",
    "fingerprint",
    "full_dataflow",
    "full_size",
    "guarded",
    "in_other_order",
    "input_effects",
    "judge_answers",
    "kth_largest",
    "lazy_answers",
    "map_tensors",
    "node_effects",
    "outlier_quantile",
    "outline",
    "output_leaves",
    "pooled_answers",
    "proportional_twins",
    "record_calls",
    "redraw",
    "rehearse",
    "run_trials",
    "scaled_error",
    "seeded",
    "spec_of",
    "specs_of",
    "spelled_calls",
    "state_effects",
    "task_code",
    "task_fault",
    "task_module",
    "tensors_of",
    "tolerance_of",
    "trace_call",
    "trace_code",
    "unfilled",
    "unverified_fraction",
    "validate_draws",
    "validate_inputs",
    "validate_outputs",
    "widen",
    "working_eps",
]
