"""The rule against what somebody left in the code: fences, and notes about earlier edits.

A comment is a note about an edit when it stands behind a size and says what the size was
before or what it was changed for, or when it speaks of whoever measures the task. What
a layer does to its channels is no edit.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator

from opsgen.source.rules.task import Breach, Reading

_FENCE = "`" * 3
_VERB = (
    r"(?:adjusted|bumped(?: up)?|changed|decreased|doubled|enlarged|halved|increased|lowered"
    r"|modified|raised|reduced|scaled(?: up| down)?|shrunk|updated)"
)
_AMOUNT = r"[\d(\[][\d_,.()\[\]x* ]*[kKmM]?"
_GOAL = (
    r"(?:runtime|run time|running time|execution|latency|\d ?ms\b|millisecond|benchmark|measur"
    r"|kernel time|requirement|constraint|too (?:fast|slow|small|large)|memory limit|time limit"
    r"|out of memory|\boom\b|target (?:time|range|window)"
    r"|(?:computation|kernel|problem|task|test|workload)s? (?:\w+ )?(?:bigger|faster|harder|heavier"
    r"|larger|longer|more|slower))"
)
_CHANGE = re.compile(
    rf"^#\W*(?:[\w ]{{0,40}}\b)?{_VERB}\b[\w ]{{0,40}}\bfrom {_AMOUNT}(?:to|->)"
    rf"|^#\W*(?:was|previously|originally|formerly)\W+{_AMOUNT}\W*$",
    re.IGNORECASE,
)
_PURPOSE = re.compile(
    rf"^#\W*{_VERB}\b.*\bto (?:achieve|allow|avoid|ensure|keep|make|meet|reach|satisfy|stay)\b",
    re.IGNORECASE,
)
_REASON = re.compile(
    rf"^#\W*(?:[\w ]{{0,40}}\b)?{_VERB}\b.*\b(?:to|for|so|because|due to|since)\b.*{_GOAL}",
    re.IGNORECASE,
)
_HINT = re.compile(
    rf"#.*(?:{_VERB}|\bwas\b|previously|originally|formerly)|{_FENCE}", re.IGNORECASE
)


def leftovers(task: Reading) -> Iterator[Breach]:
    """Fences outside docstrings and comments about edits."""
    if not _HINT.search(task.out.code):
        return
    sized = _sized_lines(task)
    docstrings = _docstring_lines(task)
    for token in tokenize.generate_tokens(io.StringIO(task.out.code).readline):
        line = token.start[0]
        if _FENCE in token.string and line not in docstrings:
            yield line, "code fence"
        elif token.type == tokenize.COMMENT:
            is_note = _CHANGE.search(token.string) or _PURPOSE.search(token.string)
            if (is_note and line in sized) or _REASON.search(token.string):
                yield line, token.string[:80]


def _sized_lines(task: Reading) -> set[int]:
    """Return the lines of module-level assignments and of the functions that give inputs."""
    lines: set[int] = set()
    for node in task.out.body:
        is_entry = isinstance(node, ast.FunctionDef) and node.name.startswith("get_")
        if is_entry or isinstance(node, ast.Assign | ast.AnnAssign):
            lines.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return lines


def _docstring_lines(task: Reading) -> set[int]:
    """Return the first lines of docstrings, where examples may be fenced."""
    found = set()
    for scope in task.out.scopes:
        first = scope.body[0] if scope.body else None
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
            found.add(first.lineno)
    return found
