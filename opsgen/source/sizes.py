"""Applying a workload: other values for the module-level sizes of a task's code."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Mapping

LEVELS = (8, 12, 16, 24, 32, 48, 64, 96, 128)
"""What large sizes are cut to, in the order in which they are tried."""
_BATCH = 4
_BATCH_NAMES = frozenset({"b", "n", "bs", "bsz"})
_SMALL = 32  # Counts of heads, groups, layers or taps more often than extents.


def assign_sizes(code: str, sizes: Mapping[str, int]) -> str:
    """Return `code` with its module-level integers set to `sizes`.

    Only the digits change, so that comments, layout and line numbers stay. Names
    that `sizes` does not mention keep their values.

    Raises:
        ValueError: The code lacks one of the names as a plain integer assignment,
            or assigns it more than once.
    """
    found: dict[str, ast.expr] = {}
    for name, value in _integer_assignments(ast.parse(code)):
        if name in found and name in sizes:
            raise ValueError(f"size {name!r} is assigned more than once")
        found[name] = value
    missing = [name for name in sizes if name not in found]
    if missing:
        raise ValueError(f"no module-level integer named {missing[0]!r}")
    # ast counts columns in UTF-8 bytes; edits go from the end so that positions hold.
    lines = code.encode().splitlines(keepends=True)
    for name in sorted(sizes, key=lambda name: _start(found[name]), reverse=True):
        value = found[name]
        row, end = value.lineno - 1, value.end_col_offset
        line = lines[row]
        lines[row] = line[: value.col_offset] + str(sizes[name]).encode() + line[end:]
    return b"".join(lines).decode()


def read_sizes(code: str) -> dict[str, int]:
    """Return the module-level integers of `code` in the order of the source."""
    return {name: ast.literal_eval(value) for name, value in _integer_assignments(ast.parse(code))}


def smaller_sizes(code: str) -> Iterator[tuple[int, dict[str, int]]]:
    """Yield ever larger cuts of the module-level sizes of `code`, each with its level.

    First only what exceeds 32 is cut, then everything; batches are cut to 4. Whether the
    code runs on them nobody knows before it is tried. Nothing comes where all is small.
    """
    counts = Counter(name for name, _ in _integer_assignments(ast.parse(code)))
    sizes = {name: value for name, value in read_sizes(code).items() if counts[name] == 1}
    seen = [sizes]
    for spared in (_SMALL, 0):
        for level in LEVELS:
            cut = {name: _cut(name, value, level, spared) for name, value in sizes.items()}
            if cut not in seen:
                seen.append(cut)
                yield level, cut


def _cut(name: str, value: int, level: int, spared: int) -> int:
    if "batch" in name.lower() or name.lower() in _BATCH_NAMES:
        return min(value, _BATCH)
    return value if value <= spared else min(value, level)


def _integer_assignments(tree: ast.Module) -> list[tuple[str, ast.expr]]:
    found = []
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            target, value = statement.targets[0], statement.value
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            target, value = statement.target, statement.value
        else:
            continue
        if isinstance(target, ast.Name) and _is_integer(value):
            found.append((target.id, value))
    return found


def _is_integer(value: ast.expr) -> bool:
    if isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.USub):
        value = value.operand
    return isinstance(value, ast.Constant) and type(value.value) is int


def _start(value: ast.expr) -> tuple[int, int]:
    return value.lineno, value.col_offset
