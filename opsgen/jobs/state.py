"""What of torch's global state one job must hand on to the next unchanged.

Children ask for it once torch is loaded: keepers in the sense of
`opsgen.child.guard`, and `warm`, which loads ahead what first jobs would wait for.
"""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.nn.modules import module as module_hooks
from torch.utils import _device

from opsgen.child.guard import Check, Keeper, keep_namespaces, keep_value

Flag = tuple[Callable[[], Any], Callable[[Any], object]]
"""How to read and how to set a switch."""

_SPACES = (
    "torch", "torch.autograd", "torch.cuda", "torch.fft", "torch.linalg", "torch.nn",
    "torch.nn.functional", "torch.nn.init", "torch.random", "torch.special", "torch._tensor",
    "torch._C._fft", "torch._C._linalg", "torch._C._nn", "torch._C._special", "numpy",
)  # fmt: skip
_CLASSES = (
    torch.Tensor, torch._C.TensorBase, torch.Size, torch.Generator, nn.Parameter,
    torch.autograd.Function, torch.cuda.Event, torch.cuda.Stream,
    type(torch._C._VariableFunctions),
)  # fmt: skip
_PRECISIONS = (
    ("generic", "all"), ("cuda", "all"), ("cuda", "matmul"), ("cuda", "conv"), ("cuda", "rnn"),
    ("mkldnn", "all"), ("mkldnn", "matmul"), ("mkldnn", "conv"), ("mkldnn", "rnn"),
)  # fmt: skip
_OLD_PRECISIONS = (
    torch.get_float32_matmul_precision,
    torch._C._get_cublas_allow_tf32,
    torch._C._get_cudnn_allow_tf32,
)
_CONFIGS = (
    "torch._dynamo.config", "torch._functorch.config", "torch._inductor.config",
    "torch.fx.experimental._config",
)  # fmt: skip
_COMPILER_FILES = tuple(
    str(Path(torch.__file__).parent / place) for place in ("_compile.py", "_dynamo")
)
_HOOKS = (
    "_global_forward_hooks", "_global_forward_pre_hooks", "_global_backward_hooks",
    "_global_backward_pre_hooks", "_global_parameter_registration_hooks",
    "_global_module_registration_hooks", "_global_buffer_registration_hooks",
)  # fmt: skip


def warm(device: str) -> None:
    """Load what the first compile loads; the device is not touched.

    On a CPU a first compile is made as well: it tries the compiler out and
    precompiles headers, for seconds. Beside a GPU even a compile for the CPU would
    create a context (518 MiB, seen on an H200).
    """
    importlib.import_module("torch._inductor.compile_fx")
    importlib.import_module("torch._inductor.codecache")
    if device == "cpu":
        torch.compile(functional.gelu)(torch.zeros(64))
        torch._dynamo.reset()


def _list_namespaces() -> Iterable[tuple[str, Any]]:
    for name in _SPACES:
        module = sys.modules.get(name)
        if isinstance(module, types.ModuleType):
            yield name, module
    yield from ((kind.__name__, kind) for kind in _CLASSES)
    yield from ((f"nn.{name}", kind) for name, kind in vars(nn).items() if isinstance(kind, type))


def _is_torchs(value: Any) -> bool:
    """Tell what Dynamo wraps when it is first used, and what follows the default type."""
    if isinstance(value, type):
        return issubclass(value, torch.storage._LegacyStorage)
    code = getattr(value, "__code__", None)
    return code is not None and code.co_filename.startswith(_COMPILER_FILES)


def _attribute(owner: Any, name: str) -> Flag:
    return (lambda: getattr(owner, name)), (lambda value: setattr(owner, name, value))


def _only_read(read: Callable[[], Any]) -> Flag:
    # Nothing can put it back, so a change spoils the process.
    return read, lambda value: None


def _read_precisions() -> list[Any]:
    # The old switches refuse to be read once the new ones were used.
    values: list[Any] = [torch._C._get_fp32_precision_getter(*place) for place in _PRECISIONS]
    for read in _OLD_PRECISIONS:
        try:
            values.append(read())
        except RuntimeError:
            values.append(None)
    return values


def _write_precisions(values: list[Any]) -> None:
    matmul, _, cudnn = values[len(_PRECISIONS) :]  # The second follows the first.
    _write_places(values)  # Until these agree with the old switches, those cannot be set.
    if matmul is not None:
        torch._C._set_float32_matmul_precision(matmul)
    if cudnn is not None:
        torch._C._set_cudnn_allow_tf32(cudnn)
    _write_places(values)


def _write_places(values: list[Any]) -> None:
    for place, value in zip(_PRECISIONS, values, strict=False):
        torch._C._set_fp32_precision_setter(*place, value)


def _read_deterministic() -> tuple[bool, bool]:
    is_on = torch.are_deterministic_algorithms_enabled()
    return is_on, torch.is_deterministic_algorithms_warn_only_enabled()


def _read_anomaly() -> tuple[bool, bool]:
    return torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()


def _read_modes() -> tuple[int, int]:
    return torch._C._len_torch_function_stack(), torch._C._len_torch_dispatch_stack()


def _leave_modes(depths: tuple[int, int]) -> None:
    while torch._C._len_torch_function_stack() > depths[0]:
        torch._C._pop_torch_function_stack()
    while torch._C._len_torch_dispatch_stack() > depths[1]:
        torch._C._pop_torch_dispatch_stack()


