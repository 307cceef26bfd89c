"""The gate: compiling launches nothing, and the first real call compiles nothing."""

import sys
from concurrent.futures.process import BrokenProcessPool

import pytest
import torch
from torch import nn

from opsgen.device import GatedCompile, compiler_faults, free_storage, reset_compiler
from opsgen.errors import MeasureError
from opsgen.verify import State, equal_bits

pytestmark = pytest.mark.check

RUNS = []


@torch.library.custom_op("opsgen_test::counted", mutates_args=())
def counted(x: torch.Tensor) -> torch.Tensor:
    RUNS.append(x.shape)
    return x * 2


@counted.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


class _Counted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(32, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(torch.tanh(counted(self.linear(x))), 1)


@pytest.fixture(autouse=True)
def _reset():
    reset_compiler()
    RUNS.clear()
    yield
    reset_compiler()


def test_compiles_on_freed_tensors_and_runs_later_without_a_recompile():
    model = _Counted().eval()
    state = State(model)
    state.redraw(1)
    x = torch.randn(8, 32)
    gated = GatedCompile(model)
    free_storage([x])
    state.free()
    facts = gated.compile((x,))
    assert RUNS == []
    assert facts.num_graphs == 1
    assert facts.num_generated_kernels >= 1
    assert facts.compile_s > 0
    state.refill(1)
    fresh = torch.randn(8, 32)
    with torch.no_grad():
        expected = model(fresh)
    RUNS.clear()
    actual = gated(fresh)
    assert len(RUNS) == 1
    torch.testing.assert_close(actual, expected)
    state.redraw(2)
    again = gated(torch.randn(8, 32))
    assert not equal_bits((again,), (actual,))
    assert gated.num_compiles == 1
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


def test_a_second_task_starts_from_zero_and_leaves_the_process_as_it_was():
    limit = sys.getrecursionlimit()
    for _ in range(2):
        reset_compiler()
        facts = GatedCompile(nn.ReLU()).compile((torch.randn(4),))
        assert (facts.num_graphs, facts.num_generated_kernels) == (1, 1)
        assert sys.getrecursionlimit() == limit


def test_a_graph_break_is_an_error():
    class Broken(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * x.sum().item() if x.sum() > 0 else x

    with pytest.raises(Exception, match=r"(?i)data-dependent|graph break|unsupported"):
        GatedCompile(Broken()).compile((torch.ones(3),))


def wrapped(inner: BaseException) -> RuntimeError:
    error = RuntimeError("backend failed")
    error.inner_exception = inner
    return error


def chained(error: Exception, cause: Exception | None, context: Exception | None) -> Exception:
    error.__cause__, error.__context__ = cause, context
    error.__suppress_context__ = cause is not None
    return error


KILLED = "g++: fatal error: Killed signal terminated program cc1plus"
MACHINE = [
    RuntimeError(KILLED),
    wrapped(RuntimeError(KILLED)),
    OSError(28, "No space left on device"),
    RuntimeError("ld: final link failed: No space left on device"),
    RuntimeError("cc1plus: out of memory allocating 65536 bytes"),
    RuntimeError("OSError: [Errno 12] Cannot allocate memory"),
    wrapped(OSError(24, "Too many open files")),
    wrapped(PermissionError(13, "/tmp/cache")),
    chained(ValueError("no"), OSError(2, "gone"), None),
    chained(ValueError("no"), None, OSError(28, "full")),
    BrokenProcessPool("A process in the process pool was terminated abruptly"),
]
TASK = [
    RuntimeError("main.cpp:7:1: error: expected declaration"),
    chained(RuntimeError("error: no matching function"), None, FileNotFoundError(2, "cache")),
    wrapped(NotImplementedError("no lowering")),
    KeyboardInterrupt(),
]


@pytest.mark.parametrize("error", MACHINE, ids=repr)
def test_what_the_machine_did_to_a_compiler_is_no_evidence(error):
    with pytest.raises(MeasureError, match="on this machine") as caught, compiler_faults():
        raise error
    assert caught.value.__cause__ is error


@pytest.mark.parametrize("error", TASK, ids=repr)
def test_what_the_code_did_to_a_compiler_travels(error):
    with pytest.raises(type(error)) as caught, compiler_faults():
        raise error
    assert caught.value is error


def test_a_task_whose_input_numpy_holds_keeps_it():
    tensor = torch.ones(3)
    array = tensor.numpy()
    free_storage([tensor])
    assert array.tolist() == tensor.tolist() == [1.0] * 3
