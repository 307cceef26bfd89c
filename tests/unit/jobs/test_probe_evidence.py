"""What the probe records beyond verdicts: traces, memory, axes, work that nobody checks."""

from __future__ import annotations

import msgspec
import pytest

from opsgen.jobs import probe
from opsgen.records import ProbeRequest, decode_line, encode_line
from opsgen.verify import trace_code


def probed(task, context, **options):
    return probe.run(ProbeRequest(task=task, seed=3, **options), context)


def test_sampled_and_foreign_code_have_one_trace(chain, foreign, context):
    sampled = probed(chain("relu", "sigmoid"), context)
    other = probed(foreign("return torch.sigmoid(torch.relu(x))", "torch.randn(4, 6)"), context)
    assert sampled.trace == trace_code(chain("relu", "sigmoid").code)
    assert sampled.trace.hash == other.trace.hash
    assert sampled.trace.sized_hash != other.trace.sized_hash
    assert decode_line(encode_line(other), type(other)) == other


def test_memory_of_a_call_is_predicted(foreign, context):
    evidence = probed(foreign("return (x.exp() @ x.t()).sum(1)", "torch.randn(64, 16)"), context)
    size = 64 * 16 * 4
    product = 64 * 64 * 4
    assert evidence.peak_bytes == size + size + product  # exp dies before the sum
    assert evidence.largest_elements == 64 * 64
    assert evidence.kept_fraction == pytest.approx(1 / 64)


def test_large_tensors_within_a_call_show(foreign, context):
    evidence = probed(foreign("return (x @ x.t()).sum()", "torch.randn(10**5, 2)"), context)
    assert evidence.largest_elements == 10**10
    assert evidence.peak_bytes > 4 * 10**10


@pytest.mark.parametrize(
    "forward", ["return x.t()", "return x.view(-1)[:3]", "return x.expand(9, 4, 6)"]
)
def test_a_task_that_computes_nothing_does_not_execute(foreign, context, forward):
    failure = probed(foreign(forward, "torch.randn(4, 6)"), context).failure
    assert failure.criterion == "executes"


def test_copies_into_another_order_are_work(foreign, context):
    assert (
        probed(foreign("return x.t().contiguous()", "torch.randn(4, 6)"), context).failure is None
    )


def test_a_tensor_made_on_the_wrong_device_is_the_tasks_fault(foreign, context):
    made = "return x @ torch.eye(6{})"
    failure = probed(foreign(made.format(""), "torch.randn(4, 6)"), context).failure
    named = probed(foreign(made.format(", device=x.device"), "torch.randn(4, 6)"), context)
    # A source rule may have seen it first; where none does, `meta` does.
    assert failure is None or failure.criterion == "executes"
    assert named.failure is None


def test_labels(foreign, context):
    code = "rows = 6\ncolumns = 6\n" + foreign("return x @ x", "torch.randn(rows, columns)").code
    task = msgspec.structs.replace(foreign("return x", "x"), code=code)
    evidence = probed(task, context)
    assert evidence.axis_ambiguity == ("rows", "columns")
    assert evidence.batch_mixing is True
    assert 0 < evidence.draw_s < 5
    assert evidence.is_full_size is True
    apart = probed(foreign("return x.exp()", "torch.randn(6, 6)"), context)
    assert (apart.axis_ambiguity, apart.batch_mixing) == ((), False)


def test_dead_calls_of_foreign_code(foreign, context):
    def effects(forward):
        evidence = probed(foreign(forward, "torch.randn(8, 32)"), context)
        return {e.subject for e in evidence.effects if e.margin <= 1}, evidence.unverified_fraction

    assert effects("return torch.relu(torch.relu(x))") == (
        {"call 0 (torch.relu)", "call 1 (torch.relu)"},
        0,
    )
    assert effects("return torch.relu(x) * 2") == (set(), 0)
    assert effects("y = torch.relu(x) @ x.t()\n        return torch.diag(y)")[1] > 0.05


def test_a_leaf_that_changes_only_now_and_then_is_not_fixed(foreign, context):
    fixed = "torch.randn(4, 6), torch.rand(4, 6) * 0 + 1"
    rare = "torch.randn(4, 6), (torch.rand(1) < 0.3).float().expand(4, 6).clone()"
    names = ("return x * y", "self, x")
    found = []
    for inputs in (fixed, rare):
        task = foreign(names[0], inputs)
        code = task.code.replace("def forward(self, x)", "def forward(self, x, y)")
        found.append(probed(msgspec.structs.replace(task, code=code), context).has_stable_inputs)
    assert found == [False, True]


def test_a_deep_net_whose_signal_dies(foreign, context):
    deep = "self.body = nn.Sequential(*[nn.Linear(16, 16) for _ in range(24)])"
    flat = probed(foreign("return self.body(x)", "torch.randn(8, 16)", deep), context)
    shallow = deep.replace("24", "2")
    sound = probed(foreign("return self.body(x)", "torch.randn(8, 16)", shallow), context)
    margins = [{a.name: a.margin for a in e.answers}["faded"] for e in (flat, sound)]
    assert margins[0] <= 1
    assert margins[1] > 10


def test_declared_ops_of_a_row(foreign, context):
    task = foreign("return torch.relu(x).softmax(1)", "torch.randn(8, 16)")
    for ops, is_true in ((("relu", "nn.Softmax"), True), (("relu",), False), ((), True)):
        row = msgspec.structs.replace(task, ops=ops)
        assert (probed(row, context).ops_difference is None) is is_true
