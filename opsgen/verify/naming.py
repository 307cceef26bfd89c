"""One name for a call however it is spelled: `nn.ReLU`, `F.relu`, `torch.relu`, `x.relu()`.

Names are compared by their last part without case and underscores, modules by
the function that does their work; what torch has under several names goes by one.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence

import torch
from torch import nn

_HOMES = (
    ("torch.nn.functional", nn.functional),
    ("torch", torch),
    ("torch.special", torch.special),
    ("torch.linalg", torch.linalg),
    ("torch.fft", torch.fft),
    ("torch.Tensor", torch.Tensor),
)
_SYNONYMS = {
    "absolute": "abs",
    "divide": "div",
    "truedivide": "div",
    "truediv": "div",
    "floordiv": "floordivide",
    "multiply": "mul",
    "subtract": "sub",
    "rsub": "sub",
    "negative": "neg",
    "positive": "clone",
    "clip": "clamp",
    "greater": "gt",
    "greaterequal": "ge",
    "less": "lt",
    "lessequal": "le",
    "notequal": "ne",
    "arccos": "acos",
    "arccosh": "acosh",
    "arcsin": "asin",
    "arcsinh": "asinh",
    "arctan": "atan",
    "arctan2": "atan2",
    "arctanh": "atanh",
    "expit": "sigmoid",
    "fix": "trunc",
    "concat": "cat",
    "concatenate": "cat",
    "swapaxes": "transpose",
    "swapdims": "transpose",
    "moveaxis": "movedim",
    "rowstack": "vstack",
    "psi": "digamma",
    "gammaln": "lgamma",
    "ger": "outer",
    "mod": "remainder",
    "tile": "repeat",
    "trapz": "trapezoid",
    "vectornorm": "norm",
    "matrixnorm": "norm",
    "clampmin": "clamp",
    "clampmax": "clamp",
    "square": "pow",
    "multiheadattention": "multiheadattentionforward",
    "upsample": "interpolate",
    "bceloss": "binarycrossentropy",
    "bcewithlogitsloss": "binarycrossentropywithlogits",
    "upsamplingbilinear2d": "interpolate",
    "upsamplingnearest2d": "interpolate",
    "zeropad1d": "pad",
    "zeropad2d": "pad",
    "zeropad3d": "pad",
    "constantpad1d": "pad",
    "constantpad2d": "pad",
    "constantpad3d": "pad",
    "reflectionpad1d": "pad",
    "reflectionpad2d": "pad",
    "reflectionpad3d": "pad",
    "replicationpad1d": "pad",
    "replicationpad2d": "pad",
    "replicationpad3d": "pad",
    "circularpad1d": "pad",
    "circularpad2d": "pad",
    "circularpad3d": "pad",
}
_OPERATORS = {
    "+": "add",
    "-": "sub",
    "*": "mul",
    "/": "div",
    "//": "floordivide",
    "%": "remainder",
    "**": "pow",
    "@": "matmul",
    "==": "eq",
    "!=": "ne",
    "<": "lt",
    "<=": "le",
    ">": "gt",
    ">=": "ge",
    "&": "and",
    "|": "or",
    "^": "xor",
    "~": "bitwisenot",
    "[]": "getitem",
}


def canonical_call(names: Sequence[str]) -> str:
    """Return the one name of a call that goes by `names`, such as `torch.nn.functional.relu`."""
    for name in names:
        key = alias_of(name)
        if key in _known():
            return _known()[key]
    return names[0]


@functools.cache
def alias_of(name: str) -> str:
    """Return what all spellings of a call have in common, such as `relu` or `conv2d`."""
    if name.strip() in _OPERATORS:
        return _OPERATORS[name.strip()]
    last = name.rpartition(".")[2].strip().removesuffix("()")
    is_class = last[:1].isupper()
    key = re.sub(r"[^a-z0-9]", "", last.lower())
    dunder = last.startswith("__") and last.endswith("__")
    if dunder and key[:1] in "ri" and _resolved(key[1:]) in _functions():
        key = key[1:] if _resolved(key) not in _functions() else key
    key = _resolved(key)
    return _function_of(key) if is_class else key


def is_function(alias: str) -> bool:
    """Whether torch has a public function or method behind an alias."""
    return alias in _functions()


def _resolved(key: str) -> str:
    return _SYNONYMS.get(key, key)


def _function_of(key: str) -> str:
    """Return the function that does the work of a module class."""
    bare = re.sub(r"[123]d$", "", key)
    for candidate in (key, key.removesuffix("loss"), bare, f"{key}loss"):
        if _resolved(candidate) in _functions():
            return _resolved(candidate)
    return key


@functools.cache
def _functions() -> frozenset[str]:
    return frozenset(_known())


@functools.cache
def _known() -> dict[str, str]:
    """Return the qualified name behind every alias."""
    found: dict[str, str] = {}
    for home, owner in _HOMES:
        for name in dir(owner):
            value = getattr(owner, name, None)
            if callable(value) and not isinstance(value, type) and not name.startswith("_"):
                key = re.sub(r"[^a-z0-9]", "", name.lower())
                if not name.endswith("_"):
                    found.setdefault(_resolved(key), f"{home}.{name}")
    return found
