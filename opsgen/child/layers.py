"""The layers of the sandbox: what each keeps foreign code from, and whether this machine has it."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from opsgen.child.folders import owned_folder, sweep_folders
from opsgen.child.view import HIDE_VARIABLE
from opsgen.errors import MeasureError
from opsgen.records import Record

TRIAL_PREFIX = "opsgen-trial-"
MAX_TRIAL_S = 60.0

_TRIAL = "import sys; from opsgen.child.sandbox import try_out; try_out(*sys.argv[1:])"
_ALLOW = "to run foreign code without, say so by name: --allow-unsandboxed (fleet.sandbox = false)"


class Layer(Record, frozen=True, kw_only=True):
    """One layer of the sandbox, as it was found from inside."""

    name: str
    """Short name."""
    is_required: bool
    """Whether foreign code is refused without it."""
    holds: bool
    """Whether attempts to get past it failed."""
    meaning: str
    """What holds, or what foreign code can do without it."""
    obstacle: str | None = None
    """What this machine refused; absent if nothing, or nothing is known."""


@dataclass(frozen=True, slots=True)
class _Kind:
    is_required: bool
    present: str
    absent: str


_KINDS = {
    "network": _Kind(
        True,
        "Tasks reach no network, not even this machine's own services.",
        "Tasks can talk to the network and to services on this machine.",
    ),
    "files": _Kind(
        True,
        "Tasks write to their work folder and nowhere else.",
        "Tasks can write wherever their user can.",
    ),
    "privileges": _Kind(
        True,
        "Tasks hold no capability and can gain none.",
        "Tasks can use or gain the rights of an administrator.",
    ),
    "user": _Kind(
        False,
        "Tasks run as a user that owns nothing.",
        "Tasks run as the user who runs opsgen, and read the files that this user can read.",
    ),
    "hidden": _Kind(
        False,
        "Tasks see no home folders, no temporary files of others and no secrets in variables.",
        "Tasks can read home folders and temporary files that their user can read.",
    ),
    "strangers": _Kind(
        False,
        "Tasks cannot signal or inspect processes other than their own.",
        "Tasks can signal or inspect processes of their user, opsgen's among them.",
    ),
    "calls": _Kind(
        False,
        "System calls for tracing, mounting, namespaces and the like are denied.",
        "Tasks may use every system call that the kernel lets their user use.",
    ),
    "limits": _Kind(
        False,
        "Open files and sizes of files are limited, no core is dumped.",
        "Nothing limits how many and how large the files of tasks are.",
    ),
}

NAMES = tuple(_KINDS)
"""All layers, in the order in which they are shown."""


def layer_of(name: str, *, holds: bool, obstacle: str | None) -> Layer:
    """Return a layer with the sentence that goes with what was found."""
    kind = _KINDS[name]
    return Layer(
        name=name,
        is_required=kind.is_required,
        holds=holds,
        meaning=kind.present if holds else kind.absent,
        obstacle=None if holds else obstacle,
    )


def no_layers(obstacle: str) -> tuple[Layer, ...]:
    """Return all layers of a machine that has none."""
    return tuple(layer_of(name, holds=False, obstacle=obstacle) for name in NAMES)


def check_required(layers: tuple[Layer, ...]) -> None:
    """Refuse a sandbox with a hole in it.

    Raises:
        MeasureError: A required layer is missing; one line says which, and how to do without.
    """
    missing = [layer for layer in layers if layer.is_required and not layer.holds]
    if missing:
        named = ", ".join(
            f"{layer.name} ({layer.obstacle})" if layer.obstacle else layer.name
            for layer in missing
        )
        raise MeasureError(f"this machine's sandbox for foreign code lacks {named}; {_ALLOW}")


def describe_layers(device: str = "cpu") -> tuple[Layer, ...]:
    """Enter the sandbox in a process that ends at once, and return what it found.

    Args:
        device: `cpu` or `cuda`: with a GPU the other user must be able to open it.

    Raises:
        MeasureError: The process found nothing out; the message says why.
    """
    sweep_folders(TRIAL_PREFIX)
    with owned_folder(TRIAL_PREFIX, is_passable=True) as folder:
        return _try_out(folder, device)


@functools.cache
def require_layers(device: str) -> None:
    """Refuse a machine without the required layers, which is tried once in a process.

    Raises:
        MeasureError: A required layer is missing; see `check_required`.
    """
    check_required(describe_layers(device))


def _try_out(folder: Path, device: str) -> tuple[Layer, ...]:
    package_root = str(Path(__file__).parents[2])
    path = [package_root, *filter(None, [os.environ.get("PYTHONPATH")])]
    try:
        trial = subprocess.run(
            [sys.executable, "-P", "-c", _TRIAL, str(folder), device],
            cwd=folder,
            env=clean_environment(os.environ) | {"PYTHONPATH": os.pathsep.join(path)},
            capture_output=True,
            timeout=MAX_TRIAL_S,
            check=False,
        )
        return msgspec.json.decode(trial.stdout, type=tuple[Layer, ...])
    except subprocess.TimeoutExpired as error:
        raise MeasureError("trying the sandbox out took too long") from error
    except msgspec.DecodeError as error:
        last = trial.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        ending = f"ended with {trial.returncode}: {last}"
        raise MeasureError(f"trying the sandbox out {ending}") from error


_HARMLESS = (
    "PATH", "LANG", "LANGUAGE", "TZ", "CC", "CXX", "CPATH", "LIBRARY_PATH", "C_INCLUDE_PATH",
    "CPLUS_INCLUDE_PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "LD_LIBRARY_PATH", "LD_PRELOAD",
)  # fmt: skip
_HARMLESS_STARTS = (
    "LC_", "PYTHON", "CUDA_", "CUBLAS_", "CUDNN_", "NVIDIA_", "TORCH", "PYTORCH_", "TRITON_",
    "OMP_", "MKL_", "KMP_", "GOMP_", "OPENBLAS_", "NUMEXPR_", "MALLOC_", "OPSGEN_",
)  # fmt: skip


def clean_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return what compilers and libraries go by; whatever else stands there may be a secret.

    `HIDE_VARIABLE` is added: the folders that are to be hidden because they are ours.
    """
    harmless = {
        name: value
        for name, value in variables.items()
        if name in _HARMLESS or name.startswith(_HARMLESS_STARTS)
    }
    ours = [variables.get("HOME", ""), tempfile.gettempdir()]
    return harmless | {HIDE_VARIABLE: os.pathsep.join(filter(None, ours))}
