"""Keepers of what the interpreter and the operating system hold for the whole process."""

from __future__ import annotations

import builtins
import copy
import faulthandler
import functools
import gc
import inspect
import io
import logging
import math
import operator
import os
import random
import resource
import signal
import sys
import threading
import time
import types
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from opsgen.child.guard import Check, Keeper, keep_namespaces, keep_value

_WATCHED = (
    builtins, copy, functools, gc, inspect, io, logging, math, operator, os, os.path, random,
    signal, threading, time, types,
)  # fmt: skip
_LIMITS = [value for name, value in vars(resource).items() if name.startswith("RLIMIT_")]
_COMPILERS_VARIABLES = (
    "_TORCHINDUCTOR_", "TORCHINDUCTOR_CACHE_DIR", "TORCH_WARM_POOL", "TRITON_CACHE_DIR",
    "TRITON_LIBDEVICE_PATH", "TRITON_PTXAS", "CUDA_HOME", "KMP_DUPLICATE_LIB_OK",
)  # fmt: skip
_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)


def _list_namespaces() -> Iterable[tuple[str, Any]]:
    yield from ((module.__name__, module) for module in _WATCHED)
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "opsgen" and isinstance(module, types.ModuleType):
            yield name, module


def keep_modules() -> Check:
    """Keep imported modules under their names, and drop what was never imported."""
    before = dict(sys.modules)

    def check() -> Iterable[str]:
        for name, module in before.items():
            # Compilers replace what they generated when they meet the same graph again.
            if sys.modules.get(name) is not module and not _is_made_up(module):
                sys.modules[name] = module
                yield f"replaced the module {name}"
        for name in sys.modules.keys() - before.keys():
            # Compilers register what they generate, and extensions their parts, under the name
            # of a package that was imported.
            root = sys.modules.get(name.partition(".")[0])
            if _is_made_up(sys.modules[name]) and _is_made_up(root):
                del sys.modules[name]

    return check


def _is_made_up(module: object) -> bool:
    return getattr(module, "__spec__", None) is None


def keep_environment() -> Check:
    """Keep environment variables, but for those that compilers tell themselves by."""
    before = dict(os.environ)

    def check() -> Iterable[str]:
        for name in os.environ.keys() - before.keys():
            if not name.startswith(_COMPILERS_VARIABLES):
                del os.environ[name]
                yield f"set the variable {name}"
        for name, value in before.items():
            if os.environ.get(name) != value:
                os.environ[name] = value
                yield f"changed the variable {name}"

    return check


class StreamKeeper:
    """Keeps the three standard descriptors, and Python's streams on them."""

    def __init__(self) -> None:
        self._objects = (sys.stdin, sys.stdout, sys.stderr)
        self._places = [_place(number) for number in range(3)]
        # For the life of the process; never inherited.
        self._spares = [os.dup(number) for number in range(3)]

    def __call__(self) -> Check:
        """Return the check; the state to come back to is that of the first job."""
        return self._check

    def _check(self) -> Iterable[str]:
        for number, spare in enumerate(self._spares):
            now = _place(number)
            if now == self._places[number]:
                continue
            os.dup2(spare, number)
            if now is not None:  # Whoever opened it there may close it once more.
                yield f"took descriptor {number} for something else"
        for number, name in enumerate(("stdin", "stdout", "stderr")):
            stream = self._objects[number]
            if stream.closed:
                stream = os.fdopen(number, "w" if number else "r", closefd=False)
            setattr(sys, name, stream)


def keep_signals() -> Check:
    """Keep handlers, the mask and timers."""
    handlers = {number: signal.getsignal(number) for number in signal.valid_signals()}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())

    def check() -> Iterable[str]:
        for timer in _TIMERS:
            signal.setitimer(timer, 0.0)
        faulthandler.cancel_dump_traceback_later()
        changed = [n for n, handler in handlers.items() if signal.getsignal(n) != handler]
        if changed or not faulthandler.is_enabled():
            faulthandler.disable()  # It sits below Python's handlers, and goes back there.
            for number in changed:
                if handlers[number] is not None:
                    signal.signal(number, handlers[number])
            faulthandler.enable(all_threads=False)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        return ()

    return check


def _place(descriptor: int) -> tuple[int, int] | None:
    try:
        status = os.fstat(descriptor)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _working_folder() -> Path | None:
    try:
        return Path.cwd()
    except FileNotFoundError:
        return None


def _enter(folder: Path | None) -> None:
    if folder is not None and folder.exists():
        os.chdir(folder)


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _set_limits(limits: list[tuple[int, int]]) -> None:
    for limit, value in zip(_LIMITS, limits, strict=True):
        if resource.getrlimit(limit) != value:
            resource.setrlimit(limit, value)


def _set_path(path: list[str]) -> None:
    sys.path[:] = path


def _set_filters(filters: list[Any]) -> None:
    warnings.filters[:] = filters  # type: ignore[index]
    warnings._filters_mutated()  # type: ignore[attr-defined]


def _set_tracers(tracers: tuple[Any, Any]) -> None:
    sys.settrace(tracers[0])
    sys.setprofile(tracers[1])


def _set_gc(state: tuple[bool, tuple[int, int, int]]) -> None:
    (gc.enable if state[0] else gc.disable)()
    gc.set_threshold(*state[1])


def _set_hooks(hooks: tuple[Any, ...]) -> None:
    sys.excepthook, sys.unraisablehook, threading.excepthook, sys.displayhook = hooks


_KEEPERS: tuple[Keeper, ...] = (
    keep_signals,
    keep_environment,
    # torch.compile itself raises it.
    keep_value("the recursion limit", sys.getrecursionlimit, sys.setrecursionlimit),
    keep_value("sys.path", lambda: list(sys.path), _set_path),
    keep_value("the warnings filters", lambda: list(warnings.filters), _set_filters),
    keep_value("random's state", random.getstate, random.setstate),
    keep_value("tracers", lambda: (sys.gettrace(), sys.getprofile()), _set_tracers),
    keep_value("the collector", lambda: (gc.isenabled(), gc.get_threshold()), _set_gc),
    keep_value(
        "exception hooks",
        lambda: (sys.excepthook, sys.unraisablehook, threading.excepthook, sys.displayhook),
        _set_hooks,
    ),
    keep_value("the level of logs", lambda: logging.root.manager.disable, logging.disable),
    keep_value("the umask", _umask, os.umask),
    keep_value("the working folder", _working_folder, _enter, leaves_traces=True),
    keep_value(
        "resource limits",
        lambda: [resource.getrlimit(limit) for limit in _LIMITS],
        _set_limits,
        leaves_traces=True,
    ),
    keep_value(
        "its cores",
        lambda: os.sched_getaffinity(0),
        lambda cores: os.sched_setaffinity(0, cores),
    ),
)


def keepers() -> tuple[Keeper, ...]:
    """Return the keepers of one process."""
    # The names come first: all others work with them.
    return (keep_namespaces(_list_namespaces), keep_modules, StreamKeeper(), *_KEEPERS)
