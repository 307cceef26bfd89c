"""Position: rotations of queries and keys, biases of scores."""

from __future__ import annotations

from opsgen.ops.intervals import SIGNED_UNIT
from opsgen.sampler.composites.builder import Builder, Composite

_LLAMA = "transformers.models.llama.modeling_llama"


def heads_input(b: Builder, name: str, draw: str | None = None) -> int:
    """Add a task input of shape (batch_size, heads, seq_len, head_dim)."""
    return b.input(
        name,
        b.size("batch_size", 2, 4, 8),
        b.pick(4, 8, 12, 16),
        b.size("seq_len", 64, 128, 256),
        b.size("head_dim", 32, 64, 128),
        draw=draw,
    )


def angles(b: Builder, q: int) -> tuple[int, int]:
    """Add the cosines and sines that rotate `q` as task inputs."""
    length, width = b.shape(q)[-2:]
    cos = b.input("cos", length, width, domain=SIGNED_UNIT)
    return cos, b.input("sin", length, width, domain=SIGNED_UNIT)


def rotated(b: Builder, q: int, cos: int, sin: int) -> int:
    """Rotate pairs of values by the angles of their positions."""
    kept = b.apply("mul_broadcast", q, cos, meets="matrix")
    turned = b.apply("mul_broadcast", b.apply("rotate_half", q), sin, meets="matrix")
    return b.apply("add", kept, turned, meets="same")


def _rotary(b: Builder) -> object:
    q = heads_input(b, "q")
    return rotated(b, q, *angles(b, q))


def _rotary_projection(b: Builder) -> object:
    num_heads, head_dim = b.pick(4, 8, 12, 16), b.size("head_dim", 32, 64, 128)
    x = b.tokens()
    q = b.linear(x, head_dim * num_heads, "q_proj")
    q = b.apply("split_heads", q, num_heads=num_heads)
    return rotated(b, q, *angles(b, q))


def _rotary_scores(b: Builder) -> object:
    q = heads_input(b, "q")
    k = b.input("k", *b.shape(q))
    cos, sin = angles(b, q)
    return b.apply(
        "head_scores",
        rotated(b, q, cos, sin),
        rotated(b, k, cos, sin),
        out_features=b.shape(q)[-2],
    )


def _alibi(b: Builder) -> object:
    q = heads_input(b, "q")
    k = b.input("k", *b.shape(q))
    scores = b.apply("head_scores", b.apply("over_root_width", q), k, out_features=b.shape(q)[-2])
    return b.apply("softmax", b.apply("causal_mask", b.apply("alibi", scores)), dim=-1)


def _bucket_bias(b: Builder) -> object:
    batch, num_heads = b.size("batch_size", 2, 4, 8), b.pick(4, 8, 12, 16)
    length = b.size("seq_len", 64, 128, 256)
    scores = b.input("scores", batch, num_heads, length, length)
    buckets = b.input("buckets", length, length, dtype="int64", high=32)
    table = b.apply(
        "embedding",
        buckets,
        label="relative_attention_bias",
        num_embeddings=32,
        embedding_dim=num_heads,
    )
    bias = b.apply("permute", table, order=(2, 0, 1))
    return b.apply("softmax", b.apply("add_broadcast", scores, bias, meets="planes"), dim=-1)


POSITION = (
    Composite("rotary", "position", f"{_LLAMA}.apply_rotary_pos_emb", "Apache-2.0", _rotary),
    Composite(
        "rotary_projection",
        "position",
        "arXiv 2104.09864, RoFormer, of a projection",
        None,
        _rotary_projection,
    ),
    Composite(
        "rotary_scores",
        "position",
        "arXiv 2104.09864, RoFormer, scores of rotated queries and keys",
        None,
        _rotary_scores,
    ),
    Composite("alibi_scores", "position", "arXiv 2108.12409, ALiBi", None, _alibi),
    Composite(
        "bucketed_relative_bias",
        "position",
        "arXiv 1910.10683, relative position bias of T5",
        None,
        _bucket_bias,
    ),
)
