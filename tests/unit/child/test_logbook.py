"""A logbook says what was written last, whatever its file went through, and lets nothing grow."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from opsgen.child.logbook import Logbook, Page, birth_of


def _pages() -> st.SearchStrategy[Page]:
    return st.builds(
        Page,
        holder=st.integers(0, 2**22),
        birth=st.integers(0, 2**60),
        num_holds=st.integers(0, 2**32 - 1),
        is_due=st.booleans(),
        reference_ms=st.none() | st.floats(1e-9, 1e9),
    )


@given(page=_pages(), later=_pages())
def test_all_readers_see_what_was_written_last(page: Page, later: Page) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "gpu.logbook"
        first, second = Logbook(path), Logbook(path)
        assert first.read() == second.read() == Page()
        first.write(page)
        assert second.read() == page
        second.write(later)
        assert first.read() == Logbook(path).read() == later


@given(content=st.binary(max_size=200))
def test_anything_else_in_the_file_is_a_page_that_asks_for_a_check(content: bytes) -> None:
    assume(any(content))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "gpu.logbook"
        path.write_bytes(content)
        logbook = Logbook(path)
        assert logbook.read() == Page(is_due=True)
        logbook.write(Page(num_holds=3))
        assert Logbook(path).read() == Page(num_holds=3)


@given(page=_pages(), data=st.data())
def test_a_page_that_is_torn_between_two_asks_for_a_check(page: Page, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "gpu.logbook"
        Logbook(path).write(Page(holder=1, num_holds=2, reference_ms=0.5))
        before = path.read_bytes()
        Logbook(path).write(page)
        after = path.read_bytes()
        torn = after[: (cut := data.draw(st.integers(0, len(after))))] + before[cut:]
        assume(torn not in (before, after))
        path.write_bytes(torn)
        assert Logbook(path).read() == Page(is_due=True)


def test_the_reference_is_set_alone(tmp_path: Path) -> None:
    logbook = Logbook(tmp_path / "gpu.logbook")
    logbook.write(Page(holder=4, num_holds=7, is_due=True))
    assert logbook.reference_ms is None
    logbook.reference_ms = 0.25
    assert logbook.read() == Page(holder=4, num_holds=7, is_due=True, reference_ms=0.25)
    for wrong in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="reference"):
            logbook.reference_ms = wrong
    assert logbook.reference_ms == 0.25


def test_the_file_has_one_size_and_no_descriptor_stays_open(tmp_path: Path) -> None:
    path = tmp_path / "gpu.logbook"
    logbook = Logbook(path)
    size_bytes = path.stat().st_size
    path.write_bytes(b"x" * 4096)
    Logbook(path).write(Page())
    assert path.stat().st_size == size_bytes
    assert logbook.read() == Page()
    opened = [os.path.realpath(entry) for entry in Path("/proc/self/fd").iterdir()]
    assert opened
    assert str(path.resolve()) not in opened


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").write_bytes(b"precious")
    (tmp_path / "gpu.logbook").symlink_to(tmp_path / "precious")
    with pytest.raises(OSError, match=r"gpu\.logbook"):
        Logbook(tmp_path / "gpu.logbook")
    assert (tmp_path / "precious").read_bytes() == b"precious"


def test_processes_of_the_same_id_are_told_apart_by_their_birth() -> None:
    assert 0 < birth_of(1) <= birth_of(os.getpid())
    assert birth_of(2**22 + 1) == 0
