"""What can be read off a task's code without running it.

`rules` says which source rules it breaks, `normalise` gives the form and the
hash that identify foreign code, `sizes` applies a workload by rewriting the
module-level integers, `reading` turns files, folders and tables into tasks by
`rows` and `columns`. All of it works on syntax trees and positions: nothing
here executes or imports task code, and torch is not needed. `families` groups
near-duplicates, `contamination` looks a task up in the `fingerprints` of
benchmarks, with `chance` behind its limits. Whether a broken rule rejects a task
is for `admit` to say; a fault is evidence like any other.
"""

from opsgen.source.columns import UNKNOWN_LEVEL
from opsgen.source.contamination import find_overlap
from opsgen.source.families import Families
from opsgen.source.normalise import normalised_source, source_hash
from opsgen.source.reading import (
    foreign_task,
    read_task_file,
    read_tasks,
    task_of_row,
)
from opsgen.source.rows import Row, read_rows
from opsgen.source.rules import RULES, check_source
from opsgen.source.sizes import LEVELS, assign_sizes, read_sizes, smaller_sizes

__all__ = [
    "LEVELS",
    "RULES",
    "UNKNOWN_LEVEL",
    "Families",
    "Row",
    "assign_sizes",
    "check_source",
    "find_overlap",
    "foreign_task",
    "normalised_source",
    "read_rows",
    "read_sizes",
    "read_task_file",
    "read_tasks",
    "smaller_sizes",
    "source_hash",
    "task_of_row",
]
