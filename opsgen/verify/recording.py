"""What a task's `forward` calls, seen while it runs, against the ops that it declares.

A call that stands in the source is recorded once, whatever it calls within:
modules by their hooks, functions and methods by a `TorchFunctionMode`. Below
it a `TorchDispatchMode` tells which aten ops each of them dispatched. What
must run is read off the catalogue's spellings by `ast`, without running them:
neither side knows how the source was rendered.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode, resolve_name
from torch.utils._python_dispatch import TorchDispatchMode

from opsgen.verify.leaves import Inputs, tensors_of

_HOMES = {
    "torch": torch,
    "torch.Tensor": torch.Tensor,
    "torch.nn.functional": nn.functional,
    "torch.special": torch.special,
    "torch.linalg": torch.linalg,
    "torch.fft": torch.fft,
}
# Python hands operators on to methods: `x + y` and `x.add(y)` are one call to torch.
_METHODS = (
    *("add", "sub", "mul", "div", "floor_divide", "remainder", "pow", "neg", "matmul"),
    *("eq", "ne", "lt", "le", "gt", "ge"),
)
_OPERATORS = {
    **{f"torch.Tensor.{name}": f"torch.{name}" for name in _METHODS},
    "torch.Tensor.__eq__": "torch.eq",
    "torch.Tensor.__floordiv__": "torch.floor_divide",
    "torch.Tensor.__mod__": "torch.remainder",
    "torch.Tensor.__pow__": "torch.pow",
    "torch.Tensor.__rdiv__": "torch.div",
    "torch.Tensor.__rpow__": "torch.pow",
    "torch.Tensor.__rsub__": "torch.rsub",
}
# Questions to a tensor that compute nothing; indexing counts if it dispatches more than views.
_ACCESSES = frozenset(
    f"torch.Tensor.{name}"
    for name in ("__getitem__", "__len__", "dim", "is_contiguous", "numel", "size", "stride")
)
_COPIES = frozenset(("_to_copy", "clone", "contiguous", "copy", "detach", "lift_fresh"))


@dataclass(slots=True)
class Call:
    """One outermost call of a `forward`.

    Attributes:
        names: Every qualified name by which the source may have reached it.
        aten: Names of the aten ops that it dispatched, in order.
        computes: Some of these make new values of real tensors: neither views nor copies, nor
            tensors made of nothing, nor the way back from complex numbers, which no transform
            of torch returns real without.
    """

    names: tuple[str, ...]
    aten: list[str] = field(default_factory=list)
    computes: bool = False


@dataclass(frozen=True, slots=True)
class Recording:
    """What one call of a module did.

    Attributes:
        calls: Its outermost calls in order; indexing and questions left out. Of a gradient
            task those of the function whose gradient it takes.
        loose: Aten ops that compute outside of every call.
        output: What it returned.
        has_own_state: Modules that are none of torch hold parameters or buffers.
    """

    calls: tuple[Call, ...]
    loose: tuple[str, ...]
    output: Any
    has_own_state: bool = False


def record_calls(model: nn.Module, inputs: Inputs, *, is_deep: bool = False) -> Recording:
    """Run `model`, on `meta` or on data, and return what it called; see `Recording`.

    A module is one call, unless `is_deep`: then containers and modules that are none of torch
    are looked into.

    Calls that are no part of torch's public surface are seen as what they call. Whatever the
    model raises travels.
    """
    recorder = _Recorder()
    functions, dispatch = _Functions(recorder), _Dispatch(recorder)
    hooked = _hooked(model, recorder, is_deep=is_deep)
    with hooked, _watched_vjp(recorder), torch.no_grad(), functions, dispatch:
        output = model(*inputs)
    calls = tuple(call for call in recorder.calls if not _is_access(call))
    own = [m for m in model.modules() if not is_opaque(m)]
    has_own_state = any(m._parameters or m._buffers for m in own)
    return Recording(calls, tuple(recorder.loose), output, has_own_state)


_CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)


def is_opaque(module: nn.Module) -> bool:
    """Whether a module is an op of torch rather than a container or written by somebody else."""
    home = type(module).__module__
    return home.partition(".")[0] == "torch" and not isinstance(module, _CONTAINERS)


class _Recorder:
    """Calls as they come; `current` is the one that is running."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.loose: list[str] = []
        self.current: Call | None = None
        self.is_on = True
        self.depth = 0

    def enter(self, names: tuple[str, ...]) -> None:
        if self.depth == 0 and self.is_on:
            self.current = Call(names)
            self.calls.append(self.current)
        self.depth += 1

    def leave(self) -> None:
        self.depth -= 1
        if self.depth == 0:
            self.current = None

    @contextlib.contextmanager
    def switched(self, is_on: bool) -> Iterator[None]:
        before, self.is_on = self.is_on, is_on
        try:
            yield
        finally:
            self.is_on = before


