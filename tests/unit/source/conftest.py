"""A task put together from its parts, for tests of source rules."""

from __future__ import annotations

from collections.abc import Callable
from textwrap import dedent, indent

import pytest

from opsgen.source import check_source

WRITTEN = """\
import torch
import torch.nn as nn
import torch.nn.functional as F
{above}

class Model(nn.Module):
    def __init__(self{args}):
        super().__init__()
        self.linear = nn.Linear(16, 16)
{init}

{methods}

    def forward({takes}):
{forward}


{below}


def get_inputs():
{inputs}


def get_init_inputs():
    return [{given}]
"""


def write_task(
    forward: str = "return self.linear(x)",
    *,
    init: str = "",
    inputs: str = "return [torch.randn(8, 16)]",
    **parts: str,
) -> str:
    """Return a task's code; parts are `above`, `below`, `args`, `given`, `methods`, `takes`."""
    names = ("above", "below", "args", "given", "methods")
    texts = {name: dedent(parts.get(name, "")) for name in names}
    texts["args"] = f", {texts['args']}" if texts["args"] else ""
    texts["methods"] = indent(texts["methods"], " " * 4)
    return WRITTEN.format(
        **texts,
        takes=parts.get("takes", "self, x"),
        init=indent(dedent(init), " " * 8),
        forward=indent(dedent(forward), " " * 8),
        inputs=indent(dedent(inputs), " " * 4),
    )


@pytest.fixture(scope="session")
def written() -> Callable[..., str]:
    """Return the function that writes a task from its parts."""
    return write_task


@pytest.fixture(scope="session")
def broken() -> Callable[..., set[tuple[str, str]]]:
    """Return a function from a task's parts to the pairs of criterion and rule that it breaks."""

    def rules(*args: str, **parts: str) -> set[tuple[str, str]]:
        code = write_task(*args, **parts)
        compile(code, "<task>", "exec")
        return {(fault.criterion, fault.rule) for fault in check_source(code)}

    return rules
