"""Feed-forward blocks: gated, squared, fused, normalised, mixing tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from opsgen.sampler.composites.builder import Builder, Composite

_HIDDEN = (512, 768, 1024, 1536, 2048, 4096)
_MODELS = "transformers.models"
_GLU = "arXiv 2002.05202, GLU Variants Improve Transformer"


def _gated(activation: str, **attrs: Any) -> Callable[[Builder], object]:
    """A product of an activated projection and a plain one, projected back."""

    def build(b: Builder) -> object:
        x = b.tokens()
        return gated_mlp(b, x, activation, **attrs)

    return build


def gated_mlp(b: Builder, x: int, activation: str, **attrs: Any) -> int:
    """Apply a gated MLP to tokens."""
    hidden = b.size("intermediate_size", *_HIDDEN)
    gate = b.linear(x, hidden, "gate_proj")
    up = b.linear(x, hidden, "up_proj")
    product = b.apply("mul", b.apply(activation, gate, **attrs), up, meets="same")
    return b.linear(product, b.shape(x)[-1], "down_proj")


def _fused_swiglu(b: Builder) -> object:
    x = b.tokens()
    hidden = b.size("intermediate_size", *_HIDDEN)
    both = b.linear(x, hidden * 2, "gate_up_proj")
    gate = b.apply("chunk_part", both, parts=2, dim=-1, index=0)
    up = b.apply("chunk_part", both, parts=2, dim=-1, index=1)
    product = b.apply("mul", up, b.apply("silu", gate), meets="same")
    return b.linear(product, b.shape(x)[-1], "down_proj")


def _plain(*names: str, first: str, second: str, bias: bool) -> Callable[[Builder], object]:
    """Two linear layers with element-wise ops in between."""

    def build(b: Builder) -> object:
        x = b.tokens()
        h = b.linear(x, b.size("intermediate_size", *_HIDDEN), first, bias=bias)
        for name in names:
            op, _, approximate = name.partition(":")
            h = b.apply(op, h, approximate=approximate) if approximate else b.apply(op, h)
        return b.linear(h, b.shape(x)[-1], second, bias=bias)

    return build


def _quick_gelu_mlp(b: Builder) -> object:
    x = b.tokens()
    h = b.linear(x, b.size("intermediate_size", *_HIDDEN), "fc1", bias=True)
    gate = b.apply("sigmoid", b.apply("mul_scalar", h, factor=1.702))
    return b.linear(b.apply("mul", h, gate, meets="same"), b.shape(x)[-1], "fc2", bias=True)


def _bert_output(b: Builder) -> object:
    features = b.size("features", 256, 384, 512, 768, 1024)
    h = b.tokens(b.size("intermediate_size", *_HIDDEN), name="hidden_states")
    h = b.linear(h, features, "dense", bias=True)
    residual = b.input("input_tensor", *b.shape(h))
    total = b.apply("add", h, residual, meets="same")
    return b.apply("layer_norm", total, label="norm", elementwise_affine=True, bias=True)


def _residual_swiglu(b: Builder) -> object:
    x = b.tokens()
    normed = b.apply("rms_norm", x, label="norm", elementwise_affine=True)
    return b.apply("add", gated_mlp(b, normed, "silu"), x, meets="same")


def _token_mixing(b: Builder) -> object:
    batch, tokens = b.size("batch_size", 8, 16, 32), b.size("num_tokens", 64, 128, 196, 256)
    x = b.input("x", batch, tokens, b.size("features", 256, 384, 512, 768))
    normed = b.apply("layer_norm", x, label="norm", elementwise_affine=True, bias=True)
    h = b.apply("transpose", normed, dims=(1, 2))
    h = b.linear(h, b.size("tokens_mlp_dim", 128, 256, 384), "fc1", bias=True)
    h = b.linear(b.apply("gelu", h, approximate="none"), tokens, "fc2", bias=True)
    return b.apply("add", b.apply("transpose", h, dims=(1, 2)), x, meets="same")


def _gated_residual(b: Builder) -> object:
    x = b.tokens()
    features = b.shape(x)[-1]
    h = b.linear(x, b.size("hidden_size", 256, 512, 768, 1024), "fc1", bias=True)
    h = b.linear(b.apply("elu", h, alpha=1.0), features, "fc2", bias=True)
    gated = b.apply("glu", b.linear(h, features * 2, "gate", bias=True), dim=-1)
    total = b.apply("add", gated, x, meets="same")
    return b.apply("layer_norm", total, label="norm", elementwise_affine=True, bias=True)


def _low_rank(b: Builder) -> object:
    x = b.tokens()
    width = b.size("out_features", 512, 768, 1024, 2048)
    base = b.linear(x, width, "base_layer", bias=b.pick(True, False))
    low = b.linear(x, b.size("lora_rank", 8, 16, 32, 64), "lora_A")
    scaled = b.apply("mul_scalar", b.linear(low, width, "lora_B"), factor=b.pick(0.5, 2.0))
    return b.apply("add", base, scaled, meets="same")


def _mlp(name: str, origin: str, build: Callable[[Builder], object]) -> Composite:
    license = "Apache-2.0" if origin.startswith("transformers.") else None
    return Composite(name, "mlp", origin, license, build)


MLP = (
    _mlp("swiglu", f"{_MODELS}.llama.modeling_llama.LlamaMLP", _gated("silu")),
    _mlp("geglu", f"{_MODELS}.gemma.modeling_gemma.GemmaMLP", _gated("gelu", approximate="tanh")),
    _mlp("reglu", _GLU, _gated("relu")),
    _mlp("sigmoid_glu", f"{_GLU}, gate of a sigmoid", _gated("sigmoid")),
    _mlp("fused_swiglu", f"{_MODELS}.phi3.modeling_phi3.Phi3MLP", _fused_swiglu),
    _mlp("quick_gelu_mlp", f"{_MODELS}.clip.modeling_clip.CLIPMLP", _quick_gelu_mlp),
    _mlp(
        "gelu_mlp",
        f"{_MODELS}.phi.modeling_phi.PhiMLP",
        _plain("gelu:tanh", first="fc1", second="fc2", bias=True),
    ),
    _mlp(
        "squared_relu_mlp",
        f"{_MODELS}.nemotron.modeling_nemotron.NemotronMLP",
        _plain("relu", "square", first="up_proj", second="down_proj", bias=False),
    ),
    _mlp("bert_output", f"{_MODELS}.bert.modeling_bert.BertOutput", _bert_output),
    _mlp("residual_swiglu", f"{_GLU}, behind a pre-norm, with its residual", _residual_swiglu),
    _mlp("token_mixing_mlp", "arXiv 2105.01601, MLP-Mixer", _token_mixing),
    _mlp(
        "gated_residual_network",
        "arXiv 1912.09363, GRN of Temporal Fusion Transformers",
        _gated_residual,
    ),
    _mlp("low_rank_linear", "arXiv 2106.09685, LoRA beside its linear layer", _low_rank),
)
