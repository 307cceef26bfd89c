"""What a careless task changes in its process, one change each, for trying the guard out."""

from __future__ import annotations

import builtins
import gc
import logging
import os
import random
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
import types
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

_LONG_S = 3600.0
_OPEN: list[Any] = []


def read_state() -> dict[str, float]:
    """Return what can be seen of the state that jobs share, as numbers."""
    state: dict[str, Any] = {
        "recursion": sys.getrecursionlimit(),
        "path": sys.path,
        "environment": sorted(os.environ.items()),
        "folder": Path.cwd(),
        "filters": len(warnings.filters),
        "signals": [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGUSR1)],
        "timer": signal.getitimer(signal.ITIMER_REAL)[0],
        "collector": (gc.isenabled(), gc.get_threshold()),
        "tracer": sys.gettrace() is None,
        "logging": logging.root.manager.disable,
        "umask": _read_umask(),
        "hook": sys.excepthook,
        "limits": resource.getrlimit(resource.RLIMIT_NOFILE),
        "cores": os.sched_getaffinity(0),
        "threads": threading.active_count(),
        "streams": [sys.stdout.fileno(), sys.stderr.fileno(), sys.stdout.closed],
        "descriptors": [os.fstat(number).st_mode for number in range(3)],
        "sorted": sorted([3, 1, 2]),
        "clock": time.monotonic() > 0.0,
        "json": getattr(sys.modules.get("json"), "__file__", None),
        "task": "opsgen_task_left" in sys.modules,
    }
    if "torch" in sys.modules:
        state |= _read_torch()
    return {name: float(zlib.crc32(repr(value).encode())) for name, value in state.items()}


def _read_umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _read_torch() -> dict[str, Any]:
    import torch

    return {
        "dtype": torch.get_default_dtype(),
        "device": torch.empty(1).device,
        "grad": torch.is_grad_enabled(),
        "num_threads": torch.get_num_threads(),
        "precision": torch.backends.cuda.matmul.fp32_precision,
        "convolutions": torch._C._get_fp32_precision_getter("cuda", "conv"),
        "matmul": torch.get_float32_matmul_precision(),
        "benchmark": torch.backends.cudnn.benchmark,
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "denormals": (torch.tensor([1e-310], dtype=torch.float64) * 0.5).item() > 0.0,
        "relu": torch.nn.functional.relu(torch.tensor([-1.0, 1.0])),
        "product": torch.ones(1) * 2.0,
        "linear": torch.nn.Linear(1, 1, device="meta").train().training,
        "draws": torch.get_rng_state().numpy().tobytes(),
        "anomaly": torch.is_anomaly_enabled(),
        "cudnn": torch.backends.cudnn.deterministic,
        "hooks": len(torch.nn.modules.module._global_forward_hooks),
        "modes": torch._C._len_torch_function_stack(),
        "autotune": torch._inductor.config.max_autotune,
        "methods": hasattr(torch.Tensor, "twice"),
    }


def _patch(owner: Any, name: str, value: Any) -> Callable[[], None]:
    return lambda: setattr(owner, name, value)


def _patch_torch(path: str, value: Any) -> Callable[[], None]:
    def change() -> None:
        owner: Any = _torch()
        *places, name = path.split(".")
        for place in places:
            owner = getattr(owner, place)
        setattr(owner, name, value)

    return change


def _torch() -> Any:
    import torch

    return torch


def _call_torch(call: Callable[[Any], object]) -> Callable[[], object]:
    return lambda: call(_torch())


def _leave_module() -> None:
    sys.modules["opsgen_task_left"] = types.ModuleType("opsgen_task_left")


def _close_streams() -> None:
    sys.stdout.close()
    sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123 - left open on purpose


def _reopen_stdout() -> None:
    os.close(1)
    _OPEN.append(os.open(os.devnull, os.O_WRONLY))


def _leave_open() -> None:
    _OPEN.extend(socket.socket() for _ in range(100))


def _lower_limit() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, most))


def _close_first_socket() -> None:
    _OPEN.append(socket.socket())


