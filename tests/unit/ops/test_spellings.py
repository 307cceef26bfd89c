"""Entries call what they are declared by, and take inputs in any order in memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from op_cases import Case, Runner, Spec, inputs, make_case
from torch import Tensor, nn

from opsgen.ops import CATALOGUE
from opsgen.ops.counting import is_view, reachable_ops
from opsgen.verify import record_calls, spelled_calls

every_op = pytest.mark.parametrize("name", CATALOGUE)
STACKED = frozenset(op.name for op in reachable_ops())
NUM_SHAPES = 8


class Calling(nn.Module):
    """A model whose forward is one spelling."""

    def __init__(self, runner: Runner) -> None:
        super().__init__()
        self.runner = runner
        self.module = runner.module

    def forward(self, *tensors: Tensor) -> Tensor:
        return self.runner(*tensors)


def cases_of(name: str) -> Iterator[Case]:
    cases = (make_case(Spec(name, seed)) for seed in range(100))
    return (case for case in cases if case is not None)


@every_op
def test_a_spelling_runs_what_it_is_written_with(name: str) -> None:
    case = next(cases_of(name))
    tensors = [x.to("meta") for x in inputs(case, torch.Generator().manual_seed(0))]
    for spelling in case.op.spellings:
        recording = record_calls(Calling(Runner(case, spelling, "meta")), tuple(tensors))
        written = spelled_calls(spelling)
        assert spelling.name in written or name not in STACKED
        assert spelling.name in written or name not in STACKED
        assert recording.loose == ()
        assert len(recording.calls) == len(written)
        for call, wanted in zip(recording.calls, written, strict=True):
            assert wanted in call.names
            is_declared = wanted == spelling.name
            assert not is_declared or call.aten
            # Beside what it is declared by, an op of stacks moves elements and no more.
            assert is_declared or not call.computes or name not in STACKED


def other_orders(tensor: Tensor) -> Iterator[Tensor]:
    if tensor.dim() >= 2:
        yield tensor.mT.contiguous().mT
    if tensor.dim() >= 4:
        kind = torch.channels_last if tensor.dim() == 4 else torch.channels_last_3d
        yield tensor.to(memory_format=kind)


def shares_memory(one: Tensor, other: Tensor) -> bool:
    return one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()


@every_op
def test_order_in_memory_changes_nothing(name: str) -> None:
    num_refused = 0
    for _, case in zip(range(NUM_SHAPES), cases_of(name), strict=False):
        if min(case.out, default=1) < 1:
            continue
        tensors = inputs(case, torch.Generator().manual_seed(0))
        for spelling in case.op.spellings:
            runner = Runner(case, spelling)
            expected = runner(*tensors)
            for place, tensor in enumerate(tensors):
                for other in other_orders(tensor):
                    given = (*tensors[:place], other, *tensors[place + 1 :])
                    try:
                        output = runner(*given)
                    except RuntimeError:
                        assert case.op.needs_contiguous, runner.source
                        num_refused += 1
                        continue
                    # Turned already: what is left of the op is a view of its input.
                    num_refused += shares_memory(output, other)
                    assert output.shape == expected.shape
                    assert torch.allclose(
                        output.double(), expected.double(), rtol=1e-4, atol=1e-4, equal_nan=True
                    ), runner.source
    if name in STACKED and not is_view(CATALOGUE[name]):
        assert (num_refused > 0) == CATALOGUE[name].needs_contiguous
