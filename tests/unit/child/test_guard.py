"""What a job changes, no later job sees; only what cannot be undone costs the process."""

from __future__ import annotations

import importlib
import sys
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from children import alive_in, answer, config_in, fault

from opsgen.child import Child
from opsgen.child.guard import StateGuard
from opsgen.child.interpreter import keep_modules
from opsgen.jobs import state
from opsgen.jobs.meddling import PUT_BACK, SPOILING, read_state
from opsgen.records import Environment, EnvironmentRequest


@pytest.fixture(name="child", scope="module")
def _child(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Child]:
    with Child(config_in(tmp_path_factory.mktemp("child"), recycle_after=1000)) as child:
        yield child


@pytest.fixture(name="torch_child", scope="module")
def _torch_child(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Child]:
    config = config_in(
        tmp_path_factory.mktemp("torch"), recycle_after=1000, memory_limit_gib=4.0,
        deadlines_s={"noop": 20.0},
    )  # fmt: skip
    with Child(config) as child:
        yield child


def _names(changes: dict[str, object], *, of_torch: bool) -> list[str]:
    return [name for name in changes if name.startswith("torch_") == of_torch]


def _load_torch(child: Child) -> None:
    """Have the child load torch the way its own jobs do."""
    assert isinstance(child.run(EnvironmentRequest(device="cpu")), Environment)


@pytest.mark.parametrize("name", _names(PUT_BACK, of_torch=False))
def test_what_can_be_put_back_is(child: Child, name: str) -> None:
    before = answer(child, "state")
    assert answer(child, f"change:{name}").pid == before.pid
    assert answer(child, "state") == before


@pytest.mark.parametrize("name", _names(SPOILING, of_torch=False))
def test_what_cannot_be_undone_ends_with_its_process(child: Child, name: str) -> None:
    before = answer(child, "state")
    assert answer(child, f"change:{name}").pid == before.pid
    after = answer(child, "state")
    assert after.pid != before.pid
    own = {"folder": 0.0, "environment": 0.0}  # Every process has its own.
    assert after.metrics | own == before.metrics | own


def test_parts_that_an_extension_registers_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As triton's do: compiled modules have no spec, and are never imported again."""
    (tmp_path / "extension.py").write_text(
        "import sys, types\nsys.modules['extension.part'] = types.ModuleType('extension.part')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    check = keep_modules()
    importlib.import_module("extension")
    sys.modules["left_behind"] = types.ModuleType("left_behind")
    assert list(check()) == []
    assert sys.modules.pop("extension.part")
    assert sys.modules.pop("extension")
    assert "left_behind" not in sys.modules


@pytest.mark.check
@pytest.mark.parametrize("name", _names(PUT_BACK, of_torch=True))
def test_torchs_switches_are_put_back(torch_child: Child, name: str) -> None:
    _load_torch(torch_child)
    before = answer(torch_child, "state")
    assert answer(torch_child, f"change:{name}").pid == before.pid
    assert answer(torch_child, "state") == before


@pytest.mark.parametrize("name", _names(SPOILING, of_torch=True))
def test_what_of_torch_was_replaced_spoils_and_is_put_back(name: str) -> None:
    StateGuard(state.KEEPERS)  # Loads what it looks at.
    before = read_state()
    guard = StateGuard(state.KEEPERS)
    SPOILING[name]()
    try:
        reason = guard.restore()
    finally:
        guard.restore()
    assert reason is not None
    assert reason.count(",") == 0
    assert reason.startswith(("replaced ", "added ", "changed ", "left "))
    assert read_state() == before
    assert guard.restore() is None


@pytest.mark.check
@pytest.mark.parametrize("name", ["torch_functional", "torch_mode"])
def test_what_of_torch_was_replaced_ends_with_its_process(torch_child: Child, name: str) -> None:
    _load_torch(torch_child)
    pid = answer(torch_child).pid
    assert answer(torch_child, f"change:{name}").pid == pid
    assert answer(torch_child).pid != pid


@pytest.mark.check
def test_a_job_that_loads_torch_itself_ends_its_process(torch_child: Child) -> None:
    pid = answer(torch_child, "spoil").pid
    pid = answer(torch_child).pid
    assert pid == answer(torch_child, "change:torch_dtype").pid
    assert answer(torch_child).pid != pid


def test_changes_of_a_job_that_fails_are_put_back_too(child: Child) -> None:
    before = answer(child, "state")
    assert fault(child, "change:no such change").reason == "raised"
    assert answer(child, "state") == before


def test_a_fatal_signal_is_explained_even_after_its_handler_was_changed(child: Child) -> None:
    answer(child, "change:fatal_handler")
    assert "_segfault" in fault(child, "segfault").log


@pytest.mark.parametrize("behaviour", ["late_exit", "change:alarm"])
def test_a_death_that_was_set_up_hits_no_later_job(child: Child, behaviour: str) -> None:
    answer(child, behaviour)
    answer(child, "sleep:0.4")


@pytest.mark.parametrize("behaviour", ["orphan", "escape", "change:helper"])
def test_helpers_end_with_the_job_that_left_them(tmp_path: Path, behaviour: str) -> None:
    with Child(config_in(tmp_path)) as child:
        pid = answer(child, behaviour).pid
        assert answer(child).pid != pid
        assert alive_in(tmp_path) == [child.pid]
    assert alive_in(tmp_path) == []


@pytest.mark.timing
def test_guarding_costs_next_to_nothing(
    child: Child, record_property: Callable[[str, object], None]
) -> None:
    answer(child)
    begin_s = time.perf_counter()
    for _ in range(50):
        answer(child)
    each_ms = (time.perf_counter() - begin_s) / 50 * 1e3
    record_property("an empty job, ms", f"{each_ms:.2f}")
    assert each_ms < 25.0
