"""What of a child's state one job must hand on to the next unchanged."""

from __future__ import annotations

import sys
from pathlib import Path


class StateGuard:
    """Compares interpreter state from before a job with that after it.

    The recursion limit is put back: `torch.compile` itself raises it, and a
    child must not be replaced for that. Any other difference spoils the
    process: it is replaced, so no later task can be affected.
    """

    def __init__(self) -> None:
        self._folder = _working_folder()
        self._recursion_limit = sys.getrecursionlimit()

    def difference(self) -> str | None:
        """Return what changed since this object was made; None if nothing."""
        sys.setrecursionlimit(self._recursion_limit)
        return None if _working_folder() == self._folder else "changed the working folder"


def _working_folder() -> Path | None:
    try:
        return Path.cwd()
    except FileNotFoundError:
        return None
