"""Compilation that launches nothing.

Dynamo, Inductor and the code generators run; the compiled graph then refuses
its first call, so that the work can be done outside the device's lease, on
tensors without storage. Once the gate is open the same code runs without
another compile.
"""

from __future__ import annotations

import contextlib
import errno
import re
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import BrokenExecutor
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from opsgen.errors import MeasureError

Runnable = Callable[..., Any]

# What compilers, linkers and the operating system say when the machine has let them down.
_SPEAKS_OF_MACHINE = re.compile(
    r"killed signal|fatal error: killed|no space left on device|cannot allocate memory"
    r"|virtual memory exhausted|out of memory allocating|too many open files|disk quota exceeded"
    r"|resource temporarily unavailable|input/output error|read-only file system"
    r"|process pool (was|is) terminated|terminated abruptly|died with <signals\.sig|collect2: fatal"
    r"|returned non-zero exit status -\d+|failed with error code -\d+|std::bad_alloc"
    r"|brokenprocesspool|stale file handle",
    re.IGNORECASE,
)
_MACHINE_CODES = frozenset(
    {errno.EAGAIN, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM}
    | {errno.ENOSPC, errno.EROFS, errno.ESTALE}
)


class _GateClosed(BaseException):
    """The compiled graph was called before the gate opened; no task code can swallow it."""


@dataclass(frozen=True, slots=True)
class CompileFacts:
    """What a compile brought.

    Attributes:
        compile_s: Seconds it took.
        num_graphs: Graphs that Dynamo captured.
        num_generated_kernels: Kernels that Inductor wrote; library calls do not count.
    """

    compile_s: float
    num_graphs: int
    num_generated_kernels: int


class GatedCompile:
    """A module under `torch.compile`, compiled without being run.

    Args:
        model: The module; its tensors may have been freed of their storage.
        options: Settings of Inductor that differ from the shipped ones.
    """

    def __init__(self, model: nn.Module, options: Mapping[str, Any] | None = None) -> None:
        self._options = dict(options or {})
        self._is_open = False
        self._num_compiles = 0
        self._compiled: Runnable = torch.compile(
            model, backend=self._backend, fullgraph=True, dynamic=False
        )

    @property
    def num_compiles(self) -> int:
        """Graphs handed to Inductor so far: more than after `compile` means a recompile."""
        return self._num_compiles

    def compile(self, inputs: tuple[Any, ...]) -> CompileFacts:
        """Compile for the metadata of `inputs`, launching nothing.

        What Dynamo or Inductor raises travels.

        Raises:
            MeasureError: The machine could not run its compilers; the task may be sound.
        """
        from torch._dynamo.utils import counters
        from torch._inductor import metrics

        begin_s = time.perf_counter()
        num_graphs = counters["stats"]["unique_graphs"]
        num_kernels = metrics.generated_kernel_count
        with compiler_faults(), contextlib.suppress(_GateClosed), torch.no_grad():
            self._compiled(*inputs)
        self._is_open = True
        return CompileFacts(
            compile_s=time.perf_counter() - begin_s,
            num_graphs=counters["stats"]["unique_graphs"] - num_graphs,
            num_generated_kernels=metrics.generated_kernel_count - num_kernels,
        )

    def __call__(self, *inputs: Any) -> Any:
        """Run the compiled code; the first call autotunes where Inductor does."""
        with torch.no_grad():
            return self._compiled(*inputs)

    def _backend(self, graph: torch.fx.GraphModule, example_inputs: list[Any]) -> Runnable:
        from torch._inductor.compile_fx import compile_fx

        self._num_compiles += 1
        limit = sys.getrecursionlimit()
        try:
            inner: Any = compile_fx(graph, example_inputs, config_patches=self._options or None)
        finally:
            # Inductor raises it for every compile; a job must leave its process as it was.
            sys.setrecursionlimit(limit)

        def gate(*args: Any) -> Any:
            if not self._is_open:
                raise _GateClosed
            return inner(*args)

        return gate


class compiler_faults:  # noqa: N801 - read as a statement: `with compiler_faults():`
    """Tell a machine that cannot compile from code that cannot be compiled.

    For blocks in which compilers run: raises `MeasureError` in place of an error that a
    compiler died of because it was killed or found no memory, space or descriptors.
    """

    def __enter__(self) -> None:
        """Nothing need be prepared."""

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        """Replace a fault of the machine; whatever else was raised travels."""
        cause = _machine_fault(error) if isinstance(error, Exception) else None
        if cause is not None:
            raise MeasureError(f"compiling failed on this machine: {cause}") from error


def _machine_fault(error: BaseException) -> str | None:
    seen: set[int] = set()
    # Where an error was raised while another was handled, that one may be as harmless as a
    # file that the cache lacks; only what its code says of the machine counts.
    links: list[tuple[BaseException | None, bool]] = [(error, True)]
    while links:
        link, is_cause = links.pop()
        if link is None or id(link) in seen:
            continue
        seen.add(id(link))
        text = str(link)
        if _is_machine(link, text, is_cause=is_cause):
            lines = [line for line in text.splitlines() if _SPEAKS_OF_MACHINE.search(line)]
            return f"{type(link).__name__}: {' '.join((lines or [text])[0].split())[:300]}"
        context = None if link.__suppress_context__ else link.__context__
        links += [(context, False), (link.__cause__, is_cause)]
        links.append((getattr(link, "inner_exception", None), is_cause))
    return None


def _is_machine(error: BaseException, text: str, *, is_cause: bool) -> bool:
    if isinstance(error, OSError):
        return is_cause or error.errno in _MACHINE_CODES
    return isinstance(error, BrokenExecutor) or bool(_SPEAKS_OF_MACHINE.search(text))


def reset_compiler() -> None:
    """Forget compiled code, caches in memory and counters of earlier tasks."""
    import torch._dynamo
    from torch._dynamo.utils import counters
    from torch._inductor import metrics

    torch._dynamo.reset()
    counters.clear()
    metrics.reset()
