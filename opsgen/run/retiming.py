"""Which measured tasks are timed once more, and when: do times still agree later in the run?

A recorded time is worth what it repeats to. So a keyed share of the measured
tasks, the same in every session of a run, is timed again as far behind its
first measurement as the run allows. A second time stands under a key of its
own: it never counts as a measurement of its task.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from opsgen.fleet import settle
from opsgen.recipe import Recipe
from opsgen.records import Attempt, Environment, MeasureEvidence, Task, digest
from opsgen.run.requests import Asked, is_retiming, measure_key, retime_key, retime_request

MIN_FINISHED_BETWEEN = 25
"""Measurements that come to an end between a task's own and its second timing."""

_DIGEST_BITS = 64
_SCORE_BITS = 53  # as many as a float holds exactly


class Retimings:
    """The second timings of one stage of measuring, in the order of the first ones.

    Args:
        recipe: Whose `fleet.retimed` is the share, and whose seed the key.
        environment: Whose measurements count.
        tasks: All that may have been measured.
        attempts: All attempts of earlier sessions, in the order of their ends.
    """

    def __init__(
        self,
        recipe: Recipe,
        environment: Environment,
        tasks: Iterable[Task],
        attempts: Iterable[Attempt],
    ) -> None:
        self._recipe = recipe
        self._environment = environment
        self._num_finished = 0
        self._waiting: deque[tuple[int, Task]] = deque()
        self._lowest: tuple[float, Task] | None = None
        self.num_chosen = 0
        """Tasks that are timed again, begun ones included; those tried earlier do not count."""
        attempts = list(attempts)
        self._tried = _settled_keys(attempts)
        by_key = {measure_key(task, environment): task for task in tasks}
        self._has_any = any(
            retime_key(task, environment) in self._tried for task in by_key.values()
        )
        for attempt in attempts:
            task = by_key.get(attempt.key)
            if task is not None and attempt.job == "measure" and attempt.evidence is not None:
                self.finish(task, attempt.evidence)

    @property
    def has_left(self) -> bool:
        """Some task is still to be timed again."""
        return bool(self._waiting) or self._floor() is not None

    def finish(self, task: Task, evidence: object) -> None:
        """Note that a first measurement came to an end, with evidence or a final fault."""
        self._num_finished += 1
        if not isinstance(evidence, MeasureEvidence) or not evidence.timings:
            return
        score = self._score(task)
        if self._lowest is None or score < self._lowest[0]:
            self._lowest = score, task
        is_chosen = score < self._recipe.fleet.retimed
        if is_chosen and retime_key(task, self._environment) not in self._tried:
            self._choose(task)

    def among(self, requests: Iterable[Asked]) -> Iterator[Asked]:
        """Yield first measurements, and between them the second ones that are due.

        Pulled one at a time while `finish` is told what came to an end. When the first ones are
        all begun, those that wait follow at once: it is the end of the stage.
        """
        for asked in requests:
            while self._waiting and self._is_due():
                yield self._pop()
            yield asked
        while self._waiting:
            yield self._pop()

    def rest(self) -> list[Asked]:
        """Return what is left when all first measurements have come to an end.

        One task at least, if any was measured: its score is the lowest.
        """
        lowest = self._floor()
        if lowest is not None:
            self._choose(lowest)
        return [self._pop() for _ in range(len(self._waiting))]

    def _floor(self) -> Task | None:
        is_wanted = self._recipe.fleet.retimed > 0.0 and not self._has_any
        return self._lowest[1] if is_wanted and self._lowest is not None else None

    def _is_due(self) -> bool:
        return self._num_finished - self._waiting[0][0] >= MIN_FINISHED_BETWEEN

    def _choose(self, task: Task) -> None:
        self._waiting.append((self._num_finished, task))
        self._has_any = True
        self.num_chosen += 1

    def _pop(self) -> Asked:
        _, task = self._waiting.popleft()
        return retime_key(task, self._environment), retime_request(task, self._recipe)

    def _score(self, task: Task) -> float:
        """Return a number in [0, 1) that the seed and the task alone determine."""
        state = int(digest("retimed", self._recipe.seed, task.task_id), 16)
        return (state >> (_DIGEST_BITS - _SCORE_BITS)) / 2.0**_SCORE_BITS


def _settled_keys(attempts: Iterable[Attempt]) -> set[str]:
    """Return the keys of second timings that came to an end, if only in a fault."""
    by_key: dict[str, list[Attempt]] = {}
    for attempt in filter(is_retiming, attempts):
        by_key.setdefault(attempt.key, []).append(attempt)
    return {key for key, made in by_key.items() if settle(made) is not None}
