"""How many numbers the reductions of foreign code add up, seen while it runs.

Sampled tasks know it from their graph. Here every aten call that adds up is
looked at; where its length cannot be told, the count errs upwards.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from opsgen.verify.leaves import Inputs, Leaves, tensors_of
from opsgen.verify.reference import Reference

_SELECTING = frozenset(
    [
        "embedding",
        "gather",
        "index",
        "index_select",
        "masked_select",
        "take",
        "topk",
        "sort",
        "kthvalue",
        "median",
        "mode",
        "max",
        "min",
        "amax",
        "amin",
        "aminmax",
        "argmax",
        "argmin",
        "nonzero",
        "unique",
        "searchsorted",
        "bucketize",
        "cummax",
        "cummin",
        "slice",
        "select",
        "cat",
        "stack",
        "clone",
        "copy",
        "_to_copy",
        "all",
        "any",
    ]
)


class TermCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Keeps the largest number of terms that one call added up into one element."""

    num_terms = 1

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Run the call and look at its shapes."""
        result = func(*args, **(kwargs or {}))
        if not (torch.Tag.pointwise in func.tags or func.is_view):
            self.num_terms = max(self.num_terms, _count(func._opname, args, result))
        return result


def count_terms(reference: Reference, inputs: Inputs) -> int:
    """Run once and return the reduction length behind the rounding floor, at least 1."""
    counter = TermCounter()  # type: ignore[no-untyped-call]
    with counter:
        reference.run(inputs)
    return counter.num_terms


def _count(name: str, args: tuple[Any, ...], result: Any) -> int:
    ours, theirs = tensors_of(args), tensors_of(result)
    if not ours or not theirs or name in _SELECTING or "max_pool" in name:
        return 1
    for part, rule in _RULES.items():
        if part in name if part not in _EXACT else part == name:
            return max(1, rule(ours, args))
    ratio = _ratio(ours, theirs)
    return max(ratio, _volume(args[1])) if "pool" in name else ratio


def _inner(tensors: Leaves, _args: tuple[Any, ...]) -> int:
    return _last(tensors[-2] if len(tensors) > 1 else tensors[0])


def _attended(tensors: Leaves, _args: tuple[Any, ...]) -> int:
    return max(max(tensor.shape[-2:], default=1) for tensor in tensors[:3])


def _recurrent(tensors: Leaves, _args: tuple[Any, ...]) -> int:
    return max(_last(tensor) for tensor in tensors)


def _longest_axis(tensors: Leaves, _args: tuple[Any, ...]) -> int:
    return max(max(tensor.shape, default=1) for tensor in tensors)


def _normalised(_tensors: Leaves, args: tuple[Any, ...]) -> int:
    return _volume(args[1])


def _grouped(_tensors: Leaves, args: tuple[Any, ...]) -> int:
    _, channels, positions, groups = args[3:7]
    return int(channels * positions // groups)


def _bilinear(tensors: Leaves, _args: tuple[Any, ...]) -> int:
    return int(math.prod(max(tensors, key=lambda tensor: tensor.ndim).shape[1:]))


def _taps(tensors: Leaves, _args: tuple[Any, ...]) -> int:
    # Transposed weights have the input's channels first: the larger side is taken.
    weight = tensors[1] if len(tensors) > 1 else tensors[0]
    return max(weight.numel() // max(1, size) for size in weight.shape[:2])


def _ratio(tensors: Leaves, results: Leaves) -> int:
    # Statistics beside the result, such as saved means, are shorter than it; unused ones empty.
    shortest = min((r.numel() for r in results if r.numel()), default=1)
    return max(1, math.ceil(max(tensor.numel() for tensor in tensors) / shortest))


def _last(tensor: Tensor) -> int:
    return int(tensor.shape[-1]) if tensor.ndim else 1


def _volume(sizes: Any) -> int:
    return math.prod(sizes) if isinstance(sizes, list | tuple) else int(sizes) ** 3


_RULES: dict[str, Callable[[Leaves, tuple[Any, ...]], int]] = {
    **dict.fromkeys(("mm", "addmm", "bmm", "baddbmm", "addbmm", "mv", "addmv"), _inner),
    **dict.fromkeys(("dot", "vdot", "_cdist_forward"), _inner),
    "_trilinear": _bilinear,
    "native_layer_norm": _normalised,
    "_fused_rms_norm": _normalised,
    "native_group_norm": _grouped,
    "conv": _taps,
    "attention": _attended,
    **dict.fromkeys(("rnn", "lstm", "gru"), _recurrent),
    **dict.fromkeys(("softmax", "cumsum", "cumprod", "logcumsumexp", "scatter"), _longest_axis),
    **dict.fromkeys(("index_add", "index_put", "index_reduce", "segment_reduce"), _longest_axis),
    **dict.fromkeys(("_fft", "linalg_inv", "linalg_lu", "linalg_solve", "cholesky"), _longest_axis),
    **dict.fromkeys(("linalg_qr", "_svd", "linalg_eigh", "linalg_matrix_exp"), _longest_axis),
}
_EXACT = frozenset(("mm", "addmm", "bmm", "baddbmm", "addbmm", "mv", "addmv", "dot", "vdot"))
_EXACT |= {"_trilinear"}
