"""From evidence to verdict, as pure functions.

`CRITERIA` is the admission protocol as a table: one row per criterion, with
the function that reads it off the probe's and off the measurement's evidence.
`judge` applies it to one task, `admit_all` to a plan (adding `novel`, which
needs the whole set), `pending` says which stage a task still needs, `select`
cuts a release, `funnel` and `compare` count. Nothing here runs a task, reads
a file or a clock, or decides by anything but evidence and recipe: the same
evidence in any order gives the same verdicts. Refuses to admit on evidence
that is missing. Imports `records`, `errors` and `recipe` only.
"""

from opsgen.admit.case import Case, final_fault, plan_order
from opsgen.admit.criteria import CRITERIA, Absent, Criterion
from opsgen.admit.funnel import (
    Change,
    ClassFunnel,
    Funnel,
    ReasonCount,
    compare,
    funnel,
    reason_order,
)
from opsgen.admit.judging import Pending, admit_all, judge, pending, undecided_after_probe
from opsgen.admit.selection import Selection, select

__all__ = [
    "CRITERIA",
    "Absent",
    "Case",
    "Change",
    "ClassFunnel",
    "Criterion",
    "Funnel",
    "Pending",
    "ReasonCount",
    "Selection",
    "admit_all",
    "compare",
    "final_fault",
    "funnel",
    "judge",
    "pending",
    "plan_order",
    "reason_order",
    "select",
    "undecided_after_probe",
]
