"""Compilation that launches nothing.

Dynamo, Inductor and the code generators run; the compiled graph then refuses
its first call, so that the work can be done outside the device's lease, on
tensors without storage. Once the gate is open the same code runs without
another compile.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

Runnable = Callable[..., Any]


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
    """

    def __init__(self, model: nn.Module) -> None:
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

        Counters are process-wide: see `reset_compiler`. What Dynamo or Inductor raises travels.
        """
        from torch._dynamo.utils import counters
        from torch._inductor import metrics

        begin_s = time.perf_counter()
        with contextlib.suppress(_GateClosed), torch.no_grad():
            self._compiled(*inputs)
        self._is_open = True
        return CompileFacts(
            compile_s=time.perf_counter() - begin_s,
            num_graphs=counters["stats"]["unique_graphs"],
            num_generated_kernels=metrics.generated_kernel_count,
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
            inner: Any = compile_fx(graph, example_inputs)
        finally:
            # Inductor raises it for every compile; a job must leave its process as it was.
            sys.setrecursionlimit(limit)

        def gate(*args: Any) -> Any:
            if not self._is_open:
                raise _GateClosed
            return inner(*args)

        return gate


def reset_compiler() -> None:
    """Forget compiled code, caches in memory and counters of earlier tasks."""
    import torch._dynamo
    from torch._dynamo.utils import counters
    from torch._inductor import metrics

    torch._dynamo.reset()
    counters.clear()
    metrics.reset()
