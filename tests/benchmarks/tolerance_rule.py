"""What the tolerance rule lets pass and what not, as a table in Markdown.

Run: python tests/benchmarks/tolerance_rule.py

A row is a task with other answers to it, honest or not; a margin is an answer's error over what
a comparison bears at the task's own tolerance, so that at most 1 passes. Left out is the cheat
whose margin follows from the rule: a single element off by 20.5 times the tolerance. What stands
at the edge is not covered by the rule, whatever its margin. The cases are those of the test in
`tests/unit/verify`; they need no GPU and take half a minute.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "verify"))

from tolerance_cases import Case, Judged, judge
from tolerance_table import CASES

NOT_COVERED = """
At the edge the rule does not tell right from wrong. It lets pass what is missing from a result by
less than rounding may move it, such as the last of the 65,536 squares behind one number. It refuses
what rounds more than anyone needs to, such as the 100,000 terms of a softmax added up one after the
other in float32."""


def main() -> None:
    """Print the table and what it does not cover."""
    torch.set_num_threads(1)
    print("| task | tolerance | honest, largest margin | cheat, smallest margin | at the edge |")
    print("|---|---|---|---|---|")
    for case in CASES:
        print(_row(case, judge(case)))
    print(NOT_COVERED)


def _row(case: Case, judged: Judged) -> str:
    worst = max(judged.honest, key=judged.honest.__getitem__)
    cheats = {name: margin for name, margin in judged.cheats.items() if "one element" not in name}
    best = min(cheats, key=cheats.__getitem__)
    edges = "; ".join(
        f"{name}: {margin:.2g}, {'passes' if margin <= 1 else 'fails'}"
        for name, margin in judged.edges.items()
    )
    return (
        f"| {case} | {judged.tolerance.value:.1e} | {judged.honest[worst]:.2g} ({worst}) "
        f"| {cheats[best]:.3g} ({best}) | {edges} |"
    )


if __name__ == "__main__":
    main()
