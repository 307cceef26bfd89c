"""Liveness on hand-made tapped sources: dead parts get margins of at most 1."""

import pytest

from opsgen.records import Graph, Input, Node
from opsgen.verify import input_effects, node_effects, run_trials, state_effects


def graph_of(num_inputs: int, *ops: str) -> Graph:
    inputs = tuple(
        Input(name=f"x{i}", dims=(4,), dtype="float32", draw="normal") for i in range(num_inputs)
    )
    nodes = tuple(Node(op=op, args=(0,), attrs={}, sizes={}) for op in ops)
    return Graph(dtype="float32", inputs=inputs, nodes=nodes, outputs=(num_inputs,))


def effects_of(reference, graph):
    reference.module.__dict__["tap"] = lambda value_id, result, args: result
    tolerances = run_trials(reference, [1], [2, 3], num_terms=1).tolerances
    draws = [reference.draw(seed) for seed in range(4)]
    pairs = [(draws[0], draws[1]), (draws[2], draws[3])]
    effects = node_effects(reference, graph, pairs, tolerances)
    reference.module.__dict__["tap"] = lambda value_id, result, args: result
    effects += input_effects(reference, pairs, tolerances)
    effects += state_effects(reference, draws[0], tolerances, (1, 2))
    return {(effect.subject, effect.change): effect.margin for effect in effects}


def chain(first: str, second: str) -> str:
    return f"h = tap(1, {first}, (x,))\nreturn tap(2, {second}, (h,))"


NORMAL = "torch.randn(16, 40)"


def test_a_live_chain(build):
    reference = build(
        chain("self.linear(x)", "torch.tanh(h)"),
        NORMAL,
        init="self.linear = nn.Linear(40, 40)",
    )
    effects = effects_of(reference, graph_of(1, "linear", "tanh"))
    assert set(effects) == {
        ("node 0 (linear)", "deleted"),
        ("node 0 (linear)", "frozen"),
        ("node 1 (tanh)", "deleted"),
        ("node 1 (tanh)", "frozen"),
        ("input x", "redrawn"),
        ("parameter linear.weight", "redrawn"),
        ("parameter linear.bias", "redrawn"),
    }
    assert min(effects.values()) > 100


DEAD = [
    ("torch.relu(x)", "torch.relu(h)", NORMAL, ("node 1 (b)", "deleted")),
    ("torch.sigmoid(x)", "torch.abs(h)", NORMAL, ("node 1 (b)", "deleted")),
    ("torch.abs(x)", "torch.square(h)", NORMAL, ("node 0 (a)", "deleted")),
    ("x + 3", "F.layer_norm(h, (40,))", NORMAL, ("node 0 (a)", "deleted")),
    ("torch.tanh(x)", "h.clamp(-2, 2)", NORMAL, ("node 1 (b)", "deleted")),
    ("x * 2", "(h > 100).float()", NORMAL, ("node 1 (b)", "frozen")),
    ("torch.sign(x)", "torch.abs(h)", NORMAL, ("node 1 (b)", "frozen")),
    ("F.softmax(x, 1)", "h.sum(1)", NORMAL, ("node 0 (a)", "frozen")),
]


@pytest.mark.parametrize(("first", "second", "inputs", "dead"), DEAD)
def test_planted_dead_parts(build, first, second, inputs, dead):
    effects = effects_of(build(chain(first, second), inputs), graph_of(1, "a", "b"))
    assert effects[dead] <= 1


LIVE = [
    ("torch.sigmoid(x)", "torch.relu(h - 0.5)"),
    ("torch.square(x)", "torch.sqrt(h + 1)"),
    ("x + 3", "F.softmax(h * h, 1)"),
    ("torch.tanh(x)", "h.clamp(-0.5, 0.5)"),
]


@pytest.mark.parametrize(("first", "second"), LIVE)
def test_near_neighbours_are_live(build, first, second):
    effects = effects_of(build(chain(first, second), NORMAL), graph_of(1, "a", "b"))
    assert min(effects.values()) > 100


