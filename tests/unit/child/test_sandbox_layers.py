"""What the sandbox says of itself on this machine and on lesser ones, and what it then does."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from children import answer, config_in
from machines import ORDINARY_USER, has_numbers, on_machine

from opsgen.child import Child, describe_layers
from opsgen.child.layers import NAMES, check_required, layer_of
from opsgen.errors import MeasureError

as_root = pytest.mark.skipif(
    os.geteuid() != 0 or not has_numbers(), reason="only an administrator can play other machines"
)

LOOK = """
from opsgen.child import describe_layers
answer = {layer.name: [layer.holds, layer.obstacle] for layer in describe_layers()}
"""
TRY = """
from children import config_in
from opsgen.child import Child
from opsgen.records import NoopRequest
with Child(config_in(folder, sandbox=True)) as child:
    runs = [child.run(NoopRequest(key="k", behaviour=what)) for what in behaviours]
answer = [getattr(r, "metrics", None) or getattr(r, "detail", None) for r in runs]
answer.append([path.name for path in (folder / "work").iterdir()])
"""


def test_every_layer_has_two_sentences_of_its_own() -> None:
    sentences = {layer_of(name, holds=holds, obstacle=None).meaning for name in NAMES for holds in
                 (False, True)}  # fmt: skip
    assert len(sentences) == 2 * len(NAMES)
    assert [layer.name for layer in describe_layers()] == list(NAMES)


@pytest.mark.parametrize("gap", ["network", "files", "privileges"])
def test_foreign_code_is_refused_without_a_required_layer(gap: str) -> None:
    layers = tuple(layer_of(name, holds=name != gap, obstacle=None) for name in NAMES)
    with pytest.raises(MeasureError, match=f"lacks {gap};.*--allow-unsandboxed") as caught:
        check_required(layers)
    assert "\n" not in str(caught.value)


def test_other_layers_may_be_missing() -> None:
    required = {"network", "files", "privileges"}
    check_required(tuple(layer_of(n, holds=n in required, obstacle="x") for n in NAMES))


@pytest.fixture
def victim() -> Iterator[int]:
    with subprocess.Popen(["sleep", "60"], user=ORDINARY_USER) as process:
        yield process.pid
        assert process.poll() is None
        process.kill()


@as_root
@pytest.mark.check
@pytest.mark.parametrize("setting", ["refuse(*CONTAINER)", "become_ordinary(folder)"])
def test_lesser_machines_hold_what_is_required(setting: str, tmp_path: Path, victim: int) -> None:
    if not all(layer.holds for layer in describe_layers()):
        pytest.skip("this machine cannot play a lesser one: it is one")
    layers = on_machine(setting, LOOK, tmp_path)
    missing = [name for name, (holds, _) in layers.items() if not holds]
    assert missing in ([], ["user"])
    secret = tmp_path.parent / f"{tmp_path.name}-secret"
    secret.write_text("secret")
    behaviours = [
        "return",
        "attempt:connect,127.0.0.1:9",
        f"attempt:read,{secret}",
        f"attempt:write,{tmp_path / 'planted'}",
        "attempt:unshare,",
        "attempt:become,0",
        f"attempt:signal,{victim}",
        f"attempt:open_memory,{victim}",
        "litter:/etc",
    ]
    ran, *tried, littered, left = on_machine(setting, f"behaviours = {behaviours}\n{TRY}", tmp_path)
    assert ran is None
    assert littered is None
    if setting.startswith("refuse"):
        tried.pop(4)  # It is root, without any right of root's, if no other user can pass to here.
    assert all(attempt["errno"] > 0.0 for attempt in tried), tried
    assert left == []


@as_root
def test_a_machine_without_kernel_support_runs_no_foreign_code(tmp_path: Path) -> None:
    layers = on_machine("refuse(*OLD)", LOOK, tmp_path)
    assert not layers["network"][0]
    assert not layers["files"][0]
    assert layers["files"][1] == "unshare: Operation not permitted"
    marker = tmp_path / "ran"
    behaviours = ["return", f"attempt:write,{marker}"]
    *outcomes, left = on_machine("refuse(*OLD)", f"behaviours = {behaviours}\n{TRY}", tmp_path)
    for detail in outcomes:
        assert "lacks network" in detail
        assert "--allow-unsandboxed" in detail
    assert not marker.exists()
    assert left == []


@as_root
def test_a_fleet_says_so_before_it_starts(tmp_path: Path) -> None:
    code = """
from opsgen.errors import MeasureError
from opsgen.fleet import Fleet
from opsgen.recipe import FleetConfig
try:
    with Fleet(FleetConfig(sandbox=True), "cpu"):
        answer = ""
except MeasureError as error:
    answer = str(error)
"""
    assert "lacks network" in on_machine("refuse(*OLD)", code, tmp_path)


def test_without_being_asked_children_stay_as_they_are(tmp_path: Path) -> None:
    with Child(config_in(tmp_path)) as child:
        pid = answer(child).pid
        assert Path(f"/proc/{pid}").stat().st_uid == os.geteuid()
        assert Path(f"/proc/{pid}/ns/net").readlink() == Path("/proc/self/ns/net").readlink()
