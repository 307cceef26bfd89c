"""Comparisons of a prediction with a target.

Left out: `gaussian_nll_loss`, which looks at values to raise errors and so
breaks the graph, and `ctc_loss`, whose kernels on a GPU are not repeatable.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from math import prod
from typing import Any

from opsgen.ops.dims import Shape
from opsgen.ops.entry import Attrs, Draw, Kind, Op, Operand, Shapes, spell
from opsgen.ops.intervals import (
    EXPONENT,
    NONNEGATIVE,
    NONPOSITIVE,
    REAL,
    SIGNED_EXPONENT,
    SIGNED_UNIT,
    UNIT,
    Interval,
)

_REDUCTIONS = ("mean", "mean", "sum", "none")
# torch warns that `mean` will come to mean `batchmean` here.
_KL_REDUCTIONS = ("batchmean", "batchmean", "sum", "none")

Operands = Callable[[Draw, Shapes, Attrs], tuple[Operand, ...]]


def _choose(**choices: tuple[Any, ...]) -> Callable[[Draw, Shapes], Attrs | None]:
    return lambda draw, ins: draw.pick(**{"reduction": _REDUCTIONS, **choices})


def _target(domain: Interval = REAL) -> Operands:
    return lambda draw, ins, attrs: (Operand(ins[0], domain, name="target"),)


def _signs(shape: Shape) -> Operand:
    return Operand(shape, SIGNED_UNIT, name="target", can_join=False, draw="sign")


def _reduced(shape: Shape, attrs: Attrs) -> Shape:
    return shape if attrs["reduction"] == "none" else ()


def _out(ins: Shapes, attrs: Attrs) -> Shape:
    return _reduced(ins[0], attrs)


def _row_out(ins: Shapes, attrs: Attrs) -> Shape:
    return _reduced(ins[0][:-1], attrs)


def _class_out(ins: Shapes, attrs: Attrs) -> Shape:
    return _reduced((ins[0][0], *ins[0][2:]), attrs)


def _terms(ins: Shapes, attrs: Attrs) -> int:
    return 1 if attrs["reduction"] == "none" else prod(ins[0])


def _all_terms(ins: Shapes, attrs: Attrs) -> int:
    """For losses that add up over the last dim before the reduction."""
    return ins[0][-1] if attrs["reduction"] == "none" else prod(ins[0])


def _class_terms(ins: Shapes, attrs: Attrs) -> int:
    return ins[0][1] if attrs["reduction"] == "none" else prod(ins[0])


def _loss(name: str, module: str, function: str, inputs: str = "{x}, {y}", **fields: Any) -> Op:
    settings: dict[str, Any] = {
        "ranks": (2, 3, 4),
        "attrs": _choose(),
        "operands": _target(),
        "out": _out,
        "terms": _terms,
        "range": NONNEGATIVE,
        **fields,
        "defaults": {"reduction": "mean", **fields.get("defaults", {})},
    }
    return Op(
        name,
        Kind.LOSS,
        (
            spell(f"{{self}}({inputs})", f"nn.{module}({{...}})"),
            spell(f"F.{function}({inputs}{{...}})"),
        ),
        flops=lambda ins, attrs, out: 3 * prod(ins[0]),
        **settings,
    )


def _class_attrs(draw: Draw, ins: Shapes) -> Attrs | None:
    # Over positions of an image the GPU adds up with atomics.
    reductions = _REDUCTIONS if len(ins[0]) == 2 else ("none",)
    return draw.pick(reduction=reductions, label_smoothing=(0.0, 0.0, 0.1))


def _nll_attrs(draw: Draw, ins: Shapes) -> Attrs | None:
    return draw.pick(reduction=_REDUCTIONS if len(ins[0]) == 2 else ("none",))


def _classes(_draw: Draw, ins: Shapes, _attrs: Attrs) -> tuple[Operand, ...]:
    batch, classes, *space = ins[0]
    shape = (batch, *space)
    return (Operand(shape, REAL, dtype="int64", high=classes, name="target", can_join=False),)


def _two_more(_draw: Draw, ins: Shapes, _attrs: Attrs) -> tuple[Operand, ...]:
    return (Operand(ins[0], name="positive"), Operand(ins[0], name="negative"))


def _second_and_signs(_draw: Draw, ins: Shapes, _attrs: Attrs) -> tuple[Operand, ...]:
    return (Operand(ins[0]), _signs(ins[0]))


_ELEMENTWISE = (
    _loss("mse_loss", "MSELoss", "mse_loss", props=frozenset({"commutative"})),
    _loss("l1_loss", "L1Loss", "l1_loss", props=frozenset({"commutative"})),
    _loss(
        "smooth_l1_loss",
        "SmoothL1Loss",
        "smooth_l1_loss",
        attrs=_choose(beta=(1.0, 1.0, 0.5, 0.1)),
        defaults={"beta": 1.0},
        props=frozenset({"commutative"}),
    ),
    _loss(
        "huber_loss",
        "HuberLoss",
        "huber_loss",
        attrs=_choose(delta=(1.0, 1.0, 0.5, 2.0)),
        defaults={"delta": 1.0},
        props=frozenset({"commutative"}),
    ),
    _loss(
        "binary_cross_entropy",
        "BCELoss",
        "binary_cross_entropy",
        domain=UNIT,
        operands=_target(UNIT),
    ),
    _loss(
        "binary_cross_entropy_with_logits",
        "BCEWithLogitsLoss",
        "binary_cross_entropy_with_logits",
        operands=_target(UNIT),
    ),
    _loss(
        "kl_div",
        "KLDivLoss",
        "kl_div",
        domain=NONPOSITIVE,
        operands=_target(UNIT),
        attrs=_choose(reduction=_KL_REDUCTIONS),
        # Where the prediction lies above the target, single terms are negative.
        range=REAL,
        passes=4.0,
    ),
    _loss(
        "kl_div_log_target",
        "KLDivLoss",
        "kl_div",
        domain=NONPOSITIVE,
        operands=_target(NONPOSITIVE),
        attrs=_choose(reduction=_KL_REDUCTIONS, log_target=(True,)),
        defaults={"log_target": False},
        range=REAL,
        passes=4.0,
    ),
    _loss(
        "poisson_nll_loss",
        "PoissonNLLLoss",
        "poisson_nll_loss",
        domain=EXPONENT,
        operands=_target(NONNEGATIVE),
        attrs=_choose(full=(False, False, True)),
        defaults={"full": False},
        range=REAL,
        passes=4.0,
    ),
    _loss(
        "poisson_nll_loss_rate",
        "PoissonNLLLoss",
        "poisson_nll_loss",
        domain=NONNEGATIVE,
        operands=_target(NONNEGATIVE),
        attrs=_choose(log_input=(False,)),
        defaults={"log_input": True},
        range=REAL,
        passes=4.0,
    ),
    _loss(
        "soft_margin_loss",
        "SoftMarginLoss",
        "soft_margin_loss",
        operands=lambda draw, ins, attrs: (_signs(ins[0]),),
        domain=SIGNED_EXPONENT,
        passes=5.0,
    ),
    _loss(
        "hinge_embedding_loss",
        "HingeEmbeddingLoss",
        "hinge_embedding_loss",
        operands=lambda draw, ins, attrs: (_signs(ins[0]),),
        attrs=_choose(margin=(1.0, 1.0, 0.5)),
        defaults={"margin": 1.0},
        range=REAL,
        passes=6.0,
    ),
    _loss(
        "margin_ranking_loss",
        "MarginRankingLoss",
        "margin_ranking_loss",
        "{x}, {y}, {z}",
        operands=_second_and_signs,
        attrs=_choose(margin=(0.0, 0.1, 0.5)),
        defaults={"margin": 0.0},
        passes=5.0,
    ),
)

_ROWWISE = (
    _loss(
        "cosine_embedding_loss",
        "CosineEmbeddingLoss",
        "cosine_embedding_loss",
        "{x}, {y}, {z}",
        ranks=(2,),
        layout="features",
        operands=lambda draw, ins, attrs: (Operand(ins[0]), _signs(ins[0][:1])),
        attrs=_choose(margin=(0.0, 0.0, 0.3)),
        defaults={"margin": 0.0},
        # 1 - cosine rounds a little below zero for parallel rows.
        out=_row_out,
        terms=_all_terms,
        range=Interval(-0.001, math.inf),
        passes=6.0,
    ),
    _loss(
        "triplet_margin_loss",
        "TripletMarginLoss",
        "triplet_margin_loss",
        "{x}, {y}, {z}",
        ranks=(2, 3),
        layout="features",
        operands=_two_more,
        attrs=_choose(margin=(1.0, 1.0, 0.5), p=(2.0, 2.0, 1.0), swap=(False, False, True)),
        defaults={"margin": 1.0, "p": 2.0, "swap": False},
        out=_row_out,
        terms=_all_terms,
        passes=6.0,
    ),
    _loss(
        "multilabel_soft_margin_loss",
        "MultiLabelSoftMarginLoss",
        "multilabel_soft_margin_loss",
        ranks=(2, 3),
        layout="features",
        operands=_target(UNIT),
        out=_row_out,
        terms=_all_terms,
        passes=8.0,
    ),
)

_CLASSES = (
    _loss(
        "cross_entropy",
        "CrossEntropyLoss",
        "cross_entropy",
        attrs=_class_attrs,
        operands=_classes,
        defaults={"label_smoothing": 0.0},
        layout="channels",
        out=_class_out,
        terms=_class_terms,
        passes=3.0,
        folds=lambda ins, attrs: (1,),
        props=frozenset({"shift_invariant"}),
    ),
    _loss(
        "cross_entropy_soft",
        "CrossEntropyLoss",
        "cross_entropy",
        attrs=_choose(),
        operands=_target(UNIT),
        layout="channels",
        out=_class_out,
        terms=_class_terms,
        passes=4.0,
    ),
    _loss(
        "nll_loss",
        "NLLLoss",
        "nll_loss",
        attrs=_nll_attrs,
        operands=_classes,
        domain=NONPOSITIVE,
        layout="channels",
        out=_class_out,
        terms=lambda ins, attrs: 1 if attrs["reduction"] == "none" else ins[0][0],
    ),
    _loss(
        "multi_margin_loss",
        "MultiMarginLoss",
        "multi_margin_loss",
        ranks=(2,),
        layout="features",
        operands=_classes,
        attrs=_choose(p=(1, 1, 2), margin=(1.0, 1.0, 0.5)),
        defaults={"p": 1, "margin": 1.0},
        out=_class_out,
        terms=_class_terms,
        folds=lambda ins, attrs: (1,),
        is_full_precision=True,
        props=frozenset({"shift_invariant"}),
    ),
)

OPS = (*_ELEMENTWISE, *_ROWWISE, *_CLASSES)
