"""The modes in which a reference can be timed: how it is compiled, how float32 is computed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from opsgen.records import MODES

HIGH = "high"
_MAX_AUTOTUNE = "max-autotune-no-cudagraphs"


@dataclass(frozen=True, slots=True)
class Mode:
    """One baseline.

    Attributes:
        name: Its name in records and recipes.
        is_compiled: Runs under `torch.compile`.
        tries_out: Compiling it runs kernels on the device to choose among them.
        precision: What `torch.set_float32_matmul_precision` is told; None for what torch ships.
    """

    name: str
    is_compiled: bool
    tries_out: bool = False
    precision: str | None = None

    @property
    def compile_options(self) -> Mapping[str, Any]:
        """Settings of Inductor that differ from the shipped ones."""
        if not self.tries_out:
            return {}
        return dict(torch._inductor.list_mode_options(_MAX_AUTOTUNE))

    def under_precision(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return `call` made at this mode's precision; the same object where that is torch's."""
        precision = self.precision
        if precision is None:
            return call

        def run(*inputs: Any) -> Any:
            with matmul_precision(precision):
                return call(*inputs)

        return run


_BY_NAME = {
    mode.name: mode
    for mode in (
        Mode("eager", is_compiled=False),
        Mode("compile", is_compiled=True),
        Mode("compile_max_autotune", is_compiled=True, tries_out=True),
        Mode("eager_high", is_compiled=False, precision=HIGH),
        Mode("compile_high", is_compiled=True, precision=HIGH),
    )
}


def mode_named(name: str) -> Mode:
    """Return the mode of a name.

    Raises:
        ValueError: There is none.
    """
    if name not in _BY_NAME:
        raise ValueError(f"no mode {name!r}; there are {', '.join(MODES)}")
    return _BY_NAME[name]


@contextlib.contextmanager
def matmul_precision(precision: str) -> Iterator[None]:
    """Compute float32 products at `precision` in the block, as torch's own switch says."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def read_precision() -> dict[str, str]:
    """Return how float32 is computed on CUDA, `ieee` or `tf32`, by kind of op."""
    flags = {
        "matmul": torch.backends.cuda.matmul.allow_tf32,
        "conv": torch.backends.cudnn.allow_tf32,
        "rnn": torch.backends.cudnn.allow_tf32,
    }
    return {kind: "tf32" if is_on else "ieee" for kind, is_on in flags.items()}
