"""Folders of owners that are gone are swept; all others stay."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from children import answer, config_in

from opsgen.child import Child
from opsgen.child.folders import owned_folder, sweep_folders
from opsgen.child.process import FOLDER_PREFIX, _sweep_once

_OWNER = """
import sys, time
from opsgen.child.folders import owned_folder
with owned_folder("opsgen-child-", sys.argv[1]) as folder:
    print(folder, flush=True)
    time.sleep(60)
"""


def _owner(parent: Path) -> tuple[subprocess.Popen[str], Path]:
    process = subprocess.Popen(
        [sys.executable, "-c", _OWNER, str(parent)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def _kill(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate()


def test_a_folder_lives_as_long_as_its_owner(tmp_path: Path) -> None:
    process, folder = _owner(tmp_path)
    (folder / "inductor").mkdir()
    assert sweep_folders("opsgen-child-", str(tmp_path)) == 0
    assert (folder / "inductor").exists()
    _kill(process)
    assert folder.exists()
    assert sweep_folders("opsgen-child-", str(tmp_path)) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_folder_goes_with_its_block(tmp_path: Path) -> None:
    with owned_folder("mine-", str(tmp_path)) as folder:
        (folder / "file").touch()
        assert sweep_folders("mine-", str(tmp_path)) == 0
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_folder_of_ours_stays(tmp_path: Path) -> None:
    (tmp_path / "opsgen-child-file").touch()
    (tmp_path / "opsgen-child-new").mkdir()
    (tmp_path / "other").mkdir()
    Path(tmp_path / "opsgen-child-link").symlink_to(tmp_path / "other")
    assert sweep_folders("opsgen-child-", str(tmp_path)) == 0
    old = tmp_path / "opsgen-child-old"
    old.mkdir()
    os.utime(old, times=(time.time() - 7200,) * 2)
    assert sweep_folders("opsgen-child-", str(tmp_path)) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "opsgen-child-file", "opsgen-child-link", "opsgen-child-new", "other",
    ]  # fmt: skip


def test_the_first_child_sweeps_what_others_left(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    process, folder = _owner(tmp_path / "work")
    _kill(process)
    _sweep_once.cache_clear()
    with Child(config) as child:
        answer(child)
        assert not folder.exists()
        assert len(list((tmp_path / "work").glob(f"{FOLDER_PREFIX}*"))) == 1


def test_others_pass_through_a_folder_only_if_it_says_so_and_never_look(tmp_path: Path) -> None:
    for is_passable, mode in ((False, 0o700), (True, 0o711)):
        with owned_folder("opsgen-child-", str(tmp_path), is_passable=is_passable) as folder:
            assert folder.stat().st_mode & 0o777 == mode


@pytest.mark.check
def test_folders_of_any_depth_are_swept(tmp_path: Path) -> None:
    process, folder = _owner(tmp_path)
    _kill(process)
    home = Path.cwd()
    os.chdir(folder)
    for _ in range(1100):
        Path("down").mkdir()
        os.chdir("down")
    os.chdir(home)
    assert sweep_folders("opsgen-child-", str(tmp_path)) == 1
    assert list(tmp_path.iterdir()) == []
