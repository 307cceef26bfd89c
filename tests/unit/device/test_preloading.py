"""Kernels loaded ahead: nothing runs, and what cannot be captured leaves no trace."""

import pytest
import torch

from opsgen.device import preload

pytestmark = pytest.mark.gpu


def test_nothing_runs():
    x = torch.zeros(1000, device="cuda")
    assert preload(lambda: x.add_(1.0))
    torch.cuda.synchronize()
    assert not x.any()


def test_source_is_compiled_ahead():
    x = torch.rand(64, device="cuda") + 1.0
    assert preload(lambda: torch.special.modified_bessel_k1(x))
    torch.testing.assert_close(
        torch.special.modified_bessel_k1(x).cpu(), torch.special.modified_bessel_k1(x.cpu())
    )


@pytest.mark.parametrize("what", ["waits", "draws", "raises"])
def test_what_cannot_be_captured_leaves_no_trace(what):
    x = torch.ones(64, device="cuda")

    def call():
        if what == "raises":
            raise RuntimeError("no")
        return x.sum().item() if what == "waits" else torch.randn(8, device="cuda")

    before = torch.cuda.get_rng_state()
    assert not preload(call)
    assert torch.equal(torch.cuda.get_rng_state(), before)
    torch.cuda.empty_cache()
    assert x.sum().item() == 64.0
    assert torch.randn(8, device="cuda").isfinite().all()
    assert preload(lambda: x * 2.0)
