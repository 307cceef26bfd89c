"""The list of GPUs is what this process may see."""

from __future__ import annotations

import pytest

from opsgen.child import Gpu, list_gpus, nvml

_GPUS = [Gpu(uuid=f"GPU-{name}", name="H200", driver="570") for name in ("aa", "ab", "c")]


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, ["GPU-aa", "GPU-ab", "GPU-c"]),
        ("", []),
        ("-1", []),
        ("2,0", ["GPU-c", "GPU-aa"]),
        ("GPU-ab", ["GPU-ab"]),
        ("GPU-c, 1", ["GPU-c", "GPU-ab"]),
        ("GPU-a", []),
        ("0,7,1", ["GPU-aa"]),
        ("0,0,1", ["GPU-aa"]),
    ],
)
def test_the_variable_selects_as_cuda_does(
    monkeypatch: pytest.MonkeyPatch, visible: str | None, expected: list[str]
) -> None:
    monkeypatch.setattr(nvml, "_all_gpus", lambda: list(_GPUS))
    environ = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert [gpu.uuid for gpu in list_gpus(environ)] == expected


def test_asking_never_raises() -> None:
    assert all(gpu.uuid for gpu in list_gpus())
