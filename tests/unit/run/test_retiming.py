"""Second timings: which, when, once, and never in place of the first."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from run_fakes import HERE, FakeFleet, lines_of, measured

from opsgen.fleet import Fleet
from opsgen.recipe import FleetConfig, Recipe
from opsgen.records import Attempt, Fault, MeasureEvidence, MeasureRequest, Task
from opsgen.run import RunFolder, Stages, measure_key
from opsgen.run.foreign import ForeignStages
from opsgen.run.requests import is_retiming, retime_key
from opsgen.run.retiming import MIN_FINISHED_BETWEEN, Retimings

TASKS = [line.task for line in lines_of(120) if line.task]


def recipe_of(retimed: float, seed: int = 1) -> Recipe:
    recipe = Recipe(name="again", seed=seed, fleet=FleetConfig(retimed=retimed))
    release = msgspec.structs.replace(recipe.release, want={"foreign": 100})
    return msgspec.structs.replace(recipe, release=release)


def attempt_at(key: str, outcome: MeasureEvidence | Fault) -> Attempt:
    is_fault = isinstance(outcome, Fault)
    content = {"fault": outcome} if is_fault else {"evidence": outcome}
    return Attempt(
        job="measure", key=key, number=0, host="h", pid=1, started_s=0.0, wall_s=1.0, **content
    )


def play(
    retimings: Retimings, tasks: list[Task], window: int, failing: set[str]
) -> list[tuple[str, int]]:
    """Run a stage without a fleet; return the keys in the order drawn with what had finished."""
    by_key = {measure_key(task, HERE): task for task in tasks}
    asked = [(key, cast("MeasureRequest", None)) for key in by_key]
    stream = retimings.among(asked)
    drawn: list[tuple[str, int]] = []
    flying: list[str] = []
    num_finished = 0
    while True:
        while len(flying) < window and (pair := next(stream, None)):
            drawn.append((pair[0], num_finished))
            flying.append(pair[0])
        if not flying:
            break
        task = by_key.get(flying.pop(0))
        if task is not None:
            num_finished += 1
            evidence = None if task.task_id in failing else measured()
            retimings.finish(task, evidence)
    return drawn + [(key, num_finished) for key, _ in retimings.rest()]


@given(
    num=st.integers(0, 120),
    share=st.sampled_from((0.0, 0.01, 0.02, 0.1, 0.5, 1.0)),
    window=st.integers(1, 40),
    failing=st.sets(st.integers(0, 119), max_size=60),
    seed=st.integers(0, 9),
)
def test_a_share_is_timed_again_far_behind_its_first_time(
    num: int, share: float, window: int, failing: set[int], seed: int
) -> None:
    tasks = TASKS[:num]
    failed = {TASKS[number].task_id for number in failing}
    retimings = Retimings(recipe_of(share, seed), HERE, [], [])
    drawn = play(retimings, tasks, window, failed)
    measurable = [task for task in tasks if task.task_id not in failed]
    again = [(key, count) for key, count in drawn if key.startswith("retimed:")]
    keys = {retime_key(task, HERE) for task in measurable}
    assert {key for key, _ in again} <= keys
    assert len({key for key, _ in again}) == len(again) == retimings.num_chosen
    assert bool(again) == (share > 0.0 and bool(measurable))
    if share == 1.0:
        assert len(again) == len(measurable)
    order = [key for key, _ in drawn]
    last_first = max((order.index(measure_key(task, HERE)) for task in tasks), default=-1)
    place = {retime_key(task, HERE): number for number, task in enumerate(tasks, start=1)}
    for key, num_finished in again:
        # Nothing is timed again before its first time came to an end, and well after it unless
        # there is no other work left.
        assert num_finished >= place[key]
        if order.index(key) < last_first:
            assert num_finished - place[key] >= MIN_FINISHED_BETWEEN
    assert not retimings.has_left


@given(share=st.sampled_from((0.02, 0.3, 1.0)), cut=st.integers(0, 60), seed=st.integers(0, 9))
def test_a_later_session_goes_on_where_the_first_was_cut(share: float, cut: int, seed: int) -> None:
    recipe, tasks = recipe_of(share, seed), TASKS[:50]
    whole = {key for key, _ in play(Retimings(recipe, HERE, [], []), tasks, 5, set())}
    drawn = [key for key, _ in play(Retimings(recipe, HERE, [], []), tasks, 5, set())][:cut]
    history = [attempt_at(key, measured()) for key in drawn]
    left = [task for task in tasks if measure_key(task, HERE) not in drawn]
    done = [task for task in tasks if measure_key(task, HERE) in drawn]
    later = [key for key, _ in play(Retimings(recipe, HERE, done, history), left, 5, set())]
    assert not set(drawn) & set(later)
    if share == 1.0 or not {key for key in drawn if key.startswith("retimed:")}:
        assert set(drawn) | set(later) == whole
    retimings = Retimings(recipe, HERE, tasks, [attempt_at(key, measured()) for key in whole])
    assert not retimings.has_left


def test_shares_agree_with_what_is_chosen() -> None:
    chosen = [
        sum(key.startswith("retimed:") for key, _ in play(retimings, TASKS, 8, set()))
        for seed in range(20)
        for retimings in [Retimings(recipe_of(0.1, seed), HERE, [], [])]
    ]
    # Of 2,400 draws at 0.1: within five standard deviations of 240.
    assert 166 < sum(chosen) < 314


def test_only_what_came_to_an_end_counts_as_tried() -> None:
    task = TASKS[0]
    first = attempt_at(measure_key(task, HERE), measured())
    lost = Fault(reason="worker_lost", stage="", detail="")
    raised = Fault(reason="raised", stage="time", detail="")
    for fault, is_left in ((lost, True), (raised, False)):
        history = [first, attempt_at(retime_key(task, HERE), fault)]
        assert Retimings(recipe_of(1.0), HERE, [task], history).has_left == is_left
        assert Retimings(recipe_of(1e-9), HERE, [task], history).has_left == is_left
    assert not Retimings(recipe_of(0.0), HERE, [task], [first]).has_left


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path / "run", recipe_of(0.2))
    with folder.locked():
        folder.append_lines(lines_of(60))
    return folder


def measure(folder: RunFolder, fleet: FakeFleet) -> Stages:
    stages = Stages(folder, cast("Fleet", fleet))
    stages.probe()
    stages.measure()
    return stages


def test_a_stage_times_again_and_resumes(folder: RunFolder) -> None:
    whole = FakeFleet()
    stages = measure(folder, whole)
    again = {key for key, _ in whole.begun if key.startswith("retimed:")}
    assert 0 < len(again) < 60
    for key, request in whole.begun:
        if isinstance(request, MeasureRequest):
            assert request.checks == (key not in again)
    assert not stages.has_retimings_left(stages.cases())
    nothing = FakeFleet()
    measure(folder, nothing)
    assert nothing.begun == []
    assert len(folder.sessions()) == 1
    assert folder.sessions()[0].num_devices == 2


@pytest.mark.parametrize("num_attempts", [61, 75, 90, 115, 121, 127])
def test_what_an_interrupt_cut_off_is_done_once(folder: RunFolder, num_attempts: int) -> None:
    with pytest.raises(KeyboardInterrupt):
        measure(folder, FakeFleet(stop_after=num_attempts))
    assert len(folder.attempts()) == num_attempts
    before = {attempt.key for attempt in folder.attempts()}
    rest = FakeFleet()
    stages = measure(folder, rest)
    assert before.isdisjoint(key for key, _ in rest.begun)
    assert not stages.has_retimings_left(stages.cases())
    keys = [attempt.key for attempt in folder.attempts()]
    assert len(set(keys)) == len(keys)
    assert len(folder.sessions()) == 2


def test_a_second_time_decides_nothing(folder: RunFolder) -> None:
    broken = measured(num_nonfinite=9, timings=(measured(900.0).timings[0],))

    def answer(key: str, request: MeasureRequest) -> MeasureEvidence | Fault:
        return measured() if request.checks else broken

    stages = measure(folder, FakeFleet(answer))
    assert any(map(is_retiming, folder.attempts()))
    for case in stages.cases():
        assert case.measure is not None
        assert case.measure.timings[0].median_ms == 2.0
        assert case.measure_faults == ()
    alone = msgspec.structs.replace(folder.recipe, fleet=FleetConfig(retimed=0.0))
    other = RunFolder(folder.path.with_name("alone"), alone)
    with other.locked():
        other.append_lines(lines_of(60))
    fleet = FakeFleet(answer)
    assert measure(other, fleet).admit() == stages.admit()
    assert len(fleet.begun) == 120


def test_a_second_time_that_fails_is_the_tasks_nor_the_runs_fault(folder: RunFolder) -> None:
    crash = Fault(reason="raised", stage="time", detail="the second time")

    def answer(key: str, request: MeasureRequest) -> MeasureEvidence | Fault:
        return measured() if request.checks else crash

    stages = measure(folder, FakeFleet(answer))
    report = stages.report(stages.admit())
    assert report.num_faulted == 0
    assert report.retimed.num_tasks == 0
    assert report.gpu_min["fault: raised"] == 0.0
    assert not stages.has_retimings_left(stages.cases())


def test_a_text_that_stands_twice_is_timed_again_once(tmp_path: Path) -> None:
    (line,) = lines_of(1)
    assert line.task is not None
    twin = msgspec.structs.replace(line.task, line=1)
    folder = RunFolder(tmp_path / "run", recipe_of(1.0))
    fleet = FakeFleet()
    with folder.locked():
        folder.append_lines([line, msgspec.structs.replace(line, line=1, task=twin)])
        stages = ForeignStages(folder, cast("Fleet", fleet))
        stages.probe()
        stages.measure()
        report = stages.report(stages.admit())
    assert [key for key, _ in fleet.begun] == [
        line.task.task_id,
        measure_key(line.task, HERE),
        retime_key(line.task, HERE),
    ]
    assert report.retimed.num_tasks == 1
    assert "not judged" not in report.gpu_min