class _Functions(TorchFunctionMode):
    """Sees functions and methods; what these call in turn does not come here."""

    def __init__(self, recorder: _Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        # `x.shape` and its like: the getter of a property.
        if self._recorder.depth or getattr(func, "__name__", "") == "__get__":
            return func(*args, **(kwargs or {}))
        self._recorder.enter(names_of(func))
        try:
            return func(*args, **(kwargs or {}))
        finally:
            self._recorder.leave()


class _Dispatch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Books aten ops to the call that runs."""

    def __init__(self, recorder: _Recorder) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._recorder = recorder

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Run the op and keep its name."""
        recorder = self._recorder
        computes = _computes(func, args)
        if recorder.current is not None:
            recorder.current.aten.append(str(func))
            recorder.current.computes |= computes
        elif computes and recorder.is_on:
            recorder.loose.append(str(func))
        return func(*args, **(kwargs or {}))


def _computes(func: Any, args: tuple[Any, ...]) -> bool:
    if func.is_view or func._opname in _COPIES:
        return False
    tensors = tensors_of(args)
    return bool(tensors) and not any(tensor.is_complex() for tensor in tensors)


def _is_access(call: Call) -> bool:
    return not call.computes and not _ACCESSES.isdisjoint(call.names)


@contextlib.contextmanager
def _hooked(model: nn.Module, recorder: _Recorder, *, is_deep: bool) -> Iterator[None]:
    def enter(module: nn.Module, _args: object) -> None:
        recorder.enter((class_name(type(module)),))

    def leave(_module: nn.Module, _args: object, _result: object) -> None:
        recorder.leave()

    handles = []
    for module in model.modules():
        if module is not model and (is_opaque(module) or not is_deep):
            handles.append(module.register_forward_pre_hook(enter))
            handles.append(module.register_forward_hook(leave, always_call=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextlib.contextmanager
def _watched_vjp(recorder: _Recorder) -> Iterator[None]:
    """Keep what `torch.func.vjp` itself does out of the record, and what it differentiates in."""
    original = torch.func.vjp

    def vjp(func: Callable[..., Any], *primals: Any, **options: Any) -> Any:
        def seen(*args: Any) -> Any:
            with recorder.switched(True):
                return func(*args)

        with recorder.switched(False):
            output, pull, *rest = original(seen, *primals, **options)

        def pulled(*cotangents: Any, **more: Any) -> Any:
            with recorder.switched(False):
                return pull(*cotangents, **more)

        return (output, pulled, *rest)

    torch.func.vjp = vjp
    try:
        yield
    finally:
        torch.func.vjp = original


@functools.cache
def _known_names() -> dict[Any, tuple[str, ...]]:
    found: dict[Any, list[str]] = {}
    for home, owner in _HOMES.items():
        for name in dir(owner):
            value = getattr(owner, name, None)
            if callable(value) and not isinstance(value, type):
                found.setdefault(value, []).append(f"{home}.{name}")
    return {value: tuple(names) for value, names in found.items()}


@functools.cache
def names_of(func: Any) -> tuple[str, ...]:
    """Return every public name of a torch function, with the one its operator is declared by."""
    names = _known_names().get(func) or (resolve_name(func) or repr(func),)
    return (*names, *[_OPERATORS[name] for name in names if name in _OPERATORS])


def class_name(cls: type[nn.Module]) -> str:
    """Return the qualified name of a module class, such as `torch.nn.Conv2d`."""
    if getattr(nn, cls.__name__, None) is cls:
        return f"torch.nn.{cls.__name__}"
    return f"{cls.__module__}.{cls.__qualname__}"
