"""Times that do not repeat are told where the command ends, and times that do are not."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from opsgen.cli import recipes
from opsgen.run import Stages


@pytest.mark.parametrize("drift", [None, "times drift: eager of 9 tasks timed again differs"])
@pytest.mark.parametrize("as_json", [True, False])
def test_a_single_stage_tells_drift_in_a_line(
    drift: str | None, as_json: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    reported: list[object] = []

    def report(verdicts: object) -> SimpleNamespace:
        reported.append(verdicts)
        return SimpleNamespace(drift=drift)

    stages = SimpleNamespace(
        admit=list, lines=list, report=report, folder=SimpleNamespace(path=Path("run"))
    )
    recipes._say(as_json, cast("Stages", stages), "measured")
    told = capsys.readouterr()
    assert told.err == (f"{drift}\n" if drift else "")
    assert reported == [[]]  # the report is written by every stage
    assert json.loads(told.out) if as_json else "measured; run folder: run" in told.out
