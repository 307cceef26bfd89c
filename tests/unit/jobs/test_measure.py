"""Measuring on this machine's CPU, end to end."""

import msgspec
import pytest
import torch
from torch._inductor import config

from opsgen.device import environment_id, read_environment
from opsgen.errors import MeasureError
from opsgen.jobs import baselines, measure
from opsgen.records import MODES, MeasureRequest, decode_line, encode_line
from opsgen.source import foreign_task
from opsgen.verify import twins

RETURN = "        return "


def measured(task, context, modes=("eager", "compile"), **options):
    request = MeasureRequest(
        task=task, device="cpu", modes=modes, max_s_per_mode=0.02, seed=3, **options
    )
    return measure.run(request, context)


@pytest.mark.check
def test_a_good_task(chain, context):
    evidence = measured(chain("linear", "tanh"), context)
    assert evidence.failure is None
    assert evidence.environment_id == environment_id(read_environment("cpu"))
    assert evidence.observed == evidence.compiled == chain("linear", "tanh").workloads[0].outputs
    assert evidence.num_graphs == 1
    assert evidence.num_generated_kernels >= 1
    assert evidence.compile_margin <= 1
    assert evidence.is_repeatable
    assert evidence.is_pure
    assert evidence.num_nonfinite == 0
    (tolerance,) = evidence.tolerances
    assert tolerance.num_terms == 10_000
    assert 100 * 2**-23 <= tolerance.value < 1e-3
    assert min(answer.margin for answer in evidence.answers) > 100
    assert [timing.mode for timing in evidence.timings] == ["eager", "compile"]
    assert all(len(timing.samples_ms) >= 7 for timing in evidence.timings)
    assert all(timing.median_ms > evidence.launch_floor_ms for timing in evidence.timings)
    assert evidence.peak_bytes is None
    assert evidence.is_advisory
    least = evidence.speed_of_light
    assert least.moved_bytes == 4 * (2 * 256 * 128 + 128 * 128 + 128)
    assert least.flops == 2 * 256 * 128 * 128
    assert 0 < least.time_ms < evidence.timings[0].median_ms
    assert evidence.lease.num_holds == 2
    assert not context.lease.is_held
    assert decode_line(encode_line(evidence), type(evidence)) == evidence


@pytest.mark.check
def test_code_that_only_eager_runs(chain, context):
    task = chain("relu", "tanh")
    code = task.code.replace(RETURN, f"        x = x + 1 if x.sum() > 0 else x\n{RETURN}")
    evidence = measured(msgspec.structs.replace(task, code=code), context)
    assert evidence.failure.criterion == "executes"
    assert evidence.failure.stage == "compile"
    assert evidence.observed
    assert evidence.timings == ()
    assert not context.lease.is_held


def test_eager_alone(chain, context):
    evidence = measured(chain("linear", "tanh"), context, modes=("eager",))
    assert [timing.mode for timing in evidence.timings] == ["eager"]
    assert (evidence.num_graphs, evidence.compile_margin) == (None, None)


@pytest.mark.check
def test_further_modes_are_timed_beside_the_two(chain, context):
    modes = ("eager", "compile", "eager_high", "compile_high")
    evidence = measured(chain("linear", "tanh"), context, modes)
    assert tuple(timing.mode for timing in evidence.timings) == modes
    assert (evidence.num_graphs, evidence.compile_margin <= 1) == (1, True)


def test_without_checks_only_baselines_are_taken(chain, context):
    evidence = measured(chain("linear", "tanh"), context, ("eager",), checks=False)
    assert evidence.failure is None
    assert evidence.observed == chain("linear", "tanh").workloads[0].outputs
    assert [timing.mode for timing in evidence.timings] == ["eager"]
    assert (evidence.answers, evidence.tolerances, evidence.is_repeatable) == ((), (), None)


def test_a_hold_is_accounted_for(chain, context):
    lease = measured(chain("linear", "tanh"), context, ("eager",)).lease
    assert {"build", "inputs", "first_call", "answers", "time"} <= lease.parts_s.keys()
    assert 0.8 * lease.hold_s <= sum(lease.parts_s.values()) <= lease.hold_s + 1e-3


def test_code_that_raises_is_evidence_and_leaves_the_lease(chain, context):
    task = chain("relu", "tanh")
    code = task.code.replace(RETURN, f"        x = x.view(7, 7, 7)\n{RETURN}")
    evidence = measured(msgspec.structs.replace(task, code=code), context)
    assert evidence.failure.stage == "eager"
    assert evidence.lease.num_holds == 1
    assert not context.lease.is_held


