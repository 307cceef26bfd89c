"""Routers of experts, gates, and heads that pool tokens."""

from __future__ import annotations

from collections.abc import Callable

from opsgen.sampler.composites.builder import Builder, Composite
from opsgen.sampler.composites.mlp import gated_mlp
from opsgen.sampler.composites.norm import layer_norm, rms

_MODELS = "transformers.models"


def _logits(b: Builder, x: int) -> int:
    return b.linear(x, b.size("num_experts", 16, 32, 64, 128), "router")


def _softmax_topk(b: Builder) -> object:
    # Softmax over the chosen equals the chosen of a softmax, normalised.
    logits = _logits(b, b.tokens())
    chosen = b.apply("topk", logits, dim=-1, largest=True, k=b.pick(2, 4, 8))
    return b.apply("softmax", chosen, dim=-1)


def _sigmoid_topk(b: Builder) -> object:
    logits = _logits(b, b.tokens())
    chosen = b.apply("topk", logits, dim=-1, largest=True, k=b.pick(1, 2, 4))
    return b.apply("sigmoid", chosen)


def _switch(b: Builder) -> object:
    probabilities = b.apply("softmax", _logits(b, b.tokens()), dim=-1)
    return b.apply("amax", probabilities, dim=-1, keepdim=True)


def _normed_router(b: Builder) -> object:
    x = b.tokens()
    weights = b.apply("softmax", _logits(b, rms(b, x)), dim=-1)
    return b.apply("topk", weights, dim=-1, largest=True, k=b.pick(2, 4, 8))


def _shared_expert(b: Builder) -> object:
    x = b.tokens()
    gate = b.apply("sigmoid", b.linear(x, 1, "shared_expert_gate"))
    return b.apply("mul", gated_mlp(b, x, "silu"), gate, meets="row")


def _soft_dispatch(b: Builder) -> object:
    x = b.tokens()
    logits = b.linear(x, b.size("num_slots", 16, 32, 64, 128), "slots")
    dispatch = b.apply("transpose", b.apply("softmax", logits, dim=1), dims=(1, 2))
    return b.apply("bmm", dispatch, x, out_features=b.shape(x)[-1])


def _mean_pooled_head(b: Builder) -> object:
    pooled = b.apply("mean", layer_norm(b, b.tokens()), dim=1, keepdim=False)
    return b.linear(pooled, b.size("num_classes", 10, 100, 1000), "head", bias=True)


def _projection_head(b: Builder) -> object:
    x = b.input("x", b.size("batch_size", 256, 512, 1024, 2048), b.size("features", 512, 768, 1024))
    projected = b.linear(layer_norm(b, x), b.size("projection_dim", 256, 512), "projection")
    return b.apply("normalize", projected, p=2.0, dim=-1)


def _capped_head(b: Builder) -> object:
    cap = b.pick(20.0, 30.0, 50.0)
    logits = b.linear(rms(b, b.tokens()), b.size("vocab_size", 4096, 8192, 16384), "lm_head")
    capped = b.apply("tanh", b.apply("over_constant", logits, divisor=cap))
    return b.apply("times_constant", capped, factor=cap)


def _routing(name: str, origin: str, build: Callable[[Builder], object]) -> Composite:
    license = "Apache-2.0" if origin.startswith("transformers.") else None
    return Composite(name, "routing", origin, license, build)


ROUTING = (
    _routing(
        "softmax_topk_router",
        f"{_MODELS}.mixtral.modeling_mixtral.MixtralTopKRouter",
        _softmax_topk,
    ),
    _routing("sigmoid_topk_router", "arXiv 2412.19437, sigmoid gates, chosen first", _sigmoid_topk),
    _routing("switch_router", "arXiv 2101.03961, Switch Transformers", _switch),
    _routing("normed_router", "arXiv 2401.04088, gate behind its pre-norm", _normed_router),
    _routing("shared_expert", "arXiv 2407.10671, shared expert of Qwen2-MoE", _shared_expert),
    _routing("soft_dispatch", "arXiv 2308.00951, Soft MoE", _soft_dispatch),
    _routing("mean_pooled_head", "arXiv 2103.14030, head of Swin", _mean_pooled_head),
    _routing("projection_head", "arXiv 2103.00020, projections of CLIP", _projection_head),
    _routing("softcapped_head", "arXiv 2408.00118, final soft-capping of Gemma 2", _capped_head),
)