PUT_BACK: dict[str, Callable[[], object]] = {
    "recursion": lambda: sys.setrecursionlimit(5000),
    "path": lambda: sys.path.insert(0, "/nowhere"),
    "filters": lambda: warnings.simplefilter("ignore"),
    "random": lambda: random.setstate(random.Random(1).getstate()),
    "handler": lambda: signal.signal(signal.SIGUSR1, signal.SIG_IGN),
    "fatal_handler": lambda: signal.signal(signal.SIGSEGV, signal.SIG_IGN),
    "alarm": lambda: signal.setitimer(signal.ITIMER_REAL, 0.2),
    "mask": lambda: signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM]),
    "collector": gc.disable,
    "tracer": lambda: sys.setprofile(lambda *event: None),
    "logging": lambda: logging.disable(logging.CRITICAL),
    "hook": _patch(sys, "excepthook", print),
    "umask": lambda: os.umask(0o777),
    "cores": lambda: os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}),
    "module": _leave_module,
    "streams": _close_streams,
    "one_descriptor": _close_first_socket,
    "torch_dtype": _call_torch(lambda torch: torch.set_default_dtype(torch.float64)),
    "torch_device": _call_torch(lambda torch: torch.set_default_device("meta")),
    "torch_grad": _call_torch(lambda torch: torch._C._set_grad_enabled(False)),
    "torch_threads": _call_torch(lambda torch: torch.set_num_threads(7)),
    "torch_precision": _call_torch(lambda torch: torch.set_float32_matmul_precision("high")),
    "torch_tf32": _patch_torch("backends.cuda.matmul.allow_tf32", True),
    "torch_new_tf32": _patch_torch("backends.cuda.matmul.fp32_precision", "tf32"),
    "torch_convolutions": _patch_torch("backends.cudnn.conv.fp32_precision", "ieee"),
    "torch_all_tf32": _patch_torch("backends.fp32_precision", "tf32"),
    "torch_deterministic": _call_torch(lambda torch: torch.use_deterministic_algorithms(True)),
    "torch_cudnn": _patch_torch("backends.cudnn.deterministic", True),
    "torch_autocast": _call_torch(lambda torch: torch.set_autocast_enabled("cpu", True)),
    "torch_anomaly": _call_torch(lambda torch: torch.set_anomaly_enabled(True)),
    "torch_denormals": _call_torch(lambda torch: torch.set_flush_denormal(True)),
    "torch_seed": _call_torch(lambda torch: torch.default_generator.manual_seed(1)),
    "torch_hook": _call_torch(
        lambda torch: torch.nn.modules.module.register_module_forward_hook(lambda *call: None)
    ),
    "torch_config": _call_torch(
        lambda torch: setattr(torch._inductor.config, "max_autotune", True)
    ),
}
"""Changes that leave no trace once they are put back."""

SPOILING: dict[str, Callable[[], object]] = {
    "environment": lambda: os.environ.update(OPSGEN_LEFT="1"),
    "threads_variable": lambda: os.environ.update(OMP_NUM_THREADS="9"),
    "folder": lambda: os.chdir("/"),
    "limits": _lower_limit,
    "builtin": _patch(builtins, "sorted", lambda values: values),
    "clock": _patch(time, "monotonic", float),
    "replaced_module": lambda: sys.modules.update(json=types.ModuleType("json")),
    "own_code": lambda: setattr(sys.modules["opsgen.errors"], "MeasureError", ValueError),
    "reopened": _reopen_stdout,
    "descriptors": _leave_open,
    "thread": lambda: threading.Thread(target=time.sleep, args=[_LONG_S], daemon=True).start(),
    "helper": lambda: subprocess.Popen(["sleep", str(_LONG_S)]),
    "torch_benchmark": _patch_torch("backends.cudnn.benchmark", True),
    "torch_function": _patch_torch("relu", abs),
    "torch_functional": _patch_torch("nn.functional.relu", abs),
    "torch_method": _patch_torch("Tensor.__mul__", lambda a, b: a),
    "torch_new_method": _patch_torch("Tensor.twice", lambda a: a),
    "torch_forward": _patch_torch("nn.Linear.forward", lambda self, x: x),
    "torch_module": _patch_torch("nn.Module.train", lambda self: self.eval()),
    "torch_mode": _call_torch(lambda torch: torch.overrides.TorchFunctionMode().__enter__()),
}
"""Changes that others may have picked up, or that cannot be undone."""

CHANGES = PUT_BACK | SPOILING
"""All of them by name; those with `torch_` need torch loaded."""
