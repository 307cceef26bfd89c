"""The public classes that composites equal, built at a case's sizes with its weights."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import torch
from composite_cases import Case
from torch import Tensor, nn

from opsgen.sampler import COMPOSITES


def public(c: Case) -> Any:
    """The class or function that the composite's origin names."""
    module, _, name = COMPOSITES[c.name].origin.rpartition(".")
    return getattr(import_module(module), name)


def _mlp(c: Case, act: str) -> Tensor:
    up = next(weight for key, weight in c.state.items() if key in _FIRST)
    config = SimpleNamespace(
        hidden_size=up.shape[1],
        intermediate_size=up.shape[0] // (2 if c.name == "fused_swiglu" else 1),
        hidden_act=act,
        mlp_bias=False,
    )
    return _loaded(public(c)(config), c.state)(c["x"])


_FIRST = ("up_proj.weight", "gate_up_proj.weight", "fc1.weight")


def _loaded(module: nn.Module, state: dict[str, Tensor]) -> Any:
    module.load_state_dict(state, strict=True)
    return module.eval()


def _bert_output(c: Case) -> Tensor:
    width, hidden = c.m.dense.weight.shape
    config = SimpleNamespace(
        hidden_size=width,
        intermediate_size=hidden,
        layer_norm_eps=c.m.norm.eps,
        hidden_dropout_prob=0.1,
    )
    state = {key.replace("norm.", "LayerNorm."): weight for key, weight in c.state.items()}
    out: Tensor = _loaded(public(c)(config), state)(c["hidden_states"], c["input_tensor"])
    return out


def _unit_offset(c: Case) -> Tensor:
    module = public(c)(c["x"].shape[-1], c.attr("rms_norm", "eps"))
    out: Tensor = _loaded(module, {"weight": c["weight"]})(c["x"])
    return out


def _gated_rms(c: Case) -> Tensor:
    width = c["x"].shape[-1]
    module = public(c)(width, width, eps=c.m.norm.eps)
    out: Tensor = _loaded(module, {"weight": c.m.norm.weight})(c["x"], c["gate"])
    return out


def _channels_first(c: Case) -> Tensor:
    norm = c.m.norm
    module = public(c)(c["x"].shape[1], eps=norm.eps, data_format="channels_first")
    out: Tensor = _loaded(module, norm.state_dict())(c["x"])
    return out


def _rotary(c: Case) -> Tensor:
    out: Tensor = public(c)(c["q"], c["q"], c["cos"][None], c["sin"][None])[0]
    return out


def _attention(c: Case, package: str) -> Tensor:
    transformers = import_module("transformers")
    num_heads = c.attr("split_heads", "num_heads")
    config = getattr(transformers, f"{package}Config")(
        hidden_size=c["x"].shape[-1],
        num_attention_heads=num_heads,
        num_key_value_heads=num_heads // c.attr("repeat_interleave", "repeats"),
        head_dim=c["cos"].shape[-1],
        attention_bias=False,
        attn_implementation="eager",
    )
    module = _loaded(public(c)(config, 0), c.state)
    for name in ("q_norm", "k_norm"):
        if hasattr(module, name):
            getattr(module, name).variance_epsilon = getattr(c.m, name).eps
    length = c["x"].shape[1]
    mask = torch.full((length, length), -float("inf")).triu(1)[None, None]
    angles = (c["cos"][None], c["sin"][None])
    out: Tensor = module(c["x"], position_embeddings=angles, attention_mask=mask)[0]
    return out


def _softmax_topk(c: Case) -> Tensor:
    weight = c.m.router.weight
    config = SimpleNamespace(
        num_experts_per_tok=c.attr("topk", "k"),
        num_local_experts=weight.shape[0],
        hidden_size=weight.shape[1],
    )
    _, scores, _ = _loaded(public(c)(config), {"weight": weight})(c["x"])
    return scores.view(*c["x"].shape[:-1], -1)


def _short_conv(c: Case) -> Tensor:
    config = SimpleNamespace(
        hidden_size=c["x"].shape[-1],
        conv_L_cache=c.attr("causal_conv1d", "kernel_size"),
        conv_bias=False,
        layer_types=["conv"],
    )
    out: Tensor = _loaded(public(c)(config, 0), c.state)(c["x"])
    return out


def _channel_mixing(c: Case) -> Tensor:
    hidden, width = c.m.key.weight.shape
    module = public(c)(SimpleNamespace(hidden_size=width, intermediate_size=hidden))
    mixes = {name: c[name][None, None] for name in ("time_mix_key", "time_mix_receptance")}
    out: Tensor = _loaded(module, {**c.state, **mixes})(c["x"])[0]
    return out


def _patches(c: Case) -> Tensor:
    config = SimpleNamespace(
        image_size=tuple(c["pixel_values"].shape[2:]),
        patch_size=c.attr("patch_conv2d", "patch_size"),
        num_channels=3,
        hidden_size=c.m.projection.weight.shape[0],
    )
    out: Tensor = _loaded(public(c)(config), c.state)(c["pixel_values"])
    return out


def _squeeze_excite(c: Case) -> Tensor:
    reduced, channels = c.m.reduce.weight.shape[:2]
    places = {"reduce": "attention.0", "expand": "attention.2"}
    state = {
        f"{places[key.partition('.')[0]]}.{key.partition('.')[2]}": weight
        for key, weight in c.state.items()
    }
    out: Tensor = _loaded(public(c)(channels, reduced), state)(c["x"])
    return out


def _convnext(c: Case) -> Tensor:
    config = SimpleNamespace(hidden_act="gelu", layer_scale_init_value=1.0)
    state = {key.replace("norm.", "layernorm."): weight for key, weight in c.state.items()}
    state["layer_scale_parameter"] = c["layer_scale"]
    module = _loaded(public(c)(config, c["x"].shape[1]), state)
    module.layernorm.eps = c.m.norm.eps
    out: Tensor = module(c["x"])
    return out


def _image_stem(c: Case) -> Tensor:
    config = SimpleNamespace(
        num_channels=3, embedding_size=c.m.conv.weight.shape[0], hidden_act="relu"
    )
    module = public(c)(config)
    module.embedder.convolution.load_state_dict(c.m.conv.state_dict())
    module.embedder.normalization.load_state_dict(c.m.norm.state_dict(), strict=False)
    module.embedder.normalization.eps = c.m.norm.eps
    out: Tensor = module.train()(c["x"])  # our norms fold the batch's own statistics
    return out


CLASSES: dict[str, Callable[[Case], Tensor]] = {
    "swiglu": lambda c: _mlp(c, "silu"),
    "geglu": lambda c: _mlp(c, "gelu_pytorch_tanh"),
    "fused_swiglu": lambda c: _mlp(c, "silu"),
    "quick_gelu_mlp": lambda c: _mlp(c, "quick_gelu"),
    "gelu_mlp": lambda c: _mlp(c, "gelu_new"),
    "squared_relu_mlp": lambda c: _mlp(c, "relu2"),
    "bert_output": _bert_output,
    "unit_offset_rms_norm": _unit_offset,
    "gated_rms_norm": _gated_rms,
    "channels_first_layer_norm": _channels_first,
    "rotary": _rotary,
    "rotary_grouped_query_attention": lambda c: _attention(c, "Llama"),
    "normed_query_key_attention": lambda c: _attention(c, "Qwen3"),
    "softmax_topk_router": _softmax_topk,
    "short_conv": _short_conv,
    "channel_mixing": _channel_mixing,
    "patch_embedding": _patches,
    "squeeze_excite": _squeeze_excite,
    "convnext_block": _convnext,
    "image_stem": _image_stem,
}
