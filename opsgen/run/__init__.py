"""The run: stages in order, on files, in rounds, resuming.

`folder` is the run folder with its lock, `digest` what names it, `requests` what is asked of the
fleet, `cases` joins tasks with the journal, `stages` holds sampling, probing,
measuring, admission and release, `pipeline` drives them in rounds until every
class has its number, `auditing` takes foreign tasks through the same stages (`foreign` says what
differs there) and `summary` counts them, `calibrating` measures what a device can do. `retiming`
says what is timed once more, `agreement` how well that repeats, `usage` where the device's time
went, and `report` adds up. It decides nothing itself: what a task needs next is asked of `admit`,
and what counts is on disk before it is used. Never prints.
"""

from opsgen.run.agreement import Agreement, compare_timings
from opsgen.run.cases import join_cases
from opsgen.run.digest import run_digest, source_digest
from opsgen.run.folder import RunFolder
from opsgen.run.pipeline import (
    Outcome,
    RunEstimate,
    open_fleet_stages,
    open_stages,
    plan_run,
    run_recipe,
)
from opsgen.run.report import Report, make_report
from opsgen.run.requests import measure_key
from opsgen.run.stages import Stages, check_machine

__all__ = [
    "Agreement",
    "Outcome",
    "Report",
    "RunEstimate",
    "RunFolder",
    "Stages",
    "check_machine",
    "compare_timings",
    "join_cases",
    "make_report",
    "measure_key",
    "open_fleet_stages",
    "open_stages",
    "plan_run",
    "run_digest",
    "run_recipe",
    "source_digest",
]
