"""Which op reads what another made, while a model runs.

Every tensor remembers the ops that made it; a call that is no op hands on what its inputs
remember if it only moves elements about, and forgets it otherwise. Nothing is computed where
the model is on `meta`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from call_names import is_twin, op_of_call, op_of_module
from torch import Tensor, nn
from torch.nn.modules import module as hooks
from torch.overrides import TorchFunctionMode, resolve_name
from torch.utils import _pytree as pytree

Edges = set[tuple[str, str]]
_MARK = "_made_by"
# What a view, a copy or a cast gives on is still what was made before.
_MOVES = frozenset(
    """
    view reshape contiguous to type type_as float half bfloat16 double clone detach expand
    expand_as broadcast_to unsqueeze squeeze __getitem__ chunk split split_with_sizes unbind
    tensor_split hsplit vsplit unflatten view_as reshape_as movedim moveaxis swapaxes t T mT H mH
    adjoint ravel as_strided dropout dropout1d dropout2d dropout3d alpha_dropout feature_dropout
    requires_grad_ data nan_to_num
    """.split()  # noqa: SIM905 - sixty quoted names are harder to read
)
# What is read off a tensor that holds nothing: forwards ask whether masks are trivial.
_READ_OFF = {
    "__bool__": True,
    "__contains__": False,
    "__int__": 1,
    "__index__": 1,
    "__float__": 1.0,
    "item": 1,
}


class EdgeRecorder(TorchFunctionMode):
    """Collects pairs of ops while it is entered.

    Attributes:
        edges: Pairs of a producer and the op that read what it made.
    """

    def __init__(self) -> None:
        super().__init__()
        self.edges: Edges = set()
        self._whole: list[nn.Module] = []
        self._entered: list[tuple[nn.Module, str, frozenset[str]]] = []

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run a call and note what it read."""
        keywords = kwargs or {}
        stem = (resolve_name(func) or "").removesuffix(".__get__").rpartition(".")[2]
        if stem in _READ_OFF and args[0].is_meta:
            return True if args[0].dtype == torch.bool else _READ_OFF[stem]
        result = func(*args, **keywords)
        if self._whole:
            return result
        if stem in _MOVES:
            _mark(result, _makers(args[:1]))
        elif not stem.startswith("__set"):
            op = op_of_call(func, args, keywords)
            if op is not None:
                self._note(op, (args, keywords), result)
        return result

    def _note(self, op: str, read: Any, result: Any) -> None:
        self.edges.update((maker, op) for maker in _makers(read))
        second = {"topk": "topk_indices", "cummax": "cummax_indices"}.get(op)
        if second is None or not isinstance(result, tuple):
            _mark(result, frozenset({op}))
        else:
            _mark(result[0], frozenset({op}))

    def enter(self, module: nn.Module, args: Any, keywords: Any) -> None:
        """Note that a module is about to run: called before its forward."""
        op = None if self._whole else op_of_module(module)
        if op is None:
            return
        self._entered.append((module, op, _makers((args, keywords))))
        if not is_twin(module):
            self._whole.append(module)

    def leave(self, module: nn.Module, result: Any) -> None:
        """Note that a module has run: called after its forward."""
        if not self._entered or self._entered[-1][0] is not module:
            return
        _, op, makers = self._entered.pop()
        if self._whole and self._whole[-1] is module:
            self._whole.pop()
            inner: frozenset[str] = frozenset()
        else:
            inner = _makers(result)
        self.edges.update((maker, op) for maker in makers)
        _mark(result, inner | {op})


def _makers(tree: Any) -> frozenset[str]:
    found: set[str] = set()
    for leaf in pytree.tree_leaves(tree):
        if isinstance(leaf, Tensor):
            found.update(getattr(leaf, _MARK, ()))
    return frozenset(found)


def _mark(tree: Any, makers: frozenset[str]) -> None:
    for leaf in pytree.tree_leaves(tree):
        # Masks and indices are read for other reasons than what ops compute on.
        is_marked = isinstance(leaf, Tensor) and not isinstance(leaf, nn.Parameter)
        if is_marked and leaf.is_floating_point() and leaf.ndim:
            setattr(leaf, _MARK, makers)


@contextmanager
def recorded() -> Iterator[EdgeRecorder]:
    """Record the edges of what runs in the block."""
    recorder = EdgeRecorder()
    before = hooks.register_module_forward_pre_hook(
        lambda module, args: recorder.enter(module, args, {})
    )
    after = hooks.register_module_forward_hook(
        lambda module, _args, result: recorder.leave(module, result)
    )
    try:
        with torch.no_grad(), recorder:
            yield recorder
    finally:
        before.remove()
        after.remove()
