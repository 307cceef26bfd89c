"""What the composites compute, written once more as plain formulas over the same weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from composite_cases import Case
from torch import Tensor, nn
from torch.nn.functional import conv1d, conv2d, gelu, relu, sigmoid, silu


def rms(x: Tensor, norm: Any = None, eps: float = 1e-6) -> Tensor:
    eps = norm.eps if norm is not None else eps
    y = x / (x.pow(2).mean(-1, keepdim=True) + eps).sqrt()
    return y if norm is None else y * norm.weight


def standard(x: Tensor, dims: tuple[int, ...], eps: float) -> Tensor:
    centred = x - x.mean(dims, keepdim=True)
    return centred / (centred.pow(2).mean(dims, keepdim=True) + eps).sqrt()


def layer(x: Tensor, norm: Any) -> Tensor:
    return standard(x, (-1,), norm.eps) * norm.weight + norm.bias


def batch(x: Tensor, norm: Any) -> Tensor:
    dims = (0, *range(2, x.ndim))
    shape = (1, -1, *[1] * (x.ndim - 2))
    return standard(x, dims, norm.eps) * norm.weight.view(shape) + norm.bias.view(shape)


def heads(x: Tensor, num_heads: int) -> Tensor:
    return torch.stack(x.chunk(num_heads, dim=-1), dim=1)


def merged(x: Tensor) -> Tensor:
    return torch.cat(list(x.unbind(1)), dim=-1)


def causal(scores: Tensor, reach: int = 10**9) -> Tensor:
    rows, columns = torch.meshgrid(*(torch.arange(n) for n in scores.shape[-2:]), indexing="ij")
    seen = (columns <= rows) & (rows - columns < reach)
    return torch.where(seen, scores, torch.tensor(-float("inf")))


def scores_of(q: Tensor, k: Tensor) -> Tensor:
    return torch.einsum("bhid,bhjd->bhij", q, k) / q.shape[-1] ** 0.5


def attend(q: Tensor, k: Tensor, v: Tensor, *, is_causal: bool) -> Tensor:
    scores = scores_of(q, k)
    return torch.softmax(causal(scores) if is_causal else scores, -1) @ v


def rotated(q: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    half = q.shape[-1] // 2
    left, right = q[..., :half], q[..., half:]
    first = left * cos[..., :half] - right * sin[..., :half]
    return torch.cat([first, right * cos[..., half:] + left * sin[..., half:]], dim=-1)


def swiglu(m: Any, x: Tensor) -> Tensor:
    out: Tensor = m.down_proj(silu(m.gate_proj(x)) * m.up_proj(x))
    return out


def head_attention(m: Any, x: Tensor, num_heads: int, *, is_causal: bool) -> Tensor:
    q, k, v = (heads(p(x), num_heads) for p in (m.q_proj, m.k_proj, m.v_proj))
    out: Tensor = m.o_proj(merged(attend(q, k, v, is_causal=is_causal)))
    return out


def num_heads(c: Case) -> int:
    count: int = c.attr("split_heads", "num_heads")
    return count


def token_mixing(c: Case) -> Tensor:
    h = layer(c["x"], c.m.norm).transpose(1, 2)
    return c["x"] + c.m.fc2(gelu(c.m.fc1(h))).transpose(1, 2)


def group_norm_silu_conv(c: Case) -> Tensor:
    x, norm = c["x"], c.m.norm
    groups = x.unflatten(1, (norm.num_groups, -1))
    y = standard(groups, (2, 3, 4), norm.eps).flatten(1, 2)
    y = y * norm.weight[:, None, None] + norm.bias[:, None, None]
    return conv2d(silu(y), c.m.conv.weight, c.m.conv.bias, padding=1)


def sandwich(c: Case) -> Tensor:
    return c["x"] + rms(c.m.dense(rms(c["x"], c.m.pre_norm)), c.m.post_norm)


def alibi_scores(c: Case) -> Tensor:
    distance = torch.arange(c["k"].shape[-2]) * c["slopes"]
    return torch.softmax(causal(scores_of(c["q"], c["k"]) + distance), -1)


def bucketed(c: Case) -> Tensor:
    bias = c.m.relative_attention_bias.weight[c["buckets"]]
    return torch.softmax(c["scores"] + torch.einsum("ijh->hij", bias), -1)


def rotary_projection(c: Case) -> Tensor:
    return rotated(heads(c.m.q_proj(c["x"]), num_heads(c)), c["cos"], c["sin"])


def grouped_query(c: Case) -> Tensor:
    x, repeats = c["x"], c.attr("repeat_interleave", "repeats")
    q = heads(c.m.q_proj(x), num_heads(c))
    k, v = (heads(p(x), num_heads(c) // repeats) for p in (c.m.k_proj, c.m.v_proj))
    k, v = (torch.stack([h] * repeats, 2).flatten(1, 2) for h in (k, v))
    out: Tensor = c.m.o_proj(merged(attend(q, k, v, is_causal=True)))
    return out


def self_attention(c: Case) -> Tensor:
    x, m = c["x"], c.m
    public = nn.MultiheadAttention(x.shape[-1], num_heads(c), bias=False, batch_first=True)
    qkv = torch.cat([m.q_proj.weight, m.k_proj.weight, m.v_proj.weight])
    public.load_state_dict({"in_proj_weight": qkv, "out_proj.weight": m.o_proj.weight})
    is_causal = c.attr("attention", "is_causal")
    mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1]) if is_causal else None
    out: Tensor = public.eval()(x, x, x, attn_mask=mask)[0]
    return out


def sliding_window(c: Case) -> Tensor:
    reach = 1 - c.attr("window_mask", "lowest")
    return torch.softmax(causal(scores_of(c["q"], c["k"]), reach), -1) @ c["v"]


def softcapped(c: Case) -> Tensor:
    cap = c.attr("over_constant", "divisor")
    scores = torch.tanh(scores_of(c["q"], c["k"]) / cap) * cap
    return torch.softmax(causal(scores), -1) @ c["v"]


def relative_bias(c: Case) -> Tensor:
    scores = scores_of(c["q"], c["k"]) * c["q"].shape[-1] ** 0.5 + c["position_bias"]
    return torch.softmax(scores, -1) @ c["v"]


def encoder_decoder(c: Case) -> Tensor:
    q = heads(c.m.q_proj(c["x"]), num_heads(c))
    k, v = (heads(p(c["memory"]), num_heads(c)) for p in (c.m.k_proj, c.m.v_proj))
    out: Tensor = c.m.out_proj(merged(attend(q, k, v, is_causal=False)))
    return out


def fused_qkv(c: Case) -> Tensor:
    q, k, v = (heads(part, num_heads(c)) for part in c.m.qkv_proj(c["x"]).chunk(3, -1))
    out: Tensor = c.m.proj(merged(attend(q, k, v, is_causal=False)))
    return out


def latent(c: Case) -> Tensor:
    low = rms(c.m.kv_a_proj(c["x"]), c.m.kv_a_layernorm)
    q = heads(c.m.q_proj(c["x"]), num_heads(c))
    k, v = (heads(p(low), num_heads(c)) for p in (c.m.k_b_proj, c.m.v_b_proj))
    out: Tensor = c.m.o_proj(merged(attend(q, k, v, is_causal=True)))
    return out


def gated_attention(c: Case) -> Tensor:
    x = c["x"]
    q, k, v = (heads(p(x), num_heads(c)) for p in (c.m.q_proj, c.m.k_proj, c.m.v_proj))
    out = merged(attend(q, k, v, is_causal=True)) * sigmoid(c.m.gate_proj(x))
    done: Tensor = c.m.o_proj(out)
    return done


def pre_norm_attention(c: Case) -> Tensor:
    normed = rms(c["x"], c.m.input_layernorm)
    return c["x"] + head_attention(c.m, normed, num_heads(c), is_causal=True)


def parallel_block(c: Case) -> Tensor:
    h = layer(c["x"], c.m.norm)
    return c["x"] + head_attention(c.m, h, num_heads(c), is_causal=True) + swiglu(c.m, h)


def attention_pooling(c: Case) -> Tensor:
    weights = torch.softmax(c.m.score(c["x"])[..., 0], dim=1)
    return torch.einsum("bs,bsd->bd", weights, c["x"])


def sigmoid_topk(c: Case) -> Tensor:
    return sigmoid(c.m.router(c["x"])).sort(-1, descending=True)[0][..., : c.attr("topk", "k")]


def normed_router(c: Case) -> Tensor:
    weights = torch.softmax(c.m.router(rms(c["x"], c.m.norm)), -1)
    return weights.sort(-1, descending=True)[0][..., : c.attr("topk", "k")]


def soft_dispatch(c: Case) -> Tensor:
    return torch.einsum("bts,btd->bsd", torch.softmax(c.m.slots(c["x"]), dim=1), c["x"])


def projection_head(c: Case) -> Tensor:
    y = c.m.projection(layer(c["x"], c.m.norm))
    return y / y.pow(2).sum(-1, keepdim=True).sqrt()


def softcapped_head(c: Case) -> Tensor:
    cap = c.attr("over_constant", "divisor")
    return cap * torch.tanh(c.m.lm_head(rms(c["x"], c.m.norm)) / cap)


def causal_conv(x: Tensor, conv: Any) -> Tensor:
    """Convolve (batch, length, channels) so that no position sees later ones."""
    padded = nn.functional.pad(x.transpose(1, 2), (conv.kernel_size[0] - 1, 0))
    return conv1d(padded, conv.weight, conv.bias, groups=conv.groups).transpose(1, 2)


def gated_causal_conv(c: Case) -> Tensor:
    value, gate = c.m.in_proj(c["x"]).chunk(2, -1)
    out: Tensor = c.m.out_proj(silu(causal_conv(value, c.m.conv1d)) * silu(gate))
    return out


def convolution_module(c: Case) -> Tensor:
    m = c.m
    h = layer(c["x"], m.norm) @ m.pointwise_conv1.weight[..., 0].T
    value, gate = h.chunk(2, -1)
    h = (value * sigmoid(gate)).transpose(1, 2)
    conv = m.depthwise_conv
    h = conv1d(h, conv.weight, padding=conv.padding[0], groups=conv.groups)
    return silu(batch(h, m.batch_norm)).transpose(1, 2) @ m.pointwise_conv2.weight[..., 0].T


def state_space_dual(c: Case) -> Tensor:
    """The recurrence itself: a state that decays and takes in an outer product each step."""
    decay = sigmoid(c["dt"])
    state = torch.zeros(*c["b"].shape[:2], c["b"].shape[-1], c["x"].shape[-1])
    steps = []
    for t in range(c["x"].shape[2]):
        outer = c["b"][:, :, t, :, None] * c["x"][:, :, t, None, :]
        state = state * decay[:, :, t, None, None] + outer
        steps.append(torch.einsum("bhn,bhnp->bhp", c["c"][:, :, t], state))
    return torch.stack(steps, 2)


def retention(c: Case) -> Tensor:
    weights = torch.tril(scores_of(c["q"], c["k"]) * c["decay"])
    return rms(weights @ c["v"], eps=c.attr("rms_norm", "eps"))


def linear_attention(c: Case) -> Tensor:
    q, k = (nn.functional.elu(c[name]) + 1 for name in "qk")
    out = torch.einsum("bhid,bhjd,bhje->bhie", q, k, c["v"])
    return rms(out, eps=c.attr("rms_norm", "eps"))


def attention_free(c: Case) -> Tensor:
    weights = torch.exp(c.m.k_proj(c["x"]))
    context = (weights * c.m.v_proj(c["x"])).sum(1, keepdim=True) / weights.sum(1, keepdim=True)
    out: Tensor = c.m.out_proj(sigmoid(c.m.q_proj(c["x"])) * context)
    return out


def spatial_gating(c: Case) -> Tensor:
    value, gate = c["x"].chunk(2, -1)
    proj = c.m.spatial_proj
    mixed = torch.einsum("bsd,ts->btd", layer(gate, c.m.norm), proj.weight)
    return value * (mixed + proj.bias[:, None])


def patch_merging(c: Case) -> Tensor:
    x = c["x"]
    corners = [x[:, :, i::2, j::2] for i in (0, 1) for j in (0, 1)]
    tokens = torch.stack(corners, 2).flatten(1, 2).flatten(2).transpose(1, 2)
    out: Tensor = c.m.reduction(layer(tokens, c.m.norm))
    return out


def conv(x: Tensor, module: Any) -> Tensor:
    return conv2d(x, module.weight, module.bias, padding=module.padding, groups=module.groups)


def depthwise_separable(c: Case) -> Tensor:
    h = relu(batch(conv(c["x"], c.m.depthwise), c.m.depthwise_norm))
    return relu(batch(conv(h, c.m.pointwise), c.m.pointwise_norm))


def expanded(c: Case, act: Callable[[Tensor], Tensor]) -> Tensor:
    h = act(batch(conv(c["x"], c.m.expand_conv), c.m.expand_norm))
    return act(batch(conv(h, c.m.depthwise), c.m.depthwise_norm))


def inverted_residual(c: Case) -> Tensor:
    h = expanded(c, lambda h: h.clamp(0.0, 6.0))
    return c["x"] + batch(conv(h, c.m.project_conv), c.m.project_norm)


def mbconv(c: Case) -> Tensor:
    h = expanded(c, silu)
    gate = silu(conv(h.mean((2, 3), keepdim=True), c.m.reduce))
    h = h * sigmoid(conv(gate, c.m.expand))
    return c["x"] + batch(conv(h, c.m.project_conv), c.m.project_norm)


def residual_block(c: Case) -> Tensor:
    h = relu(batch(conv(c["x"], c.m.conv1), c.m.conv1_norm))
    return relu(c["x"] + batch(conv(h, c.m.conv2), c.m.conv2_norm))


def spectrogram_stem(c: Case) -> Tensor:
    first, second = c.m.conv1, c.m.conv2
    approximate = c.attr("gelu", "approximate")
    h = gelu(conv1d(c["x"], first.weight, first.bias, padding=1), approximate=approximate)
    return gelu(conv1d(h, second.weight, second.bias, stride=2, padding=1)).transpose(1, 2)


def upsampling_conv(c: Case) -> Tensor:
    return conv(c["x"].repeat_interleave(2, 2).repeat_interleave(2, 3), c.m.conv)


def subpixel_conv(c: Case) -> Tensor:
    h = conv(c["x"], c.m.conv).unflatten(1, (-1, 2, 2))
    return torch.einsum("bcijhw->bchiwj", h).flatten(4, 5).flatten(2, 3)


FORMULAS: dict[str, Callable[[Case], Tensor]] = {
    "reglu": lambda c: c.m.down_proj(relu(c.m.gate_proj(c["x"])) * c.m.up_proj(c["x"])),
    "sigmoid_glu": lambda c: c.m.down_proj(sigmoid(c.m.gate_proj(c["x"])) * c.m.up_proj(c["x"])),
    "residual_swiglu": lambda c: c["x"] + swiglu(c.m, rms(c["x"], c.m.norm)),
    "token_mixing_mlp": token_mixing,
    "residual_rms_norm": lambda c: rms(c["x"] + c["residual"], c.m.norm),
    "layer_scale": lambda c: c["x"] + c["lambda1"] * c.m.dense(layer(c["x"], c.m.norm)),
    "modulated_layer_norm": lambda c: (
        standard(c["x"], (-1,), c.attr("layer_norm", "eps")) * (1 + c["scale"]) + c["shift"]
    ),
    "sandwich_rms_norm": sandwich,
    "head_rms_norm": lambda c: rms(heads(c.m.q_proj(c["x"]), num_heads(c)), c.m.q_norm),
    "group_norm_silu_conv": group_norm_silu_conv,
    "rotary_projection": rotary_projection,
    "rotary_scores": lambda c: torch.einsum(
        "bhid,bhjd->bhij",
        rotated(c["q"], c["cos"], c["sin"]),
        rotated(c["k"], c["cos"], c["sin"]),
    ),
    "alibi_scores": alibi_scores,
    "bucketed_relative_bias": bucketed,
    "grouped_query_attention": grouped_query,
    "self_attention": self_attention,
    "sliding_window_attention": sliding_window,
    "softcapped_attention": softcapped,
    "alibi_attention": lambda c: merged(alibi_scores(c) @ c["v"]),
    "relative_bias_attention": relative_bias,
    "encoder_decoder_attention": encoder_decoder,
    "fused_qkv_attention": fused_qkv,
    "latent_attention": latent,
    "gated_attention": gated_attention,
    "pre_norm_attention": pre_norm_attention,
    "parallel_block": parallel_block,
    "attention_pooling": attention_pooling,
    "sigmoid_topk_router": sigmoid_topk,
    "switch_router": lambda c: torch.softmax(c.m.router(c["x"]), -1).max(-1, keepdim=True)[0],
    "normed_router": normed_router,
    "shared_expert": lambda c: sigmoid(c.m.shared_expert_gate(c["x"])) * swiglu(c.m, c["x"]),
    "soft_dispatch": soft_dispatch,
    "mean_pooled_head": lambda c: c.m.head(layer(c["x"], c.m.norm).mean(1)),
    "projection_head": projection_head,
    "softcapped_head": softcapped_head,
    "gated_causal_conv": gated_causal_conv,
    "convolution_module": convolution_module,
    "state_space_dual": state_space_dual,
    "retention": retention,
    "linear_attention": linear_attention,
    "attention_free": attention_free,
    "spatial_gating": spatial_gating,
    "patch_merging": patch_merging,
    "depthwise_separable_conv": depthwise_separable,
    "inverted_residual": inverted_residual,
    "mbconv": mbconv,
    "residual_block": residual_block,
    "spectrogram_stem": spectrogram_stem,
    "upsampling_conv": upsampling_conv,
    "subpixel_conv": subpixel_conv,
}
