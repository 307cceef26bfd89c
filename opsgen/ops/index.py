"""Selection and placement by index tensors."""

from __future__ import annotations

from opsgen.ops.entry import Attrs, Draw, Kind, Op, Shapes, spell


def _embedding_attrs(draw: Draw, _ins: Shapes) -> Attrs | None:
    table = draw.size("num_embeddings", (512, 1000, 4096, 10000, 32000))
    width = draw.size("embedding_dim", (32, 64, 128, 256, 512, 768))
    return None if table is None or width is None else {**table, **width}


OPS = (
    Op(
        "embedding",
        Kind.INDEX,
        (spell("{self}({x})", "nn.Embedding({num_embeddings}, {embedding_dim}{dtype})"),),
        ranks=(2,),
        layout="features",
        attrs=_embedding_attrs,
        out=lambda ins, attrs: (*ins[0], attrs["embedding_dim"]),
        params=lambda ins, attrs: attrs["num_embeddings"] * attrs["embedding_dim"],
        in_dtype="int64",
        high=lambda ins, attrs: attrs["num_embeddings"],
    ),
)
