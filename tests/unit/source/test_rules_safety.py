"""Code that reaches out of its task, however it is spelled, and code that only looks so."""

import pytest

from opsgen.source import check_source

IMPORTS = ("self_contained", "imports")
DENIED = ("self_contained", "denied_name")
REFLECTION = ("self_contained", "reflection")
PATCH = ("self_contained", "patches")
DECORATOR = ("self_contained", "decorators")


@pytest.mark.parametrize(
    "line",
    [
        "import os",
        "import numpy as np",
        "from transformers import AutoModel",
        "from . import other",
        "import torch.utils.cpp_extension",
        "from torch.utils import cpp_extension as c",
        "from torch import hub",
        "from torch import load as l",
        "from torch.utils.data import DataLoader",
        "from collections import _sys as s",
        "from contextlib import sys",
        "from enum import bltns",
        "import builtins",
        "from torch.overrides import TorchFunctionMode",
        "import torch.library",
    ],
)
def test_imports_off_the_list(broken, line):
    assert IMPORTS in broken(above=line)


@pytest.mark.parametrize(
    "line",
    [
        "import math",
        "import copy",
        "import collections.abc",
        "from collections import abc, OrderedDict",
        "from typing import Optional",
        "from torch.utils.checkpoint import checkpoint",
        "from torch.nn.utils import parametrizations",
        "from torch.types import Number",
        "from itertools import chain as c",
    ],
)
def test_imports_on_the_list(broken, line):
    assert broken(above=line) == set()


@pytest.mark.parametrize(
    ("above", "init"),
    [
        ("", "open('/tmp/x')"),
        ("o = open", "o('/tmp/x')"),
        ("", "eval('1')"),
        ("", "exec('x = 1')"),
        ("", "run = [exec][0]"),
        ("", "__import__('os')"),
        ("", "torch.load('f')"),
        ("import torch as t", "t.load('f')"),
        ("get = torch.load", "get('f')"),
        ("", "torch.hub.load('a', 'b')"),
        ("", "torch.ops.load_library('x')"),
        ("", "torch.utils.cpp_extension.load_inline('x', '')"),
        ("", "torch.os.system('ls')"),
        ("import warnings", "warnings.sys.exit()"),
        ("import collections", "collections._sys"),
        ("", "object.__subclasses__()"),
        ("", "().__class__.__base__"),
        ("", "self.forward.__func__.__globals__"),
        ("", "(lambda: 0).__code__"),
        ("", "__builtins__['open']"),
        ("", "globals()['x'] = 1"),
        ("", "vars(torch)['relu'] = 1"),
        ("", "compile('1', '', 'eval')"),
        ("from operator import attrgetter", "attrgetter('__globals__')(print)"),
        ("", "torch.set_default_dtype(torch.float64)"),
        ("", "torch.use_deterministic_algorithms(True)"),
        ("", "torch.from_file('x')"),
        ("", "x = (i.gi_frame for i in [])"),
    ],
)
def test_names_that_reach_out(broken, above, init):
    found = broken(above=above, init=init)
    assert found & {DENIED, IMPORTS}


@pytest.mark.parametrize(
    "init",
    [
        "getattr(torch, 'load')",
        "getattr(torch, 'lo' + 'ad')",
        "getattr(torch, f'{\"lo\"}ad')",
        "name = 'load'\ngetattr(torch, name)",
        "names = ['load']\ngetattr(torch, names[0])",
        "getattr(torch, rest[0] + rest[1])",
        "getattr(torch, '%9999999999d' % 1)",
        "getattr(torch, f'{1:>9999999999}')",
        "getattr(torch, rest[0][::-1])",
        "self.__class__ = nn.Linear",
        "getattr(self, '__dic' + 't__')",
        "getattr(self, ''.join(['__', 'class__']))",
        "getattr(self, '%%sclass__'.replace('%%s', '__'))",
        "get = getattr\nget(self, '__dict__')",
    ],
)
def test_attributes_by_built_names(broken, init):
    assert broken(init=init, args="input_name='relu', *rest") & {REFLECTION, DENIED}


@pytest.mark.parametrize(
    "init",
    [
        "self.act = getattr(F, 'relu')",
        "self.act = getattr(torch, act)",
        "self.act = getattr(nn, 'ReLU')()",
        "self.a0 = nn.ReLU()\nself.act = getattr(self, 'a' + str(0))",
        "setattr(self, 'act', nn.ReLU())",
        "self.act = nn.ReLU()\nself.kind = self.__class__.__name__",
        "self.act = nn.ReLU()\nassert self.__class__ is not None, f'{self.__class__}'",
        "self.act = getattr(torch, rest[0].name)",
        "self.act = nn.ReLU()\nopen = high = low = 3",
    ],
)
def test_attributes_by_honest_names(broken, init):
    parts = {"args": "act, *rest", "given": "'relu'"}
    assert broken("return self.act(self.linear(x))", init=init, **parts) <= {
        ("self_contained", "unused_arguments")
    }


@pytest.mark.parametrize(
    "parts",
    [
        {"below": "torch.relu = torch.tanh"},
        {"below": "F.relu = torch.tanh"},
        {"below": "nn.Linear.forward = None"},
        {"init": "setattr(torch, 'relu', torch.tanh)"},
        {"init": "from torch.nn import functional as G\nG.relu = torch.tanh"},
        {"init": "torch.backends.cudnn.benchmark = True"},
        {"forward": "torch.Tensor.__add__ = None\nreturn self.linear(x)"},
        {"below": "m = torch\nm.relu = m.tanh"},
    ],
)
def test_patches(broken, parts):
    assert PATCH in broken(**parts)


HIDING = """
def hide(f):
    return f
"""


@pytest.mark.parametrize("target", ["class Model", "def get_inputs", "def get_init_inputs"])
def test_decorators_of_its_own(written, target):
    def rules(decorator):
        code = written(above=HIDING).replace(target, f"{decorator}\n{target}")
        return {(fault.criterion, fault.rule) for fault in check_source(code)}

    assert DECORATOR in rules("@hide")
    assert DECORATOR not in rules("@torch.no_grad()")


def test_decorators_of_methods(broken):
    above = f"{HIDING}\n"
    assert DECORATOR in broken(above=above, methods="@hide\ndef __call__(self, x):\n    return x")
    assert broken(above=above, methods="@hide\ndef other(self, x):\n    return x") == set()


@pytest.mark.parametrize(
    ("takes", "forward"),
    [
        ("self, open", "return self.linear(open)"),
        ("self, input", "return self.linear(input)"),
        ("self, compile", "x = compile\nreturn self.linear(x)"),
        ("self, x", "exit = self.linear(x)\nreturn exit"),
    ],
)
def test_names_that_are_only_taken(broken, takes, forward):
    assert broken(forward, takes=takes) == set()
