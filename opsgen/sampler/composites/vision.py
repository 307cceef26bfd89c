"""Blocks over images and spectrograms: stems, residual and separable convolutions, patches."""

from __future__ import annotations

from collections.abc import Callable

from opsgen.sampler.composites.builder import Builder, Composite
from opsgen.sampler.composites.norm import layer_norm

_MODELS = "transformers.models"


def _conv(  # noqa: PLR0913
    b: Builder,
    x: int,
    channels: int,
    label: str,
    *,
    kernel_size: int = 1,
    stride: int = 1,
    bias: bool = False,
) -> int:
    return b.apply(
        f"conv{len(b.shape(x)) - 2}d",
        x,
        label=label,
        out_channels=channels,
        kernel_size=kernel_size,
        stride=stride,
        padding=kernel_size // 2,
        dilation=1,
        groups=1,
        bias=bias,
        padding_mode="zeros",
    )


def _depthwise(b: Builder, x: int, label: str, *, kernel_size: int = 3, bias: bool = False) -> int:
    return b.apply(
        "depthwise_conv2d",
        x,
        label=label,
        kernel_size=kernel_size,
        stride=1,
        padding=kernel_size // 2,
        dilation=1,
        bias=bias,
        padding_mode="zeros",
    )


def _batch_norm(b: Builder, x: int, label: str) -> int:
    return b.apply("batch_norm2d", x, label=label, affine=True)


def _normed_conv(b: Builder, x: int, channels: int, label: str, activation: str = "") -> int:
    """Convolve by 3x3, normalise over the batch, activate."""
    h = _batch_norm(b, _conv(b, x, channels, label, kernel_size=3), f"{label}_norm")
    return b.apply(activation, h) if activation else h


def squeezed(b: Builder, x: int, activation: str = "relu") -> int:
    """Scale channels by a gate that sees all positions."""
    h = b.apply("adaptive_avg_pool2d", x, output_size=1)
    h = _conv(b, h, b.size("squeeze_channels", 8, 16, 32), "reduce", bias=True)
    h = _conv(b, b.apply(activation, h), b.shape(x)[1], "expand", bias=True)
    return b.apply("mul_broadcast", x, b.apply("sigmoid", h), meets="pooled")


def _patches(b: Builder) -> object:
    x = b.input(
        "pixel_values",
        b.size("batch_size", 2, 4, 8, 16),
        3,
        b.size("height", 112, 224, 256),
        b.size("width", 112, 224, 256),
    )
    h = b.apply("patch_conv2d", x, label="projection", bias=True)
    return b.apply("transpose", b.apply("flatten", h, start_dim=2), dims=(1, 2))


def _patch_merging(b: Builder) -> object:
    x = b.apply("pixel_unshuffle", b.image(), factor=2)
    tokens = b.apply("transpose", b.apply("flatten", x, start_dim=2), dims=(1, 2))
    out = b.size("out_features", 128, 192, 256, 384)
    return b.linear(layer_norm(b, tokens), out, "reduction")


def _convnext(b: Builder) -> object:
    x = b.image()
    channels = b.shape(x)[1]
    h = _depthwise(b, x, "dwconv", kernel_size=7, bias=True)
    h = layer_norm(b, b.apply("permute", h, order=(0, 2, 3, 1)))
    h = b.linear(h, channels * 4, "pwconv1", bias=True)
    h = b.linear(b.apply("gelu", h, approximate="none"), channels, "pwconv2", bias=True)
    h = b.apply("mul", h, meets="last", label="layer_scale")
    return b.apply("add", b.apply("permute", h, order=(0, 3, 1, 2)), x, meets="same")


def _depthwise_separable(b: Builder) -> object:
    h = _batch_norm(b, _depthwise(b, b.image(), "depthwise"), "depthwise_norm")
    h = _conv(b, b.apply("relu", h), b.size("out_channels", 64, 96, 128, 256), "pointwise")
    return b.apply("relu", _batch_norm(b, h, "pointwise_norm"))


def _expanded(b: Builder, x: int, activation: str) -> int:
    h = _conv(b, x, b.shape(x)[1] * b.pick(3, 4, 6), "expand_conv")
    h = b.apply(activation, _batch_norm(b, h, "expand_norm"))
    h = _batch_norm(b, _depthwise(b, h, "depthwise"), "depthwise_norm")
    return b.apply(activation, h)


