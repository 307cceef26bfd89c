"""Makes `opsgen/tables/cooccurrence.toml`: which op reads what another made in public models.

    python tests/tables/count_pairs.py trace WORK [--minutes 10] [--part 0/2] [--only REGEX]
    python tests/tables/count_pairs.py write WORK

`trace` runs models on `meta`, where nothing is computed, and appends a line for each to a file
in the folder WORK; it goes on where earlier calls stopped. A model that raises half-way keeps
what it showed until then. `write` counts in how many model classes each pair occurs. Only
facts about the models are kept, no code.
"""

from __future__ import annotations

import argparse
import json
import logging
import re
import signal
import time
import traceback
from collections import Counter
from importlib import metadata
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from model_tracing import recorded
from public_models import Case, public_cases, stand_in_for_compiled_ops

from opsgen.sampler import pairs

TABLE = Path(pairs.__file__).parents[1] / "tables" / "cooccurrence.toml"
_DEADLINE_S = 30
_HEADER = """\
# In how many model classes of public packages an op (left of the brace) hands what it made to
# another (inside), views without an op of their own passed over. Counted by
# `python tests/tables/count_pairs.py` on 2026-12-01 with torch {torch}, default configurations
# with at most four layers, on `meta`: {classes} classes, {whole} of which ran to their end and
# {broken} of which raised before, with what they had shown until then.
"""


class _TooLongError(Exception):
    """A model took longer than any is given."""


def _stop(_signal: int, _frame: FrameType | None) -> None:
    raise _TooLongError


def trace(arguments: argparse.Namespace) -> None:
    """Trace models until they or the minutes are spent."""
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    part, parts = (int(number) for number in arguments.part.split("/"))
    work: Path = arguments.work
    work.mkdir(parents=True, exist_ok=True)
    known = {line["name"] for line in read_lines(work)}
    signal.signal(signal.SIGALRM, _stop)
    end = time.monotonic() + 60 * arguments.minutes
    with (work / f"models-{part}-{parts}.jsonl").open("a") as lines:
        for case in public_cases()[part::parts]:
            if case[0] in known or not re.search(arguments.only, case[0]):
                continue
            if time.monotonic() > end:
                return
            lines.write(json.dumps(_trace_one(case)) + "\n")
            lines.flush()


def _trace_one(case: Case) -> dict[str, Any]:
    name, build = case
    found: dict[str, Any] = {"name": name, "class": None, "edges": [], "fault": None}
    signal.alarm(_DEADLINE_S)
    try:
        with torch.device("meta"):
            model, inputs = build()
            found["class"] = f"{type(model).__module__}.{type(model).__name__}"
            with recorded() as recorder:
                found["edges"] = recorder.edges
                model.eval()(**inputs)
    except Exception as error:  # noqa: BLE001 - any model may fail in any way
        found["fault"] = traceback.format_exception_only(error)[-1].strip()[:300]
    finally:
        signal.alarm(0)
    found["edges"] = sorted(found["edges"])
    return found


def read_lines(work: Path) -> list[dict[str, Any]]:
    """Return what was traced so far."""
    return [
        json.loads(line)
        for path in sorted(work.glob("models-*.jsonl"))
        for line in path.read_text().splitlines()
    ]


def write(arguments: argparse.Namespace) -> None:
    """Write the table that ships."""
    edges: dict[str, set[tuple[str, str]]] = {}
    whole: set[str] = set()
    for line in read_lines(arguments.work):
        if line["edges"]:
            edges.setdefault(line["class"], set()).update(map(tuple, line["edges"]))
            whole |= {line["class"]} if line["fault"] is None else set()
    counts = Counter(pair for found in edges.values() for pair in found)
    text = _HEADER.format(
        torch=torch.__version__.partition("+")[0],
        classes=len(edges),
        whole=len(whole),
        broken=len(edges) - len(whole),
    )
    for package in ("transformers", "timm", "torchvision"):
        number = sum(name.startswith(f"{package}.") for name in edges)
        known = metadata.metadata(package)
        version = known["Version"].partition("+")[0]
        text += f"# {package} {version} ({known['License']}): {number} classes\n"
    text += "\n[seen]\n"
    for first in sorted({first for first, _ in counts}):
        row = ", ".join(f"{b} = {n}" for (a, b), n in sorted(counts.items()) if a == first)
        text += f"{first} = {{ {row} }}\n"
    TABLE.write_text(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=("trace", "write"))
    parser.add_argument("work", type=Path)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--part", default="0/1")
    parser.add_argument("--only", default="", help="regular expression found in model names")
    arguments = parser.parse_args()
    library = stand_in_for_compiled_ops()
    trace(arguments) if arguments.action == "trace" else write(arguments)
    del library


if __name__ == "__main__":
    main()
