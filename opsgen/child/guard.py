"""What of a child's state one job must hand on to the next unchanged."""

from __future__ import annotations

import os
import sys
from pathlib import Path


class StateGuard:
    """Compares interpreter state from before a job with that after it.

    What can be put back is put back: `torch.compile` itself raises the
    recursion limit, and a child must not be replaced for that. Any other
    difference spoils the process: it is replaced, so no later task can be
    affected.
    """

    def __init__(self) -> None:
        self._folder = _working_folder()
        self._recursion_limit = sys.getrecursionlimit()

    def difference(self) -> str | None:
        """Return what changed for good since this object was made; None if nothing."""
        sys.setrecursionlimit(self._recursion_limit)
        if _working_folder() == self._folder:
            return None
        if self._folder is None or not self._folder.is_dir():
            return "lost the working folder"
        os.chdir(self._folder)
        return None


def _working_folder() -> Path | None:
    try:
        return Path.cwd()
    except FileNotFoundError:
        return None
