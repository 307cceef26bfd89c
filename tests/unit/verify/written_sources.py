"""Source of tasks from a few lines."""

from __future__ import annotations

import textwrap

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
