"""Standing between a running model and what it calls, to see results and to put others there.

What counts as a call is an outermost public one of `forward`. Modules of the
task's own are looked into, those of torch are calls.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from opsgen.verify.leaves import tensors_of
from opsgen.verify.recording import class_name, is_opaque, names_of

Tap = Callable[["Moment"], Any]
"""Given what happened, returns what shall have happened."""
_QUESTIONS = frozenset(
    (
        *(
            "dim",
            "size",
            "numel",
            "stride",
            "is_contiguous",
            "__len__",
            "is_floating_point",
            "type",
        ),
        *("is_complex", "get_device", "element_size", "data_ptr", "storage_offset", "nelement"),
    )
)


@dataclass(slots=True)
class Moment:
    """One call or op that has just run.

    Attributes:
        index: Its place among all of them.
        name: Qualified name.
        args: Positional and keyword arguments, flattened to tensors.
        before: Its first argument as it was, which is the one that calls in place write to;
            None where it was not watched.
        result: What it returned; of an assignment to an element the tensor assigned to.
        computes: It made new values, and not of nothing.
        reads: It took more from its arguments than shapes and types.
        ops: Places of the aten ops that it ran, among all that are no view.
    """

    index: int
    name: str
    args: tuple[Tensor, ...]
    before: Tensor | None
    result: Any
    computes: bool
    reads: bool
    ops: range

    @property
    def leaves(self) -> list[Tensor]:
        """Return the tensors of the result."""
        return [leaf for leaf in pytree.tree_leaves(self.result) if isinstance(leaf, Tensor)]

    @property
    def written(self) -> Tensor | None:
        """Return the argument that it wrote its result to; None of a call that only returns."""
        leaves = self.leaves
        is_first = bool(leaves and self.args) and leaves[0] is self.args[0]
        return self.args[0] if is_first and self.computes else None


class CallTap:
    """Hands every outermost call to a tap."""

    def __init__(self, model: nn.Module, tap: Tap, *, watched: int | None = None) -> None:
        self._model = model
        self._state = _State(tap, watched)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Stand between for the block."""
        functions, ops = _Functions(self._state), _Ops(self._state)
        with self._hooked(), functions, ops:
            yield

    @contextlib.contextmanager
    def _hooked(self) -> Iterator[None]:
        handles = []
        for module in self._model.modules():
            if module is not self._model and is_opaque(module):
                handles.append(module.register_forward_pre_hook(self._enter, with_kwargs=True))
                handles.append(module.register_forward_hook(self._leave, always_call=True))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _enter(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        self._state.enter(class_name(type(module)), (args, kwargs))

    def _leave(self, module: nn.Module, args: Any, result: Any) -> Any:
        return self._state.leave(result)


class _State:
    """The call that runs, and how deep in it we are."""

    def __init__(self, tap: Tap, watched: int | None) -> None:
        self._tap = tap
        self._watched = watched
        self._depth = 0
        self._index = 0
        self._name = ""
        self._args: tuple[Tensor, ...] = ()
        self._before: Tensor | None = None
        self._first_op = 0
        self.is_busy = False
        self.computes = False
        self.reads = False
        self.num_ops = 0

    @property
    def is_within(self) -> bool:
        return self._depth > 0 or self.is_busy

    def enter(self, name: str, args: Any) -> None:
        self._depth += 1
        if self._depth > 1:
            return
        self._name, self._args, self.computes = name, tensors_of(args), False
        self.reads = False
        self._first_op = self.num_ops
        is_watched = self._index == self._watched and bool(self._args)
        self._before = self._args[0].detach().clone() if is_watched else None

    def leave(self, result: Any) -> Any:
        self._depth -= 1
        if self._depth:
            return result
        assigned = result is None and self._args and self._name.endswith("__setitem__")
        moment = Moment(
            self._index,
            self._name,
            self._args,
            self._before,
            self._args[0] if assigned else result,
            self.computes,
            self.reads,
            range(self._first_op, self.num_ops),
        )
        self._index += 1
        self.is_busy = True
        try:
            changed = self._tap(moment)
        finally:
            self.is_busy = False
        return None if assigned else changed


class _Functions(TorchFunctionMode):
    """Sees functions, methods and operators."""

    def __init__(self, state: _State) -> None:
        super().__init__()
        self._state = state

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        # Switches such as that of `torch.no_grad` come here, too.
        is_hidden = name.startswith("_") and not name.endswith("__")
        if self._state.is_within or is_hidden or name == "__get__" or name in _QUESTIONS:
            return func(*args, **kwargs)
        self._state.enter(names_of(func)[0], (args, kwargs))
        try:
            result = func(*args, **kwargs)
        except BaseException:
            self._state.leave(None)
            raise
        return self._state.leave(result)


class _Ops(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts ops and notes whether the call that runs computes."""

    def __init__(self, state: _State) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._state = state

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Run the op."""
        if not self._state.is_busy:
            self._state.num_ops += not func.is_view
            self._state.computes = self._state.computes or computes(func, args, kwargs)
            self._state.reads = self._state.reads or func._opname not in _MADE
        return func(*args, **(kwargs or {}))


_MADE = frozenset(
    (
        *("zeros_like", "ones_like", "empty_like", "full_like", "rand_like", "randn_like"),
        *("new_zeros", "new_ones", "new_full", "new_empty", "new_empty_strided"),
    )
)
"""Ops that take shape and type from a tensor and nothing else."""
_NO_WORK = _MADE | frozenset(
    (
        *("_to_copy", "clone", "contiguous", "copy_", "copy", "detach", "lift_fresh", "alias"),
        *("_unsafe_view", "fill_", "zero_", "_local_scalar_dense", "set_", "resize_"),
        "empty_strided",
    )
)


def computes(func: Any, args: tuple[Any, ...], kwargs: Any) -> bool:
    """Whether an op makes new values out of those of tensors."""
    if func.is_view or func._opname in _NO_WORK:
        return False
    return bool(tensors_of((args, kwargs or {})))
