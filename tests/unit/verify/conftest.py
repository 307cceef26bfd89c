"""Builds references from a few lines of source."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest
import torch
from written_sources import task_source

from opsgen.verify import Reference, task_module

Build = Callable[..., Reference]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Keep threads that wait for a busy core from using up what surgery may take."""
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(num_threads)


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
