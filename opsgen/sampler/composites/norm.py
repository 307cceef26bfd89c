"""Normalisations with what stands around them: residuals, gates, scales, modulation."""

from __future__ import annotations

from collections.abc import Callable

from opsgen.sampler.composites.builder import Builder, Composite

_MODELS = "transformers.models"


def rms(b: Builder, x: int, label: str = "norm", *, affine: bool = True) -> int:
    """Apply an RMS norm over the last dim."""
    return b.apply("rms_norm", x, label=label if affine else "", elementwise_affine=affine)


def layer_norm(b: Builder, x: int, label: str = "norm", *, affine: bool = True) -> int:
    """Apply a layer norm over the last dim."""
    return b.apply("layer_norm", x, label=label, elementwise_affine=affine, bias=True)


def _unit_offset(b: Builder) -> object:
    normed = rms(b, b.tokens(), affine=False)
    scaled = b.apply("mul", normed, meets="last", label="weight")
    return b.apply("add", normed, scaled, meets="same")


def _residual_rms(b: Builder) -> object:
    x = b.tokens()
    residual = b.input("residual", *b.shape(x))
    return rms(b, b.apply("add", x, residual, meets="same"))


def _gated_rms(b: Builder) -> object:
    x = b.tokens()
    gate = b.input("gate", *b.shape(x))
    return rms(b, b.apply("mul", x, b.apply("silu", gate), meets="same"))


def _layer_scale(b: Builder) -> object:
    x = b.tokens()
    h = b.linear(layer_norm(b, x), b.shape(x)[-1], "dense", bias=True)
    scaled = b.apply("mul", h, meets="last", label="lambda1")
    return b.apply("add", scaled, x, meets="same")


def _channels_first(b: Builder) -> object:
    x = b.apply("permute", b.image(), order=(0, 2, 3, 1))
    return b.apply("permute", layer_norm(b, x), order=(0, 3, 1, 2))


def _modulated(b: Builder) -> object:
    x = b.tokens()
    batch, _, features = b.shape(x)
    scale = b.input("scale", batch, 1, features)
    shift = b.input("shift", batch, 1, features)
    normed = layer_norm(b, x, affine=False)
    scaled = b.apply("mul_broadcast", normed, scale, meets="sample")
    return b.apply(
        "add_broadcast", b.apply("add", scaled, normed, meets="same"), shift, meets="sample"
    )


def _sandwich(b: Builder) -> object:
    x = b.tokens()
    h = b.linear(rms(b, x, "pre_norm"), b.shape(x)[-1], "dense")
    return b.apply("add", rms(b, h, "post_norm"), x, meets="same")


def _head_norm(b: Builder) -> object:
    num_heads, head_dim = b.pick(4, 8, 12, 16), b.size("head_dim", 32, 64, 128)
    x = b.tokens()
    q = b.linear(x, head_dim * num_heads, "q_proj")
    return rms(b, b.apply("split_heads", q, num_heads=num_heads), "q_norm")


def _group_norm_silu(b: Builder) -> object:
    x = b.image()
    normed = b.apply("group_norm", x, label="norm", affine=True)
    return b.apply(
        "conv2d",
        b.apply("silu", normed),
        label="conv",
        out_channels=b.size("out_channels", 64, 96, 128, 256),
        kernel_size=3,
        stride=1,
        padding=1,
        dilation=1,
        groups=1,
        bias=True,
        padding_mode="zeros",
    )


def _dynamic_tanh(b: Builder) -> object:
    # The slope starts at a half and is learnt; a task has it fixed there.
    h = b.apply("tanh", b.apply("mul_scalar", b.tokens(), factor=0.5))
    scaled = b.apply("mul", h, meets="last", label="weight")
    return b.apply("add", scaled, meets="last", label="bias")


def _norm(name: str, origin: str, build: Callable[[Builder], object]) -> Composite:
    license = "Apache-2.0" if origin.startswith("transformers.") else None
    return Composite(name, "norm", origin, license, build)


NORM = (
    _norm("unit_offset_rms_norm", f"{_MODELS}.gemma.modeling_gemma.GemmaRMSNorm", _unit_offset),
    _norm("residual_rms_norm", "arXiv 1910.07467, RMSNorm, fused with a residual", _residual_rms),
    _norm("gated_rms_norm", f"{_MODELS}.mamba2.modeling_mamba2.MambaRMSNormGated", _gated_rms),
    _norm("layer_scale", "arXiv 2103.17239, LayerScale", _layer_scale),
    _norm(
        "channels_first_layer_norm",
        f"{_MODELS}.convnext.modeling_convnext.ConvNextLayerNorm",
        _channels_first,
    ),
    _norm("modulated_layer_norm", "arXiv 2212.09748, adaLN of DiT", _modulated),
    _norm("sandwich_rms_norm", "arXiv 2408.00118, pre- and post-norm of Gemma 2", _sandwich),
    _norm("head_rms_norm", "arXiv 2010.04245, QK-norm of one projection", _head_norm),
    _norm("group_norm_silu_conv", "arXiv 2006.11239, residual blocks of DDPM", _group_norm_silu),
    _norm("dynamic_tanh", "arXiv 2503.10622, DyT in place of a norm", _dynamic_tanh),
)
