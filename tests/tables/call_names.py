"""From a call of torch to the catalogue op that it is, read off the entries' spellings.

A name that only one entry spells decides by itself; where several share one (`torch.add`
of a tensor or of a number), the arguments decide, by the rules below.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any

from torch import Tensor, nn
from torch.overrides import resolve_name

from opsgen.ops import BLOCK_OPS, CATALOGUE

Args = tuple[Any, ...]
Keywords = dict[str, Any]

_DUNDERS = {
    "__add__": "add",
    "__radd__": "add",
    "__iadd__": "add",
    "__sub__": "sub",
    "__isub__": "sub",
    "__rsub__": "rsub",
    "__mul__": "mul",
    "__rmul__": "mul",
    "__imul__": "mul",
    "__truediv__": "div",
    "__itruediv__": "div",
    "__rtruediv__": "rdiv",
    "__floordiv__": "floor_divide",
    "__mod__": "remainder",
    "__pow__": "pow",
    "__rpow__": "rpow",
    "__matmul__": "matmul",
    "__neg__": "neg",
    "__abs__": "abs",
}
# Module classes of other packages that are, under a name of their own, what an entry spells.
_TWINS = {
    "NewGELUActivation": "gelu",
    "FastGELUActivation": "gelu",
    "AccurateGELUActivation": "gelu",
    "GELUActivation": "gelu",
    "GELUTanh": "gelu",
    "Conv1D": "linear",
}


@cache
def _names() -> dict[str, tuple[str, ...]]:
    """Map a qualified torch name to the entries that are spelled so, composites' own left out."""
    found: dict[str, dict[str, None]] = {}
    for name, op in CATALOGUE.items():
        for spelling in op.spellings:
            if name not in BLOCK_OPS:
                found.setdefault(spelling.name, {})[name] = None
    return {name: tuple(ops) for name, ops in found.items()}


@cache
def _equations() -> dict[str, str]:
    found = {}
    for name, op in CATALOGUE.items():
        for spelling in op.spellings:
            match = re.match(r'torch\.einsum\("([^"]+)"', spelling.call)
            if match and name not in BLOCK_OPS:
                found[_normal(match.group(1))] = name
    return found


def _normal(equation: str) -> str:
    letters: dict[str, str] = {}
    return "".join(
        letters.setdefault(letter, chr(ord("a") + len(letters))) if letter.isalpha() else letter
        for letter in equation.replace(" ", "")
    )


def op_of_module(module: nn.Module) -> str | None:
    """Return the op that a whole module is; None where what it calls should be read instead."""
    kind = type(module)
    if kind.__name__ in _TWINS:
        return _TWINS[kind.__name__]
    if "RMSNorm" in kind.__name__ and isinstance(getattr(module, "weight", None), Tensor):
        return "rms_norm"
    own = next((b for b in kind.__mro__ if b.__module__.startswith("torch.nn.modules.")), None)
    if own is None or kind.forward is not own.forward:
        return None
    names = _names().get(f"torch.nn.{own.__name__}", ())
    if len(names) == 1:
        return names[0]
    if isinstance(module, nn.LayerNorm):
        return _layer_norm(module.normalized_shape)
    if isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d):
        return _convolution(own.__name__.lower(), module.groups, module.in_channels)
    return None


def is_twin(module: nn.Module) -> bool:
    """Whether a module's own calls are real code too, to be read beside the op it is."""
    return not type(module).__module__.startswith("torch.nn.")


def op_of_call(func: Callable[..., Any], args: Args, keywords: Keywords) -> str | None:
    """Return the op that a call is, or None."""
    full = resolve_name(func)
    if not full:
        return None
    full = full.replace("torch.functional.", "torch.")
    stem = full.rpartition(".")[2]
    stem = _DUNDERS.get(stem, stem if stem.startswith("__") else stem.removesuffix("_"))
    rule = _RULES.get(stem)
    if rule is not None:
        return rule(args, keywords)
    names = next(
        (
            _names()[name]
            for name in (full.removesuffix("_"), f"torch.{stem}", f"torch.Tensor.{stem}")
            if name in _names()
        ),
        (),
    )
    return names[0] if names else None


def _other(args: Args, keywords: Keywords, name: str = "other") -> Any:
    return args[1] if len(args) > 1 else keywords.get(name)


def _is_tensor(value: Any) -> bool:
    return isinstance(value, Tensor) and value.ndim > 0


def _sum_like(plain: str, scaled: str) -> Callable[[Args, Keywords], str | None]:
    def rule(args: Args, keywords: Keywords) -> str | None:
        if not (_is_tensor(args[0]) and _is_tensor(_other(args, keywords))):
            return "add_scalar"
        return plain if keywords.get("alpha", 1) == 1 else scaled

    return rule


def _product(args: Args, keywords: Keywords) -> str | None:
    is_tensor = _is_tensor(args[0]) and _is_tensor(_other(args, keywords))
    return "mul" if is_tensor else "mul_scalar"


def _quotient(args: Args, keywords: Keywords) -> str | None:
    rounding = keywords.get("rounding_mode")
    if rounding is not None:
        return {"trunc": "div_trunc", "floor": "floor_divide"}[rounding]
    if not _is_tensor(args[0]):
        return "reciprocal"
    return "div" if _is_tensor(_other(args, keywords)) else "mul_scalar"


