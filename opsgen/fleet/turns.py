"""Who may use a worker's device beside whom: many share it, or one has it to itself."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_WATCH_S = 0.1


class Turns:
    """Attempts that share a device, and those that need it alone.

    One that needs it alone waits for those in progress and holds back all that
    come after it, so it is never starved. This is about memory: the lease, which
    is about time, is taken all the same.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._num_sharing = 0
        self._num_wanting = 0
        self._is_taken = False

    @contextmanager
    def take(self, alone: bool, is_cancelled: Callable[[], bool]) -> Iterator[bool]:
        """Wait for a turn and keep it until the block ends; False if cancelled before it came."""
        is_mine = self._wait_alone(is_cancelled) if alone else self._wait_shared(is_cancelled)
        try:
            yield is_mine
        finally:
            if is_mine:
                self._give_back(alone)

    def _wait_shared(self, is_cancelled: Callable[[], bool]) -> bool:
        with self._changed:
            while self._is_taken or self._num_wanting:
                if is_cancelled():
                    return False
                self._changed.wait(_WATCH_S)
            self._num_sharing += 1
            return True

    def _wait_alone(self, is_cancelled: Callable[[], bool]) -> bool:
        with self._changed:
            self._num_wanting += 1
            try:
                while self._is_taken or self._num_sharing:
                    if is_cancelled():
                        return False
                    self._changed.wait(_WATCH_S)
                self._is_taken = True
                return True
            finally:
                self._num_wanting -= 1
                self._changed.notify_all()

    def _give_back(self, alone: bool) -> None:
        with self._changed:
            if alone:
                self._is_taken = False
            else:
                self._num_sharing -= 1
            self._changed.notify_all()
