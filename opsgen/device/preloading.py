"""Loading and compiling eager kernels without launching them.

The first call of an op loads its kernels, creates handles of libraries and, for
special functions, compiles source with NVRTC: up to seconds of the host's time
in which a GPU would be held for nothing. Calls under stream capture do all of
that and launch nothing; what was captured is thrown away. The capture is the
driver's own, not torch's: a call that cannot be captured (it waits for the
device) then leaves torch's allocator and generators as they were.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator

import torch

from opsgen.errors import TaskError

_RELAXED = 2  # cudaStreamCaptureModeRelaxed: memory may be taken and modules loaded meanwhile


def preload(call: Callable[[], object]) -> bool:
    """Make a call under capture, so that nothing it launches runs.

    Whatever it returns holds no values. What it raises ends it and is dropped: the call will
    be made for real later.

    Args:
        call: Launches work on the current stream of the current device.

    Returns:
        Whether the call came to its end.
    """
    torch.cuda.current_blas_handle()  # type: ignore[no-untyped-call] # not under capture
    make_stream: Callable[[], torch.cuda.Stream] = torch.cuda.Stream
    is_complete = False
    with torch.cuda.stream(make_stream()), contextlib.suppress(TaskError, RuntimeError):
        with _captured():
            call()
        is_complete = True
    return is_complete


@contextlib.contextmanager
def _captured() -> Iterator[None]:
    runtime = _runtime()
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    _check(runtime.cudaStreamBeginCapture(stream, ctypes.c_int(_RELAXED)))
    try:
        yield
    finally:
        graph = ctypes.c_void_p()
        # An error here is that of a call that could not be captured, which has said so itself.
        runtime.cudaStreamEndCapture(stream, ctypes.byref(graph))
        if graph.value:
            runtime.cudaGraphDestroy(graph)
        runtime.cudaGetLastError()


def _runtime() -> ctypes.CDLL:
    """Return the CUDA runtime that torch has loaded."""
    version = torch.version.cuda
    if version is None:
        raise RuntimeError("this torch has no CUDA")
    try:
        return ctypes.CDLL(f"libcudart.so.{version.partition('.')[0]}")
    except OSError as error:
        raise RuntimeError(f"no CUDA runtime: {error}") from error


def _check(code: int) -> None:
    if code:
        raise RuntimeError(f"stream capture: CUDA error {code}")