def test_foreign_code_gets_its_tolerance_where_float64_is_affordable(foreign, context, monkeypatch):
    monkeypatch.setitem(twins._DOUBLE, "cpu", (200_000, 10**9))
    evidence = measured(foreign("return x.exp()", "torch.randn(64, 64)"), context, ("eager",))
    assert not evidence.tolerances[0].is_assumed
    large = foreign("return x @ x", "torch.randn(256, 256)")
    evidence = measured(large, context, ("eager",))
    assert evidence.tolerances[0].is_assumed
    assert evidence.timings
    code = large.code.replace("import torch\n", "import torch\nn = 256\n", 1)
    cut = foreign_task(code.replace("256, 256", "n, n"), origin="t")
    (tolerance,) = measured(cut, context, ("eager",)).tolerances
    assert (tolerance.is_assumed, tolerance.num_terms) == (False, 256)


def test_dead_calls_show_at_full_size_where_no_twin_shows_them(foreign, context, monkeypatch):
    task = foreign("return torch.relu(torch.relu(x))", "torch.randn(256, 256)")
    assert [e.subject for e in measured(task, context, ("eager",)).effects] == ["input x"]
    monkeypatch.setitem(twins._DOUBLE, "cpu", (200_000, 10**9))
    effects = measured(task, context, ("eager",)).effects
    dead = {(e.subject, e.change) for e in effects if e.margin <= 1}
    assert dead == {("call 0 (torch.relu)", "deleted"), ("call 1 (torch.relu)", "deleted")}


def test_the_reduction_term_of_foreign_code_is_that_of_its_shapes(foreign, context):
    evidence = measured(foreign("return x.sum(1)", "torch.randn(64, 4096)"), context, ("eager",))
    (tolerance,) = evidence.tolerances
    assert tolerance.num_terms == 4096
    assert tolerance.value >= 64 * 2**-23
    assert evidence.has_stable_inputs
    assert [effect.subject for effect in evidence.effects] == ["input x"]


@pytest.mark.parametrize(
    "forward",
    ["x.data.clamp_(min=0)\n        return x * 2", "self.k += x.sum()\n        return x * self.k"],
)
def test_writes_show_at_full_size(foreign, context, forward):
    task = foreign(forward, "torch.randn(64, 64)", "self.register_buffer('k', torch.zeros(()))")
    assert measured(task, context, ("eager",)).is_pure is False


def test_our_own_faults_are_not_the_tasks(foreign, context, monkeypatch):
    def fail(*_args):
        raise ZeroDivisionError("in the clock")

    monkeypatch.setattr(baselines.Clock, "measure_modes", fail)
    with pytest.raises(ZeroDivisionError, match="in the clock"):
        measured(foreign("return x.exp()", "torch.randn(64, 64)"), context, ("eager",))


@pytest.mark.check
@pytest.mark.parametrize(
    ("said", "is_machine"),
    [("fatal error: Killed signal terminated program cc1plus", True), ("error: no", False)],
)
def test_a_killed_compiler_is_the_machines_fault(foreign, context, tmp_path, said, is_machine):
    compiler = tmp_path / "g++"
    compiler.write_text(
        f'#!/bin/sh\ncase "$*" in --version*|-dumpversion*) exec g++ "$@";; esac\necho "g++: {said}" >&2\nexit 1\n'
    )
    compiler.chmod(0o755)
    task = foreign(f"return torch.tanh(x) * 3.{len(said)}", "torch.randn(64, 64)")
    with config.patch({"cpp.cxx": (None, str(compiler))}):
        if is_machine:
            with pytest.raises(MeasureError, match="Killed signal"):
                measured(task, context)
        else:
            assert measured(task, context).failure.criterion == "executes"


def test_what_this_machine_cannot_do_is_not_the_tasks_fault(chain, context):
    task = chain("relu", "tanh")
    with pytest.raises(ValueError, match="warp"):
        measured(task, context, ("warp",))
    read_environment.cache_clear()
    with (
        config.patch({"cpp.cxx": (None, "/nonexistent/g++")}),
        pytest.raises(MeasureError, match="compiler"),
    ):
        measured(task, context)
    read_environment.cache_clear()


@pytest.mark.gpu
def test_a_good_task_on_a_gpu(chain, gpu_context):
    request = MeasureRequest(
        task=chain("linear", "tanh"),
        device="cuda",
        modes=("eager", "compile"),
        max_s_per_mode=0.05,
        seed=3,
    )
    evidence = measure.run(request, gpu_context)
    assert evidence.failure is None
    assert evidence.peak_bytes > 0
    assert evidence.num_graphs == 1
    assert not evidence.is_advisory
    assert evidence.precision["matmul"] == "ieee"
    assert len(evidence.picks) >= 1
    assert evidence.state.sm_mhz > 0


@pytest.mark.gpu
def test_all_modes_on_a_gpu(chain, gpu_context):
    task = chain("linear", "tanh")
    request = MeasureRequest(task=task, device="cuda", modes=MODES, max_s_per_mode=0.05, seed=3)
    evidence = measure.run(request, gpu_context)
    assert evidence.failure is None
    assert [timing.mode for timing in evidence.timings] == list(MODES)
    assert torch.get_float32_matmul_precision() == "highest"
