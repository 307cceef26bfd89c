"""What must work on a machine without torch, and fast."""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("torch", "datasets", "polars", "distributed", "pyarrow", "numpy")


def _loaded_by(statement: str) -> set[str]:
    code = f"{statement}\nimport sys\nprint(*[n for n in {HEAVY!r} if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return set(done.stdout.split())


def test_importing_opsgen_loads_nothing_heavy() -> None:
    assert _loaded_by("import opsgen") == set()


def test_sampling_and_rendering_need_no_torch() -> None:
    statement = (
        "import sys; sys.modules['torch'] = None\n"
        "from opsgen.recipe import SampleConfig\n"
        "from opsgen.render import render_task\n"
        "from opsgen.sampler import Plan\n"
        "assert 'class Model' in render_task(Plan(1, SampleConfig()).line('torch#2', 0)).code\n"
        "del sys.modules['torch']"
    )
    assert _loaded_by(statement) == set()


def test_the_fleet_loads_no_torch() -> None:
    assert "torch" not in _loaded_by("import opsgen.fleet")


def test_a_gpu_host_needs_neither_polars_nor_datasets() -> None:
    statement = (
        "import sys; sys.modules['polars'] = sys.modules['datasets'] = None\n"
        "import opsgen.cli, opsgen.run.auditing, opsgen.jobs.probe, opsgen.jobs.measure\n"
        "del sys.modules['polars'], sys.modules['datasets']"
    )
    assert "polars" not in _loaded_by(statement)
