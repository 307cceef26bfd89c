"""Nearness to benchmarks: what a task shares with the tables of their fingerprints."""

from __future__ import annotations

from opsgen.records import Overlap, Trace


def find_overlap(code: str, trace: Trace | None, benchmarks: tuple[str, ...]) -> Overlap | None:
    """Return what `code` shares with the tasks in fingerprint tables; None without tables.

    Args:
        code: Source that parses.
        trace: What it runs; None where that is not known.
        benchmarks: Names of shipped tables, or paths of `.parquet` files.
    """
    return None