def _power(args: Args, keywords: Keywords) -> str | None:
    exponent = _other(args, keywords, "exponent")
    if not _is_tensor(args[0]):
        return "exponential"
    if _is_tensor(exponent):
        return "pow_tensor"
    return {2: "square", 3: "cube", 0.5: "sqrt", -0.5: "rsqrt", -1: "reciprocal"}.get(
        float(exponent) if not isinstance(exponent, Tensor) else None, "power"
    )


def _clamp(args: Args, keywords: Keywords) -> str | None:
    low = args[1] if len(args) > 1 else keywords.get("min")
    high = args[2] if len(args) > 2 else keywords.get("max")
    if _is_tensor(low) or _is_tensor(high):
        return "clamp_tensor"
    if low is None or high is None:
        return "clamp_max" if low is None else "clamp_min"
    return "clamp"


def _extreme(pairwise: str, folded: str) -> Callable[[Args, Keywords], str | None]:
    def rule(args: Args, keywords: Keywords) -> str | None:
        return pairwise if _is_tensor(_other(args, keywords)) else folded

    return rule


def _padding(args: Args, keywords: Keywords) -> str | None:
    widths = args[1] if len(args) > 1 else keywords["pad"]
    mode = args[2] if len(args) > 2 else keywords.get("mode", "constant")
    num_dims = min(3, max(1, sum(1 for i in range(0, len(widths), 2) if any(widths[i : i + 2]))))
    return f"pad_{mode}{num_dims}d"


def _interpolation(args: Args, keywords: Keywords) -> str | None:
    mode = args[3] if len(args) > 3 else keywords.get("mode", "nearest")
    return f"interpolate_{mode.removesuffix('-exact')}"


def _sdpa(args: Args, keywords: Keywords) -> str | None:
    if (args[3] if len(args) > 3 else keywords.get("attn_mask")) is not None:
        return "masked_attention"
    if keywords.get("enable_gqa"):
        return "grouped_attention"
    query, key = args[0], args[1] if len(args) > 1 else keywords["key"]
    return "attention" if query.shape[-2] == key.shape[-2] else "cross_attention"


def _einsum(args: Args, _keywords: Keywords) -> str | None:
    return _equations().get(_normal(args[0])) if isinstance(args[0], str) else None


def _weighted(of_parameter: str, of_tensor: str) -> Callable[[Args, Keywords], str | None]:
    """Tell a module's own weight, passed to the functional form, from a computed one."""

    def rule(args: Args, keywords: Keywords) -> str | None:
        weight = args[1] if len(args) > 1 else keywords.get("weight")
        return of_parameter if isinstance(weight, nn.Parameter) else of_tensor

    return rule


def _convolved(num_dims: int) -> Callable[[Args, Keywords], str | None]:
    def rule(args: Args, keywords: Keywords) -> str | None:
        weight = args[1] if len(args) > 1 else keywords["weight"]
        groups = args[6] if len(args) > 6 else keywords.get("groups", 1)
        if not isinstance(weight, nn.Parameter):
            return f"conv{num_dims}d_weight"
        return _convolution(f"conv{num_dims}d", groups, args[0].shape[-num_dims - 1])

    return rule


def _convolution(plain: str, groups: int, num_channels: int) -> str:
    return f"depthwise_{plain}" if groups == num_channels > 1 else plain


def _batch_norm(args: Args, _keywords: Keywords) -> str | None:
    return f"batch_norm{max(1, args[0].ndim - 2)}d"


def _normed(args: Args, keywords: Keywords) -> str | None:
    return _layer_norm(args[1] if len(args) > 1 else keywords["normalized_shape"])


def _layer_norm(shape: Any) -> str:
    return {2: "layer_norm_matrix", 3: "layer_norm_sample"}.get(len(shape), "layer_norm")


_RULES: dict[str, Callable[[Args, Keywords], str | None]] = {
    "add": _sum_like("add", "add_scaled"),
    "sub": _sum_like("sub", "sub_scaled"),
    "subtract": _sum_like("sub", "sub_scaled"),
    "rsub": lambda *_: "rsub_scalar",
    "mul": _product,
    "multiply": _product,
    "div": _quotient,
    "divide": _quotient,
    "true_divide": _quotient,
    "rdiv": lambda *_: "reciprocal",
    "pow": _power,
    "rpow": lambda *_: "exponential",
    "clamp": _clamp,
    "clip": _clamp,
    "max": _extreme("maximum", "amax"),
    "min": _extreme("minimum", "amin"),
    "pad": _padding,
    "interpolate": _interpolation,
    "scaled_dot_product_attention": _sdpa,
    "einsum": _einsum,
    "linear": _weighted("linear", "linear_weight"),
    "conv1d": _convolved(1),
    "conv2d": _convolved(2),
    "conv3d": _convolved(3),
    "batch_norm": _batch_norm,
    "layer_norm": _normed,
    "group_norm": lambda *_: "group_norm",
    "rms_norm": lambda *_: "rms_norm",
    "embedding": _weighted("embedding", "embedding_lookup"),
    "prelu": _weighted("prelu", "prelu_weight"),
    "matmul": lambda *_: "matmul",
    "masked_fill": lambda *_: "masked_fill",
    "transpose": lambda *_: "transpose",
    "cat": lambda *_: "cat",
    "unflatten": lambda *_: None,
    "chunk": lambda *_: None,
}