def _keep_modes() -> Check:
    """Keep what intercepts every call, a default device among it."""
    device = _device.CURRENT_DEVICE
    depths = _read_modes()

    def check() -> Iterable[str]:
        if device != _device.CURRENT_DEVICE:
            torch.set_default_device(device)
        if _read_modes() != depths:
            _leave_modes(depths)
            yield "left a mode of torch entered"

    return check


def _read_tensor_type() -> tuple[bool, str]:
    return torch.is_inference_mode_enabled(), str(torch._C._get_default_device())


def _autocast(device: str) -> tuple[Flag, Flag]:
    is_on = (
        lambda: torch.is_autocast_enabled(device),
        lambda value: torch.set_autocast_enabled(device, value),
    )
    dtype = (
        lambda: torch.get_autocast_dtype(device),
        lambda value: torch.set_autocast_dtype(device, value),
    )
    return is_on, dtype


def _keeps_denormals() -> bool:
    return _TINY * _ONE != 0.0


_TINY, _ONE = float.fromhex("0x1p-1074"), 1.0

_FLAGS: tuple[Flag, ...] = (
    (torch.get_default_dtype, torch.set_default_dtype),
    (torch.is_grad_enabled, torch._C._set_grad_enabled),
    (torch.get_num_threads, torch.set_num_threads),
    (_read_precisions, _write_precisions),
    (
        _read_deterministic,
        lambda value: torch.use_deterministic_algorithms(value[0], warn_only=value[1]),
    ),
    _attribute(torch.utils.deterministic, "fill_uninitialized_memory"),
    _attribute(torch.backends.cudnn, "enabled"),
    _attribute(torch.backends.cudnn, "deterministic"),
    _attribute(torch.backends.cuda.matmul, "allow_fp16_reduced_precision_reduction"),
    _attribute(torch.backends.cuda.matmul, "allow_bf16_reduced_precision_reduction"),
    _attribute(torch.backends.cuda.matmul, "allow_fp16_accumulation"),
    _attribute(torch.backends.mkldnn, "enabled"),
    (torch.backends.cuda.flash_sdp_enabled, torch.backends.cuda.enable_flash_sdp),
    (torch.backends.cuda.math_sdp_enabled, torch.backends.cuda.enable_math_sdp),
    (torch.backends.cuda.mem_efficient_sdp_enabled, torch.backends.cuda.enable_mem_efficient_sdp),
    (torch.backends.cuda.cudnn_sdp_enabled, torch.backends.cuda.enable_cudnn_sdp),
    (torch.backends.mha.get_fastpath_enabled, torch.backends.mha.set_fastpath_enabled),
    (_read_anomaly, lambda value: torch.set_anomaly_enabled(*value)),
    *_autocast("cpu"),
    *_autocast("cuda"),
    (_keeps_denormals, lambda value: torch.set_flush_denormal(not value)),
    _only_read(_read_tensor_type),
)


def _read_flags() -> list[Any]:
    return [read() for read, _ in _FLAGS]


def _write_flags(values: list[Any]) -> None:
    for (read, write), value in zip(_FLAGS, values, strict=True):
        if read() != value:
            write(value)


def _read_hooks() -> list[dict[Any, Any]]:
    return [dict(getattr(module_hooks, name)) for name in _HOOKS]


def _write_hooks(hooks: list[dict[Any, Any]]) -> None:
    for name, entries in zip(_HOOKS, hooks, strict=True):
        registered = getattr(module_hooks, name)
        registered.clear()
        registered.update(entries)


def _read_random() -> list[Any]:
    states = [torch.get_rng_state()]
    # Of a device that this job is the first to use nothing is known from before it.
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        states += torch.cuda.get_rng_state_all()
    return [state.numpy().tobytes() for state in states]


def _write_random(states: list[bytes]) -> None:
    first, *rest = [torch.frombuffer(bytearray(state), dtype=torch.uint8) for state in states]
    torch.set_rng_state(first)
    if rest:
        torch.cuda.set_rng_state_all(rest)


def _keep_numpy_random() -> Check:
    numpy = sys.modules.get("numpy")
    before = None if numpy is None else numpy.random.get_state()

    def check() -> Iterable[str]:
        if before is not None:
            sys.modules["numpy"].random.set_state(before)
        return ()

    return check


def _keep_random() -> Check:
    before = _read_random()

    def check() -> Iterable[str]:
        if _read_random()[: len(before)] != before:
            _write_random(before)
        return ()

    return check


def _keep_configs() -> Check:
    # Loaded here if they were not: what a task sets in them it must find there before it.
    modules: list[Any] = [importlib.import_module(name) for name in _CONFIGS]
    before = [(module, module.get_config_copy()) for module in modules]

    def check() -> Iterable[str]:
        for module, values in before:
            # Compiled code does not outlast the job that compiled it, so no trace is left.
            if module.get_config_copy() != values:
                module.load_config(values)
            if module.get_config_copy() != values:
                yield f"changed {module.__name__}"

    return check


KEEPERS: tuple[Keeper, ...] = (
    _keep_configs,
    keep_namespaces(_list_namespaces, _is_torchs),
    _keep_modes,
    keep_value("torch's flags", _read_flags, _write_flags),
    # Its picks are cached by shape, for as long as the process lives.
    keep_value(
        "cudnn.benchmark", *_attribute(torch.backends.cudnn, "benchmark"), leaves_traces=True
    ),
    keep_value("hooks of all modules", _read_hooks, _write_hooks),
    _keep_random,
    _keep_numpy_random,
)
"""What is kept in children that have loaded torch. About 1 ms a job."""