def _inverted_residual(b: Builder) -> object:
    x = b.image(16, 24, 32, 48, 64)
    h = _conv(b, _expanded(b, x, "relu6"), b.shape(x)[1], "project_conv")
    return b.apply("add", _batch_norm(b, h, "project_norm"), x, meets="same")


def _mbconv(b: Builder) -> object:
    x = b.image(16, 24, 32, 48, 64)
    h = squeezed(b, _expanded(b, x, "silu"), "silu")
    h = _conv(b, h, b.shape(x)[1], "project_conv")
    return b.apply("add", _batch_norm(b, h, "project_norm"), x, meets="same")


def _basic_block(b: Builder) -> object:
    x = b.image()
    channels = b.shape(x)[1]
    h = _normed_conv(b, x, channels, "conv1", "relu")
    h = _normed_conv(b, h, channels, "conv2")
    return b.apply("relu", b.apply("add", h, x, meets="same"))


def _spectrogram_stem(b: Builder) -> object:
    x = b.input(
        "x",
        b.size("batch_size", 2, 4, 8),
        b.size("channels", 64, 80, 128),
        b.size("length", 256, 512, 1024, 3000),
    )
    features = b.size("out_channels", 256, 384, 512)
    h = b.apply("gelu", _conv(b, x, features, "conv1", kernel_size=3, bias=True))
    h = _conv(b, h, features, "conv2", kernel_size=3, stride=2, bias=True)
    return b.apply("transpose", b.apply("gelu", h, approximate="none"), dims=(1, 2))


def _image_stem(b: Builder) -> object:
    h = b.input(
        "x",
        b.size("batch_size", 4, 8, 16),
        3,
        b.size("height", 112, 224),
        b.size("width", 112, 224),
    )
    channels = b.size("out_channels", 32, 48, 64)
    h = _conv(b, h, channels, "conv", kernel_size=7, stride=2)
    h = b.apply("relu", _batch_norm(b, h, "norm"))
    return b.apply("max_pool2d", h, kernel_size=3, stride=2, padding=1, dilation=1, ceil_mode=False)


def _upsampling(b: Builder) -> object:
    x = b.image(32, 48, 64, 96)
    grown = b.apply("interpolate_nearest", x, scale_factor=2, mode="nearest")
    return _conv(b, grown, b.shape(x)[1], "conv", kernel_size=3, bias=True)


def _subpixel(b: Builder) -> object:
    x = b.image(32, 48, 64, 96)
    channels = b.size("out_channels", 3, 16, 32)
    h = _conv(b, x, channels * 4, "conv", kernel_size=3, bias=True)
    return b.apply("pixel_shuffle", h, factor=2)


def _vision(
    name: str, origin: str, build: Callable[[Builder], object], license: str | None = None
) -> Composite:
    known = "Apache-2.0" if origin.startswith("transformers.") else license
    return Composite(name, "vision", origin, known, build)


VISION = (
    _vision("patch_embedding", f"{_MODELS}.vit.modeling_vit.ViTPatchEmbeddings", _patches),
    _vision("patch_merging", "arXiv 2103.14030, Swin", _patch_merging),
    _vision(
        "squeeze_excite",
        f"{_MODELS}.regnet.modeling_regnet.RegNetSELayer",
        lambda b: squeezed(b, b.image()),
    ),
    _vision("convnext_block", f"{_MODELS}.convnext.modeling_convnext.ConvNextLayer", _convnext),
    _vision("depthwise_separable_conv", "arXiv 1704.04861, MobileNet", _depthwise_separable),
    _vision("inverted_residual", "arXiv 1801.04381, MobileNetV2", _inverted_residual),
    _vision("mbconv", "arXiv 1905.11946, EfficientNet", _mbconv),
    _vision("residual_block", "arXiv 1512.03385, basic block of ResNet", _basic_block),
    _vision("spectrogram_stem", "arXiv 2212.04356, stem of Whisper", _spectrogram_stem),
    _vision("image_stem", f"{_MODELS}.resnet.modeling_resnet.ResNetEmbeddings", _image_stem),
    _vision("upsampling_conv", "arXiv 2112.10752, upsampling of latent diffusion", _upsampling),
    _vision("subpixel_conv", "arXiv 1609.05158, sub-pixel convolution", _subpixel),
)
