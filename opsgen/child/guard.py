"""What of a child's state one job must hand on to the next unchanged."""

from __future__ import annotations

import sys
from pathlib import Path


class StateGuard:
    """Compares interpreter state from before a job with that after it.

    A job that leaves a difference behind spoils its process: it is replaced,
    so no later task can be affected.
    """

    def __init__(self) -> None:
        self._before = _state()

    def difference(self) -> str | None:
        """Return what changed since this object was made, in one line; None if nothing."""
        after = _state()
        changed = [name for name, value in self._before.items() if after[name] != value]
        return f"changed {', '.join(changed)}" if changed else None


def _state() -> dict[str, object]:
    return {"working folder": _working_folder(), "recursion limit": sys.getrecursionlimit()}


def _working_folder() -> Path | None:
    try:
        return Path.cwd()
    except FileNotFoundError:
        return None
