"""Mixers of tokens without scores of softmax: convolutions, scans, linear attention."""

from __future__ import annotations

from collections.abc import Callable

from opsgen.ops import Dim
from opsgen.ops.intervals import OPEN_UNIT
from opsgen.sampler.composites.builder import Builder, Composite
from opsgen.sampler.composites.norm import layer_norm, rms
from opsgen.sampler.composites.position import heads_input

_MODELS = "transformers.models"


def _part(b: Builder, x: int, parts: int, index: int) -> int:
    return b.apply("chunk_part", x, parts=parts, dim=-1, index=index)


def _swapped(b: Builder, x: int) -> int:
    return b.apply("transpose", x, dims=(1, 2))


def _short_conv(b: Builder) -> object:
    x = b.tokens()
    features = b.shape(x)[-1]
    parts = b.linear(x, features * 3, "in_proj")
    gate, out_gate, value = (_part(b, parts, 3, index) for index in range(3))
    mixed = b.apply("mul", gate, value, meets="same")
    mixed = _swapped(b, b.apply("causal_conv1d", _swapped(b, mixed), label="conv", bias=False))
    return b.linear(b.apply("mul", out_gate, mixed, meets="same"), features, "out_proj")


def _gated_conv(b: Builder) -> object:
    x = b.tokens()
    parts = b.linear(x, b.size("intermediate_size", 512, 768, 1024, 2048) * 2, "in_proj")
    value, gate = _part(b, parts, 2, 0), _part(b, parts, 2, 1)
    mixed = b.apply("causal_conv1d", _swapped(b, value), label="conv1d", bias=True)
    mixed = _swapped(b, b.apply("silu", mixed))
    out = b.apply("mul", mixed, b.apply("silu", gate), meets="same")
    return b.linear(out, b.shape(x)[-1], "out_proj")


def _convolution_module(b: Builder) -> object:
    x = b.tokens()
    features = b.shape(x)[-1]
    h = _swapped(b, layer_norm(b, x))
    h = _pointwise(b, h, features * 2, "pointwise_conv1")
    h = b.apply("glu", h, dim=1)
    kernel_size = b.pick(3, 5, 7)
    h = b.apply(
        "depthwise_conv1d",
        h,
        label="depthwise_conv",
        kernel_size=kernel_size,
        stride=1,
        dilation=1,
        padding=kernel_size // 2,
        bias=False,
        padding_mode="zeros",
    )
    h = b.apply("batch_norm1d", h, label="batch_norm", affine=True)
    return _swapped(b, _pointwise(b, b.apply("silu", h), features, "pointwise_conv2"))


def _pointwise(b: Builder, x: int, channels: int, label: str) -> int:
    return b.apply(
        "conv1d",
        x,
        label=label,
        out_channels=channels,
        kernel_size=1,
        stride=1,
        dilation=1,
        padding=0,
        groups=1,
        bias=False,
        padding_mode="zeros",
    )


def _state_space(b: Builder) -> object:
    c = heads_input(b, "c")
    batch, num_heads, length, _ = b.shape(c)
    other = b.input("b", *b.shape(c))
    x = b.input("x", batch, num_heads, length, b.size("state_dim", 32, 64))
    dt = b.input("dt", batch, num_heads, length)
    sums = b.apply("cumsum", b.apply("logsigmoid", dt), dim=-1)
    decay = b.apply("segment_decay", sums)
    scores = b.apply("head_scores", c, other, out_features=length)
    weights = b.apply("mul", scores, decay, meets="same")
    return b.apply("head_values", weights, x, head_dim=b.shape(x)[-1])


def _retention(b: Builder) -> object:
    q = heads_input(b, "q")
    k, v = b.input("k", *b.shape(q)), b.input("v", *b.shape(q))
    _, num_heads, length, width = b.shape(q)
    decay = b.input("decay", num_heads, length, length, domain=OPEN_UNIT)
    scores = b.apply("head_scores", b.apply("over_root_width", q), k, out_features=length)
    weights = b.apply("tril", b.apply("mul_broadcast", scores, decay, meets="planes"), diagonal=0)
    return rms(b, b.apply("head_values", weights, v, head_dim=width), affine=False)


def _linear_attention(b: Builder) -> object:
    q = heads_input(b, "q", draw="normal")
    k, v = b.input("k", *b.shape(q), draw="normal"), b.input("v", *b.shape(q))
    width = b.shape(q)[-1]
    q, k = (b.apply("add_scalar", b.apply("elu", h, alpha=1.0), value=1.0) for h in (q, k))
    state = b.apply("head_values", b.apply("transpose", k, dims=(2, 3)), v, head_dim=width)
    return rms(b, b.apply("head_values", q, state, head_dim=width), affine=False)


