"""Attention, from projections to the output projection, and pieces of it."""

from __future__ import annotations

from collections.abc import Callable

from opsgen.ops import Dim
from opsgen.sampler.composites.builder import Builder, Composite
from opsgen.sampler.composites.mlp import gated_mlp
from opsgen.sampler.composites.norm import layer_norm, rms
from opsgen.sampler.composites.position import angles, heads_input, rotated

_MODELS = "transformers.models"


def _heads(b: Builder, x: int, label: str, num_heads: int, head_dim: int) -> int:
    projected = b.linear(x, head_dim * num_heads, label)
    return b.apply("split_heads", projected, num_heads=num_heads)


def _attend(b: Builder, q: int, k: int, v: int, *, is_causal: bool) -> int:
    out = b.apply("attention", q, k, v, is_causal=is_causal, scale=None)
    return b.apply("merge_heads", out)


def _width(b: Builder) -> tuple[int, Dim]:
    """Choose how many heads there are and how wide each is."""
    return b.pick(4, 8, 12, 16), b.size("head_dim", 32, 64, 128)


def _self_attention(b: Builder, x: int, width: tuple[int, Dim], *, is_causal: bool) -> int:
    num_heads, head_dim = width
    q, k, v = (_heads(b, x, f"{name}_proj", num_heads, head_dim) for name in "qkv")
    out = _attend(b, q, k, v, is_causal=is_causal)
    return b.linear(out, b.shape(x)[-1], "o_proj")


def _multi_head(b: Builder) -> object:
    num_heads, head_dim = width = _width(b)
    x = b.tokens(head_dim * num_heads)
    return _self_attention(b, x, width, is_causal=b.pick(True, False))


def _grouped(b: Builder, *, with_norms: bool = False, with_rotation: bool = False) -> object:
    """Several queries share a key and a value; norms or rotations on the way."""
    num_kv_heads, repeats = b.pick(2, 4, 8), b.pick(2, 3, 4)
    # Head counts that catalogue entries offer.
    num_heads = num_kv_heads * repeats
    if num_heads not in (4, 6, 8, 12, 16):
        num_kv_heads, repeats, num_heads = 2, 4, 8
    head_dim = b.size("head_dim", 32, 64, 128)
    x = b.tokens()
    q = _heads(b, x, "q_proj", num_heads, head_dim)
    k = _heads(b, x, "k_proj", num_kv_heads, head_dim)
    v = _heads(b, x, "v_proj", num_kv_heads, head_dim)
    if with_norms:
        q, k = rms(b, q, "q_norm"), rms(b, k, "k_norm")
    if with_rotation:
        cos, sin = angles(b, q)
        q, k = rotated(b, q, cos, sin), rotated(b, k, cos, sin)
    k = b.apply("repeat_interleave", k, repeats=repeats, dim=1)
    v = b.apply("repeat_interleave", v, repeats=repeats, dim=1)
    return b.linear(_attend(b, q, k, v, is_causal=True), b.shape(x)[-1], "o_proj")


def _scores(b: Builder, q: int, k: int) -> int:
    return b.apply("head_scores", b.apply("over_root_width", q), k, out_features=b.shape(k)[-2])


def _weighted(b: Builder, scores: int, v: int) -> int:
    weights = b.apply("softmax", scores, dim=-1)
    return b.apply("head_values", weights, v, head_dim=b.shape(v)[-1])


def _three_heads(b: Builder) -> tuple[int, int, int]:
    q = heads_input(b, "q")
    return q, b.input("k", *b.shape(q)), b.input("v", *b.shape(q))


def _window(b: Builder) -> object:
    q, k, v = _three_heads(b)
    return _weighted(b, b.apply("window_mask", _scores(b, q, k)), v)


def _softcap(b: Builder) -> object:
    q, k, v = _three_heads(b)
    cap = b.pick(20.0, 30.0, 50.0)
    capped = b.apply("tanh", b.apply("over_constant", _scores(b, q, k), divisor=cap))
    scores = b.apply("times_constant", capped, factor=cap)
    return _weighted(b, b.apply("causal_mask", scores), v)


def _alibi(b: Builder) -> object:
    q, k, v = _three_heads(b)
    scores = b.apply("causal_mask", b.apply("alibi", _scores(b, q, k)))
    return b.apply("merge_heads", _weighted(b, scores, v))


def _relative(b: Builder) -> object:
    q, k, v = _three_heads(b)
    _, num_heads, length, _ = b.shape(q)
    bias = b.input("position_bias", num_heads, length, length)
    scores = b.apply("head_scores", q, k, out_features=length)
    return _weighted(b, b.apply("add_broadcast", scores, bias, meets="planes"), v)


def _differential(b: Builder) -> object:
    q, k, v = _three_heads(b)
    other_q, other_k = b.input("q2", *b.shape(q)), b.input("k2", *b.shape(q))
    first, second = (
        b.apply("softmax", b.apply("causal_mask", _scores(b, *pair)), dim=-1)
        for pair in ((q, k), (other_q, other_k))
    )
    weights = b.apply("sub_scaled", first, second, meets="same", alpha=0.5)
    out = b.apply("head_values", weights, v, head_dim=b.shape(v)[-1])
    return b.apply("mul_scalar", rms(b, out), factor=0.5)


def _sink(b: Builder) -> object:
    q, k, v = _three_heads(b)
    sinks = b.input("sinks", b.shape(q)[1], 1, 1)
    scores = b.apply("causal_mask", _scores(b, q, k))
    # One more score in the denominator: what is left of the weights is a sigmoid.
    total = b.apply("logsumexp", scores, dim=-1, keepdim=True)
    left = b.apply("add_broadcast", total, b.apply("neg", sinks), meets="heads")
    return b.apply("mul", _weighted(b, scores, v), b.apply("sigmoid", left), meets="row")


