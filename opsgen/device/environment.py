"""What machine and software measurements on a device belong to."""

from __future__ import annotations

import functools
import os
import platform
from importlib import metadata
from pathlib import Path

import torch

import opsgen
from opsgen.child.nvml import list_gpus
from opsgen.records import Environment, digest

_NO_COMPILER = "torch.compile needs a C++ compiler on a CPU and finds none: install g++ or set CXX"
_NO_CUDA = 'device = "cuda" but torch sees no CUDA device'


@functools.cache
def read_environment(device: str) -> Environment:
    """Return machine, software and what is missing for measuring on `device`; read once."""
    is_cuda = device == "cuda"
    has_device = not is_cuda or torch.cuda.is_available()
    compiler = None if is_cuda else find_cpp_compiler()
    problems = []
    if not has_device:
        problems.append(_NO_CUDA)
    if not is_cuda and compiler is None:
        problems.append(_NO_COMPILER)
    gpus = list_gpus() if is_cuda and has_device else []
    name = torch.cuda.get_device_name() if is_cuda and has_device else _processor_name()
    return Environment(
        device=device,
        device_name=name,
        driver=gpus[0].driver if gpus else None,
        cuda=torch.version.cuda,
        torch=str(torch.__version__),
        triton=_version_of("triton"),
        python=platform.python_version(),
        compiler=compiler,
        num_threads=torch.get_num_threads(),
        num_cores=len(os.sched_getaffinity(0)),
        opsgen=opsgen.__version__,
        problems=tuple(problems),
    )


def environment_id(environment: Environment) -> str:
    """Return the identity under which measurements are kept."""
    return digest(environment)


def find_cpp_compiler() -> str | None:
    """Return the C++ compiler that Inductor would use, `CXX` honoured; None without one."""
    from torch._inductor import cpp_builder, exc

    try:
        return cpp_builder.get_cpp_compiler()
    except exc.InvalidCxxCompiler:
        return None


def _version_of(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _processor_name() -> str:
    table = Path("/proc/cpuinfo")
    if table.exists():
        for line in table.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
