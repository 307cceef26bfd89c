"""Formulas of further composites: recurrences step by step, and what is newer than the others."""

from __future__ import annotations

from collections.abc import Callable

import torch
from composite_cases import Case
from composite_formulas import causal, layer, rms, scores_of
from torch import Tensor
from torch.nn.functional import elu, sigmoid


def steps(keep: Tensor, values: Tensor) -> Tensor:
    """Step h = keep * h + value through dim 1."""
    h = torch.zeros_like(values[:, 0])
    found = []
    for t in range(values.shape[1]):
        h = keep[:, t] * h + values[:, t]
        found.append(h)
    return torch.stack(found, 1)


def positive(x: Tensor) -> Tensor:
    return torch.where(x >= 0, x + 0.5, sigmoid(x))


def min_gru(c: Case) -> Tensor:
    x, take = c["x"], sigmoid(c.m.to_gate(c["x"]))
    out: Tensor = c.m.to_out(steps(1 - take, take * positive(c.m.to_hidden(x))))
    return out


def min_lstm(c: Case) -> Tensor:
    x = c["x"]
    forget, take = sigmoid(c.m.to_forget(x)), sigmoid(c.m.to_input(x))
    both = forget + take
    out: Tensor = c.m.to_out(steps(forget / both, take / both * positive(c.m.to_hidden(x))))
    return out


def gated_residual_network(c: Case) -> Tensor:
    value, gate = c.m.gate(c.m.fc2(elu(c.m.fc1(c["x"])))).chunk(2, -1)
    return layer(c["x"] + value * sigmoid(gate), c.m.norm)


def low_rank_linear(c: Case) -> Tensor:
    weight = c.attr("mul_scalar", "factor") * c.m.lora_B.weight @ c.m.lora_A.weight
    return torch.nn.functional.linear(c["x"], c.m.base_layer.weight + weight, c.m.base_layer.bias)


def dynamic_tanh(c: Case) -> Tensor:
    return c["weight"] * torch.tanh(c["x"] / 2) + c["bias"]


def differential_attention(c: Case) -> Tensor:
    first, second = (
        torch.softmax(causal(scores_of(c[q], c[k])), -1) for q, k in (("q", "k"), ("q2", "k2"))
    )
    return rms((first - second / 2) @ c["v"], c.m.norm) / 2


def sink_attention(c: Case) -> Tensor:
    scores = causal(scores_of(c["q"], c["k"]))
    sinks = c["sinks"].expand(scores.shape[0], -1, scores.shape[2], 1)
    return torch.softmax(torch.cat([scores, sinks], -1), -1)[..., :-1] @ c["v"]


RECURRENCES: dict[str, Callable[[Case], Tensor]] = {
    "min_gru": min_gru,
    "min_lstm": min_lstm,
    "gated_residual_network": gated_residual_network,
    "low_rank_linear": low_rank_linear,
    "dynamic_tanh": dynamic_tanh,
    "differential_attention": differential_attention,
    "sink_attention": sink_attention,
}
