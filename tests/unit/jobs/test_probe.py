"""The probe: what it shows of good tasks, planted bad ones and foreign code."""

import msgspec
import pytest

from opsgen.jobs import environment, probe
from opsgen.records import EnvironmentRequest, ProbeRequest, decode_line, encode_line


def probed(task, context, **options):
    return probe.run(ProbeRequest(task=task, seed=3, **options), context)


def test_a_good_task(chain, context):
    evidence = probed(chain("linear", "tanh"), context)
    assert evidence.failure is None
    assert evidence.source_faults == ()
    assert evidence.observed == evidence.predicted
    assert evidence.ops_difference is None
    assert (evidence.num_draws, evidence.num_nonfinite) == (15, 0)
    assert evidence.is_repeatable
    assert evidence.is_pure
    assert evidence.has_stable_inputs
    assert evidence.mode_class == "same"
    (tolerance,) = evidence.tolerances
    assert 4 * 2**-23 <= tolerance.value < 1e-4
    assert min(answer.margin for answer in evidence.answers) > 1000
    assert len(evidence.effects) == 7
    assert min(effect.margin for effect in evidence.effects) > 100
    assert decode_line(encode_line(evidence), type(evidence)) == evidence
    assert context.current_stage == "probe"


def test_the_same_request_gives_the_same_evidence(chain, context):
    task = chain("linear", "sigmoid")
    assert encode_line(probed(task, context)) == encode_line(probed(task, context))


def test_checks_can_be_left_out(chain, context):
    evidence = probed(chain("tanh", "exp"), context, liveness=False, lazy_answers=False)
    assert (evidence.answers, evidence.effects) == ((), ())
    assert evidence.tolerances


@pytest.mark.parametrize(
    ("ops", "subject"),
    [(("relu", "relu"), "node 1 (relu)"), (("sigmoid", "abs"), "node 1 (abs)")],
)
def test_dead_ops_show(chain, context, ops, subject):
    evidence = probed(chain(*ops), context)
    dead = {(effect.subject, effect.change) for effect in evidence.effects if effect.margin <= 1}
    assert (subject, "deleted") in dead


def test_ops_that_did_not_run_show(chain, context):
    task = msgspec.structs.replace(chain("tanh", "exp"), ops=("torch.nn.Tanh", "torch.nn.ELU"))
    assert probed(task, context).ops_difference.endswith("are torch.nn.Tanh, torch.exp")
    code = task.code.replace("self.tanh(x)", "self.tanh(x) + 1")
    task = msgspec.structs.replace(chain("tanh", "exp"), code=code)
    assert "call 1 is torch.Tensor.add" in probed(task, context).ops_difference


def test_numbers_outside_the_domain_show(chain, context):
    assert probed(chain("log", "tanh"), context).num_nonfinite > 0


def test_source_that_breaks_a_rule_is_not_run(chain, context, tmp_path):
    task = chain("relu", "tanh")
    witness = tmp_path / "ran"
    code = f"open({str(witness)!r}, 'w')\n" + task.code
    evidence = probed(msgspec.structs.replace(task, code=code), context)
    assert {fault.rule for fault in evidence.source_faults} == {"top_level", "denied_name"}
    assert evidence.observed == ()
    assert not witness.exists()


def test_wrong_predictions_show(chain, context):
    task = chain("relu", "tanh")
    wrong = msgspec.structs.replace(task.workloads[0], outputs=task.workloads[1].outputs)
    evidence = probed(
        msgspec.structs.replace(task, workloads=(wrong, *task.workloads[1:])), context
    )
    assert evidence.observed != evidence.predicted


def test_code_that_raises_is_evidence(chain, context):
    task = chain("relu", "tanh")
    code = task.code.replace("        return ", "        x = x.view(7, 7, 7)\n        return ")
    evidence = probed(msgspec.structs.replace(task, code=code), context)
    assert evidence.failure is not None
    assert (evidence.failure.criterion, evidence.failure.stage) == ("executes", "meta")
    assert evidence.observed == ()


def test_small_foreign_code_is_run(foreign, context):
    evidence = probed(
        foreign("return self.n(x)", "torch.randn(16, 8)", "self.n = nn.BatchNorm1d(8)"), context
    )
    assert evidence.failure is None
    assert evidence.predicted == ()
    assert evidence.observed[0].shape == (16, 8)
    assert evidence.num_draws == 15
    assert evidence.mode_class == "mutates"
    subjects = {effect.subject for effect in evidence.effects}
    assert "buffer n.running_var" in subjects
    assert min(effect.margin for effect in evidence.effects) > 1


def test_large_foreign_code_is_left_to_the_device(foreign, context):
    evidence = probed(foreign("return x @ x", "torch.randn(10**5, 10**5)"), context)
    assert evidence.failure is None
    assert evidence.observed[0].shape == (10**5, 10**5)
    assert (evidence.num_draws, evidence.is_repeatable) == (0, None)


def test_foreign_code_that_meta_cannot_run_is_run_and_judged(foreign, context):
    repeated = "x.repeat_interleave((x > 0).long() + 1)"
    failure = probed(foreign(f"return {repeated}", "torch.randn(8)"), context).failure
    assert (failure.criterion, failure.stage) == ("executes", "twin")
    assert "for one draw" in failure.message
    evidence = probed(foreign(f"return x * {repeated}.sum()", "torch.randn(8)"), context)
    assert (evidence.failure, evidence.num_draws, evidence.observed) == (None, 15, ())


def test_the_environment_job(context):
    record = environment.run(EnvironmentRequest(device="cpu"), context)
    assert record.device == "cpu"