def test_a_binary_node_counts_by_its_weaker_operand(build):
    forward = "h = tap(2, torch.maximum(x, y), (x, y))\nreturn h"
    live = build(forward, "torch.randn(8, 8), torch.randn(8, 8)", names="x, y")
    effects = effects_of(live, graph_of(2, "maximum"))
    assert effects["node 0 (maximum)", "deleted"] > 100
    below = build(forward, "torch.randn(8, 8), torch.randn(8, 8) - 100", names="x, y")
    effects = effects_of(below, graph_of(2, "maximum"))
    assert effects["node 0 (maximum)", "deleted"] == 0
    assert effects["input y", "redrawn"] == 0
    assert effects["input x", "redrawn"] > 100


def test_a_node_without_a_fitting_argument_is_only_frozen(build):
    reference = build(chain("x.sum(1)", "torch.exp(h * 0.1)"), NORMAL)
    effects = effects_of(reference, graph_of(1, "sum", "exp"))
    assert ("node 0 (sum)", "deleted") not in effects
    assert effects["node 0 (sum)", "frozen"] > 100


def test_each_of_several_results_is_frozen_alone(build):
    forward = "v, i = tap(1, x.max(1), (x,))\nreturn v * 2"
    effects = effects_of(build(forward, NORMAL), graph_of(1, "max"))
    assert effects["node 0 (max)[0]", "frozen"] > 100
    assert effects["node 0 (max)[1]", "frozen"] == 0


def test_integer_inputs_and_outputs_count(build):
    reference = build(
        "return tap(2, y.gather(1, x).argmax(1), (x, y))",
        "torch.randint(0, 9, (32, 9)), torch.randn(32, 9)",
        names="x, y",
    )
    effects = effects_of(reference, graph_of(2, "gather"))
    assert effects["input x", "redrawn"] > 1
    assert effects["input y", "redrawn"] > 1


def test_a_parameter_absorbed_by_a_normalisation_is_dead(build):
    reference = build(
        chain("self.linear(x)", "F.instance_norm(h.unsqueeze(0))"),
        NORMAL,
        init="self.linear = nn.Linear(40, 40)\nself.linear.weight.data.mul_(3)",
    )
    effects = effects_of(reference, graph_of(1, "linear", "instance_norm"))
    assert effects["parameter linear.weight", "redrawn"] > 100
    shifted = build(
        chain("x + self.shift", "h - h.mean(1, keepdim=True)"),
        NORMAL,
        init="self.shift = nn.Parameter(torch.ones(1))",
    )
    effects = effects_of(shifted, graph_of(1, "add", "center"))
    assert effects["parameter shift", "redrawn"] <= 1


def test_deleting_what_the_rest_cannot_do_without_is_an_effect(build):
    forward = (
        "h = tap(1, torch.abs(x) + 1, (x,))\n"
        "if (h < 1).any():\n    raise ValueError\nreturn torch.log(h)"
    )
    reference = build(forward, NORMAL)
    effects = effects_of(reference, graph_of(1, "abs"))
    assert effects["node 0 (abs)", "deleted"] == float("inf")


def test_what_cannot_run_is_told_from_what_was_measured_as_infinite(build):
    forward = "if (x.abs() > 9).any():\n    raise ValueError\nreturn torch.relu(x).argmax(1) + y"
    inputs = "torch.randn(16, 40).roll(1), torch.randint(0, 9, (16,))"
    reference = build(forward, inputs, names="x, y")
    tolerances = run_trials(reference, [1], [2], num_terms=1).tolerances
    (x, y), (other, z) = reference.draw(1), reference.draw(2)
    broken, exact = input_effects(reference, [((x, y), (other * 99, z))], tolerances)
    assert (broken.margin, broken.raised) == (float("inf"), "ValueError")
    assert (exact.margin, exact.raised) == (float("inf"), None)


def test_an_input_that_no_draw_changes_is_rolled(build):
    reference = build(
        "return x[i] * m", "torch.randn(16, 40), torch.arange(16), torch.ones(40)", names="x, i, m"
    )
    tolerances = run_trials(reference, [1], [2], num_terms=1).tolerances
    pairs = [(reference.draw(1), reference.draw(2))]
    changes = {e.subject: e.change for e in input_effects(reference, pairs, tolerances)}
    assert changes == {"input x": "redrawn", "input i": "rolled"}
