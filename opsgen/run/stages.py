"""The stages in order, each resuming from what the run folder holds.

A stage asks `admit` which tasks still need it, so a task that one stage
decides costs nothing further.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from math import ceil
from pathlib import Path

import msgspec

from opsgen.admit import Case, admit_all, judge, pending, select
from opsgen.errors import PublishError, UsageError
from opsgen.fleet import Fleet, Journal, Ledger, Progress
from opsgen.records import (
    Attempt,
    Environment,
    EnvironmentRequest,
    PlanLine,
    Status,
    Task,
    Verdict,
    digest,
    encode_line,
)
from opsgen.render import render_task
from opsgen.run.cases import forgive, join_cases
from opsgen.run.folder import RunFolder, Session
from opsgen.run.report import Report, make_report
from opsgen.run.requests import (
    Asked,
    measure_key,
    measure_request,
    probe_request,
    slowest_first,
)
from opsgen.run.retiming import Retimings
from opsgen.run.usage import held_s
from opsgen.sampler import Plan

_FIRST_SURPLUS = 1.25  # lines sampled for each task wanted, before any rate is known
_MAX_LINES_PER_WANTED = 20  # give a class up when so many lines did not fill it


class Stages:
    """A run folder with the stages that fill it.

    Args:
        folder: The run's files; locked by the caller.
        fleet: Where probes and measurements run; None for the stages that need none.
    """

    def __init__(self, folder: RunFolder, fleet: Fleet | None = None) -> None:
        self.folder = folder
        self.recipe = folder.recipe
        self.fleet = fleet
        self._lines = folder.lines()
        self._attempts = folder.attempts()
        self._num_known = len(self._attempts)

    def tasks(self) -> list[Task]:
        """Return the sampled tasks, of classes that are no longer wanted too."""
        return [line.task for line in self._lines if line.task]

    def _is_wanted(self, task: Task) -> bool:
        return self.recipe.release.want.get(task.data_source, 0) > 0

    def is_complete(self) -> bool:
        """Tell whether the evidence there is fills every class, and nothing is left to time again."""
        cases = self.cases()
        chosen = select(admit_all(cases, self.recipe), self.recipe.release.want)
        return chosen.is_complete and not self.has_retimings_left(cases)

    def has_retimings_left(self, cases: Iterable[Case]) -> bool:
        """Tell whether a measured task still has to be timed once more."""
        environment = self.folder.environment()
        return environment is not None and self._retimings(cases, environment).has_left

    def lines(self) -> list[PlanLine]:
        """Return all sampled lines, those without a legal graph included."""
        return list(self._lines)

    def sample(self, num_lines: dict[str, int] | None = None) -> int:
        """Sample each class up to a number of lines.

        Args:
            num_lines: Lines by class; None for what a first round takes.

        Returns:
            How many lines were added.
        """
        num_lines = num_lines or {
            name: ceil(count * _FIRST_SURPLUS) + 1
            for name, count in self.recipe.release.want.items()
            if count
        }
        plan = Plan(self.recipe.seed, self.recipe.sample)
        fresh = list(self._missing_lines(plan, num_lines))
        self.folder.append_lines(fresh)
        self._lines += fresh
        return len(fresh)

    def _missing_lines(self, plan: Plan, num_lines: dict[str, int]) -> Iterator[PlanLine]:
        known = {(line.data_source, line.line) for line in self._lines}
        for data_source, count in num_lines.items():
            for number in range(count):
                if (data_source, number) not in known:
                    line = plan.line(data_source, number)
                    task = render_task(line) if line.sampled else None
                    yield PlanLine(
                        data_source=data_source, line=number, task=task, tries=line.tries
                    )

    def sample_more(self) -> bool:
        """Sample for the classes that are not full; False if none is left to sample for.

        Raises:
            UsageError: A class stays short however many lines are sampled.
        """
        missing = select(self.admit(), self.recipe.release.want).missing
        counts: dict[str, int] = {}
        for name, count in missing.items():
            have = sum(line.data_source == name for line in self._lines)
            wanted = self.recipe.release.want[name]
            if have >= _MAX_LINES_PER_WANTED * (wanted + 2):
                raise UsageError(
                    f"release.want: {name}: {wanted - count} of {wanted} tasks admitted "
                    f"out of {have} lines; loosen [admit] or want fewer"
                )
            counts[name] = have + ceil(count * _FIRST_SURPLUS) + 1
        return bool(counts) and self.sample(counts) > 0

    def probe(self) -> None:
        """Probe every task that is undecided and not probed."""
        tasks = [t for t in pending(self.open_cases(), self.recipe).probe if self._is_wanted(t)]
        self._attempt("probe", [(task.task_id, probe_request(task, self.recipe)) for task in tasks])

    def measure(self) -> None:
        """Measure every task that its probe did not decide.

        Raises:
            UsageError: The machine cannot measure, or is not the one that this run began on.
        """
        assert self.fleet is not None, "this stage needs a fleet"
        environment = check_machine(self.fleet, self.recipe.measure.device)
        self.folder.settle_environment(environment)
        tasks = [t for t in pending(self.open_cases(), self.recipe).measure if self._is_wanted(t)]
        requests = [
            (measure_key(task, environment), measure_request(task, self.recipe))
            for task in slowest_first(tasks)
        ]
        retimings = self._retimings(self.cases(), environment)
        if requests or retimings.has_left:
            begin = Session(started_s=time.time(), num_devices=self.fleet.num_devices)
            self.folder.append_session(begin)
            self._attempt("measure", requests, retimings)

    def _retimings(self, cases: Iterable[Case], environment: Environment) -> Retimings:
        measured = [case.task for case in cases if case.measure is not None]
        return Retimings(self.recipe, environment, measured, self._attempts)

    def admit(self) -> list[Verdict]:
        """Judge all sampled tasks on the evidence there is, and store the verdicts."""
        verdicts = admit_all(self.cases(), self.recipe)
        # By class name, so that the file does not depend on what is wanted.
        self.folder.write_verdicts(sorted(verdicts, key=lambda each: (each.data_source, each.line)))
        return verdicts

    def first_verdicts(self) -> list[Verdict]:
        """Judge all sampled tasks under the thresholds that the run began with."""
        return admit_all(self.cases(), self.folder.first_thresholds())

    def release(self, verdicts: list[Verdict]) -> Path:
        """Write the release folder of the first admitted tasks of each class.

        Raises:
            UsageError: A class lacks admitted tasks.
        """
        # Here, since it needs polars and datasets, which a GPU host may lack.
        from opsgen.release import write_release

        environment = self.folder.environment()
        try:
            return write_release(
                self.folder.path,
                cases=self.cases(),
                verdicts=verdicts,
                recipe=self.recipe,
                environments={digest(environment): environment} if environment else {},
            )
        except PublishError as error:
            raise UsageError(f"{self.folder.path}: {error}; `opsgen run` samples more") from error

    def report(self, verdicts: list[Verdict]) -> Report:
        """Add the run up so far, under these verdicts, and store what it comes to."""
        report = make_report(self.folder, self._lines, self.cases(), verdicts, self._attempts)
        self.folder.write_report(msgspec.json.format(encode_line(report)) + b"\n")
        return report

    def cases(self) -> list[Case]:
        """Return every task with its evidence."""
        return join_cases(self.tasks(), self._attempts, self.folder.environment())

    def open_cases(self) -> list[Case]:
        """Return the cases with faults of earlier runs forgiven where they only deferred."""
        attempts = forgive(self._attempts[: self._num_known]) + self._attempts[self._num_known :]
        return join_cases(self.tasks(), attempts, self.folder.environment())

    def _attempt(
        self, stage: str, requests: Sequence[Asked], retimings: Retimings | None = None
    ) -> None:
        """Send requests through the fleet and show what becomes of them."""
        if not requests and retimings is None:
            return
        assert self.fleet is not None, "this stage needs a fleet"
        tasks = {key: request.task for key, request in requests}
        by_task: dict[str, list[Attempt]] = {}
        for attempt in self._attempts:
            by_task.setdefault(attempt.key.partition("@")[0], []).append(attempt)
        with (
            closing(self._stream(requests, retimings)) as stream,
            Progress(len(requests), stage, num_devices=self.fleet.num_devices) as bar,
        ):
            for attempt, is_settled in stream:
                bar.hold(held_s(attempt))
                task = tasks.get(attempt.key)
                if task is not None:
                    by_task.setdefault(task.task_id, []).append(attempt)
                if task is not None and is_settled and retimings is not None:
                    retimings.finish(task, attempt.evidence)
                if retimings is not None:
                    bar.set_total(len(requests) + retimings.num_chosen)
                if is_settled:
                    seen = by_task[task.task_id] if task else [attempt]
                    bar.update(self._label(task, seen))

    def _stream(
        self, requests: Iterable[Asked], retimings: Retimings | None
    ) -> Generator[tuple[Attempt, bool], None, None]:
        """Yield every attempt and whether it settles its job, which may be a second timing."""
        assert self.fleet is not None, "this stage needs a fleet"
        ledger = Ledger(self._attempts)
        batch = requests if retimings is None else retimings.among(requests)
        with Journal(self.folder.journal_path) as journal:
            while batch:
                for attempt in self.fleet.run(batch, journal, self._attempts):
                    self._attempts.append(attempt)
                    yield attempt, ledger.add(attempt) is not None
                # What was in flight when the last request was drawn may have to be timed again.
                batch = [] if retimings is None else retimings.rest()

    def _label(self, task: Task | None, attempts: list[Attempt]) -> str:
        """Say in a word what the attempts at a task mean for it; a second timing has no task."""
        if attempts[-1].fault:
            reason = attempts[-1].fault.reason
            return reason if task else f"retimed: {reason}"
        if task is None:
            return "retimed"
        case = join_cases([task], attempts, self.folder.environment())[0]
        verdict = judge(case, self.recipe)
        return "ok" if verdict.status is not Status.REJECTED else str(verdict.reason)


def check_machine(fleet: Fleet, device: str) -> Environment:
    """Return the environment that a fleet's children run in.

    Raises:
        UsageError: The machine lacks something that measuring on `device` needs.
    """
    environment = fleet.ask(EnvironmentRequest(device=device))
    assert isinstance(environment, Environment)
    if environment.problems:
        raise UsageError(environment.problems[0])
    return environment
