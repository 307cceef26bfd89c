"""Modes: every name has one, and precision is what torch says and only where it is asked for."""

import pytest
import torch

from opsgen.device import matmul_precision, mode_named
from opsgen.records import MODES


def test_every_name_has_a_mode():
    modes = [mode_named(name) for name in MODES]
    assert [mode.name for mode in modes] == list(MODES)
    assert [mode.is_compiled for mode in modes] == [name.startswith("compile") for name in MODES]
    assert {mode.name for mode in modes if mode.compile_options} == {"compile_max_autotune"}
    with pytest.raises(ValueError, match="warp"):
        mode_named("warp")


def test_options_leave_cuda_graphs_off():
    options = mode_named("compile_max_autotune").compile_options
    assert options["max_autotune"]
    assert not options.get("triton.cudagraphs", False)


def test_precision_is_set_for_the_call_alone():
    before = torch.get_float32_matmul_precision()
    call = mode_named("eager_high").under_precision(torch.get_float32_matmul_precision)
    assert call() == "high"
    assert torch.get_float32_matmul_precision() == before
    with pytest.raises(KeyError), matmul_precision("medium"):
        raise KeyError
    assert torch.get_float32_matmul_precision() == before
    assert mode_named("eager").under_precision(id) is id
