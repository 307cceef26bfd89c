"""Builds references from a few lines of source."""

from __future__ import annotations

import contextlib
import textwrap
from collections.abc import Callable, Iterator

import pytest

from opsgen.verify import Reference, task_module

Build = Callable[..., Reference]

_TEMPLATE = """
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
{init}

    def forward(self, {names}):
{forward}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""


def task_source(forward: str, inputs: str, init: str = "pass", names: str = "x") -> str:
    def indent(block: str) -> str:
        return textwrap.indent(textwrap.dedent(block).strip(), " " * 8)

    return _TEMPLATE.format(init=indent(init), forward=indent(forward), inputs=inputs, names=names)


@pytest.fixture
def build() -> Iterator[Build]:
    """Return a function from `forward`, `inputs`, `init` and `names` to a built reference."""
    with contextlib.ExitStack() as stack:

        def make(forward: str, inputs: str, init: str = "pass", names: str = "x") -> Reference:
            code = task_source(forward, inputs, init, names)
            reference = Reference.build(stack.enter_context(task_module(code)), "cpu", 0)
            reference.state.redraw(1)
            return reference

        yield make