def _attention_free(b: Builder) -> object:
    x = b.tokens()
    features = b.shape(x)[-1]
    q, k, v = (b.linear(x, features, f"{name}_proj") for name in "qkv")
    weighted = b.apply("mul", b.apply("softmax", k, dim=1), v, meets="same")
    context = b.apply("sum", weighted, dim=1, keepdim=True)
    out = b.apply("mul_broadcast", b.apply("sigmoid", q), context, meets="sample")
    return b.linear(out, features, "out_proj")


def _channel_mixing(b: Builder) -> object:
    x = b.tokens()
    features = b.shape(x)[-1]
    shifted = b.apply("token_shift", x)
    change = b.apply("sub", x, shifted, meets="same")

    def mixed(label: str) -> int:
        part = b.apply("mul", change, meets="last", label=label)
        return b.apply("add", part, shifted, meets="same")

    key = b.linear(mixed("time_mix_key"), b.size("intermediate_size", 512, 1024, 2048), "key")
    value = b.linear(b.apply("square", b.apply("relu", key)), features, "value")
    receptance = b.linear(mixed("time_mix_receptance"), features, "receptance")
    return b.apply("mul", b.apply("sigmoid", receptance), value, meets="same")


def _spatial_gating(b: Builder) -> object:
    batch, tokens = b.size("batch_size", 8, 16, 32), b.size("num_tokens", 64, 128, 196, 256)
    x = b.input("x", batch, tokens, b.size("features", 256, 512, 768, 1024) * 2)
    value, gate = _part(b, x, 2, 0), _part(b, x, 2, 1)
    gate = b.apply("transpose", layer_norm(b, gate), dims=(1, 2))
    gate = _swapped(b, b.linear(gate, tokens, "spatial_proj", bias=True))
    return b.apply("mul", value, gate, meets="same")


def _recurrence(b: Builder, log_keep: int, log_take: int, x: int) -> object:
    """What steps h = keep * h + take * g(x) come to, in the log domain, projected back."""
    candidate = b.linear(x, b.shape(log_keep)[-1], "to_hidden")
    log_values = b.apply("add", log_take, b.apply("log_positive", candidate), meets="same")
    h = b.apply("decayed_sum", b.apply("cumsum", log_keep, dim=1), log_values)
    return b.linear(h, b.shape(x)[-1], "to_out")


def _hidden_size(b: Builder) -> Dim:
    return b.size("hidden_size", 256, 384, 512, 768, 1024)


def _min_gru(b: Builder) -> object:
    x = b.tokens()
    gate = b.linear(x, _hidden_size(b), "to_gate")
    log_take = b.apply("logsigmoid", gate)
    return _recurrence(b, b.apply("logsigmoid", b.apply("neg", gate)), log_take, x)


def _min_lstm(b: Builder) -> object:
    x = b.tokens()
    hidden = _hidden_size(b)
    # Input and forget gate divided by their sum: a sigmoid of the difference of their logs.
    forget, take = (
        b.apply("logsigmoid", b.linear(x, hidden, label)) for label in ("to_forget", "to_input")
    )
    log_ratio = b.apply("sub", take, forget, meets="same")
    log_keep = b.apply("logsigmoid", b.apply("neg", log_ratio))
    return _recurrence(b, log_keep, b.apply("logsigmoid", log_ratio), x)


def _mixer(name: str, origin: str, build: Callable[[Builder], object]) -> Composite:
    license = "Apache-2.0" if origin.startswith("transformers.") else None
    return Composite(name, "mixer", origin, license, build)


MIXER = (
    _mixer("short_conv", f"{_MODELS}.lfm2.modeling_lfm2.Lfm2ShortConv", _short_conv),
    _mixer("gated_causal_conv", "arXiv 2312.00752, Mamba without its scan", _gated_conv),
    _mixer("convolution_module", "arXiv 2005.08100, Conformer", _convolution_module),
    _mixer("state_space_dual", "arXiv 2405.21060, quadratic form of Mamba-2", _state_space),
    _mixer("retention", "arXiv 2307.08621, parallel form of RetNet", _retention),
    _mixer(
        "linear_attention", "arXiv 2006.16236, normalised as arXiv 2210.10340", _linear_attention
    ),
    _mixer("attention_free", "arXiv 2105.14103, AFT-simple", _attention_free),
    _mixer("channel_mixing", f"{_MODELS}.rwkv.modeling_rwkv.RwkvFeedForward", _channel_mixing),
    _mixer("spatial_gating", "arXiv 2105.08050, gMLP", _spatial_gating),
    _mixer("min_gru", "arXiv 2410.01201, minGRU in the log domain, projected back", _min_gru),
    _mixer("min_lstm", "arXiv 2410.01201, minLSTM in the log domain, projected back", _min_lstm),
)