def _cross(b: Builder) -> object:
    num_heads, head_dim = _width(b)
    x = b.tokens()
    width = b.size("memory_features", 256, 512, 768)
    memory = b.input("memory", b.shape(x)[0], b.size("num_keys", 64, 77, 128, 256), width)
    q = _heads(b, x, "q_proj", num_heads, head_dim)
    k = _heads(b, memory, "k_proj", num_heads, head_dim)
    v = _heads(b, memory, "v_proj", num_heads, head_dim)
    out = b.apply("cross_attention", q, k, v, num_keys=b.shape(k)[-2], scale=None)
    return b.linear(b.apply("merge_heads", out), b.shape(x)[-1], "out_proj", bias=True)


def _fused_qkv(b: Builder) -> object:
    num_heads, head_dim = _width(b)
    x = b.tokens()
    # Without a bias: softmax does not see one of the keys.
    qkv = b.linear(x, head_dim * num_heads * 3, "qkv_proj")
    parts = [b.apply("chunk_part", qkv, parts=3, dim=-1, index=i) for i in range(3)]
    q, k, v = (b.apply("split_heads", part, num_heads=num_heads) for part in parts)
    return b.linear(_attend(b, q, k, v, is_causal=False), b.shape(x)[-1], "proj", bias=True)


def _latent(b: Builder) -> object:
    num_heads, head_dim = _width(b)
    x = b.tokens()
    latent = b.linear(x, b.size("kv_lora_rank", 64, 128, 256, 512), "kv_a_proj")
    latent = rms(b, latent, "kv_a_layernorm")
    q = _heads(b, x, "q_proj", num_heads, head_dim)
    k = _heads(b, latent, "k_b_proj", num_heads, head_dim)
    v = _heads(b, latent, "v_b_proj", num_heads, head_dim)
    return b.linear(_attend(b, q, k, v, is_causal=True), b.shape(x)[-1], "o_proj")


def _gated(b: Builder) -> object:
    num_heads, head_dim = _width(b)
    x = b.tokens()
    q, k, v = (_heads(b, x, f"{name}_proj", num_heads, head_dim) for name in "qkv")
    gate = b.apply("sigmoid", b.linear(x, head_dim * num_heads, "gate_proj"))
    out = b.apply("mul", _attend(b, q, k, v, is_causal=True), gate, meets="same")
    return b.linear(out, b.shape(x)[-1], "o_proj")


def _pre_norm(b: Builder) -> object:
    x = b.tokens()
    out = _self_attention(b, rms(b, x, "input_layernorm"), _width(b), is_causal=True)
    return b.apply("add", out, x, meets="same")


def _parallel(b: Builder) -> object:
    x = b.tokens()
    normed = layer_norm(b, x)
    both = b.apply(
        "add",
        _self_attention(b, normed, _width(b), is_causal=True),
        gated_mlp(b, normed, "silu"),
        meets="same",
    )
    return b.apply("add", both, x, meets="same")


def _pooling(b: Builder) -> object:
    x = b.tokens()
    weights = b.apply("softmax", b.linear(x, 1, "score"), dim=1)
    features = b.shape(x)[-1]
    pooled = b.apply("bmm", b.apply("transpose", weights, dims=(1, 2)), x, out_features=features)
    return b.apply("flatten", pooled, start_dim=1)


def _attention(
    name: str, origin: str, build: Callable[[Builder], object], license: str | None = None
) -> Composite:
    known = "Apache-2.0" if origin.startswith("transformers.") else license
    return Composite(name, "attention", origin, known, build)


ATTENTION = (
    _attention("grouped_query_attention", "arXiv 2305.13245, GQA", _grouped),
    _attention(
        "rotary_grouped_query_attention",
        f"{_MODELS}.llama.modeling_llama.LlamaAttention",
        lambda b: _grouped(b, with_rotation=True),
    ),
    _attention(
        "normed_query_key_attention",
        f"{_MODELS}.qwen3.modeling_qwen3.Qwen3Attention",
        lambda b: _grouped(b, with_norms=True, with_rotation=True),
    ),
    _attention(
        "self_attention",
        "torch.nn.MultiheadAttention",
        _multi_head,
        "BSD-3-Clause",
    ),
    _attention("sliding_window_attention", "arXiv 2310.06825, Mistral 7B", _window),
    _attention("softcapped_attention", "arXiv 2408.00118, logit soft-capping of Gemma 2", _softcap),
    _attention("alibi_attention", "arXiv 2108.12409, ALiBi", _alibi),
    _attention("relative_bias_attention", "arXiv 1910.10683, attention of T5", _relative),
    _attention("encoder_decoder_attention", "arXiv 1706.03762, encoder-decoder attention", _cross),
    _attention("fused_qkv_attention", "arXiv 2010.11929, attention of ViT", _fused_qkv),
    _attention("latent_attention", "arXiv 2405.04434, MLA without rotation", _latent),
    _attention("gated_attention", "arXiv 2505.06708, Gated Attention", _gated),
    _attention(
        "pre_norm_attention", "arXiv 2002.04745, Pre-LN attention half, with an RMS norm", _pre_norm
    ),
    _attention("parallel_block", "arXiv 2204.02311, parallel layers of PaLM", _parallel),
    _attention("attention_pooling", "arXiv 1703.03130, self-attentive pooling", _pooling),
    _attention(
        "differential_attention", "arXiv 2410.05258, Differential Transformer", _differential
    ),
    _attention("sink_attention", "arXiv 2508.10925, attention sinks of gpt-oss", _sink),
)
