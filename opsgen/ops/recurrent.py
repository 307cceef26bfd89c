"""One step of recurrent layers; the state is an operand, the new state the result.

Whole sequences are left out: `torch.compile` does not trace `nn.LSTM` and its
relatives.
"""

from __future__ import annotations

from math import prod
from typing import Any

from opsgen.ops.dims import Shape
from opsgen.ops.entry import Attrs, Draw, Kind, Op, Operand, Shapes, spell
from opsgen.ops.intervals import NONNEGATIVE, SIGNED_UNIT, Interval, hull

_HIDDEN = (32, 64, 128, 256, 512, 1024)


def _attrs(draw: Draw, _ins: Shapes) -> Attrs | None:
    return draw.size("hidden_size", _HIDDEN)


def _simple_attrs(draw: Draw, ins: Shapes) -> Attrs | None:
    size, kind = _attrs(draw, ins), draw.pick(nonlinearity=("tanh", "tanh", "relu"))
    return None if size is None or kind is None else {**kind, **size}


def _state(ins: Shapes, attrs: Attrs) -> Shape:
    return (ins[0][0], attrs["hidden_size"])


def _cell(
    name: str, module: str, call: str, gates: int, states: tuple[str, ...], **fields: Any
) -> Op:
    """A cell of `gates` gates, each a linear layer of the input and of the state."""

    def params(ins: Shapes, attrs: Attrs) -> int:
        hidden: int = attrs["hidden_size"]
        return gates * hidden * (ins[0][1] + hidden + 2)

    def flops(ins: Shapes, attrs: Attrs, out: Shape) -> int:
        return 2 * gates * prod(out) * int(ins[0][1] + attrs["hidden_size"])

    settings: dict[str, Any] = {"attrs": _attrs, "defaults": {}, **fields}
    return Op(
        name,
        Kind.MATMUL,
        (spell(call, f"nn.{module}({{D}}, {{hidden_size}}{{...}}{{dtype}})"),),
        ranks=(2,),
        layout="features",
        operands=lambda draw, ins, attrs: tuple(
            Operand(_state(ins, attrs), name=state) for state in states
        ),
        out=_state,
        params=params,
        terms=lambda ins, attrs: max(ins[0][1], attrs["hidden_size"]),
        flops=flops,
        passes=2.0,
        **settings,
    )


def _simple_range(_ranges: tuple[Interval, ...], attrs: Attrs) -> Interval:
    return SIGNED_UNIT if attrs["nonlinearity"] == "tanh" else NONNEGATIVE


OPS = (
    _cell(
        "rnn_cell",
        "RNNCell",
        "{self}({x}, {y})",
        1,
        ("hidden",),
        attrs=_simple_attrs,
        defaults={"nonlinearity": "tanh"},
        range=_simple_range,
    ),
    _cell(
        "gru_cell",
        "GRUCell",
        "{self}({x}, {y})",
        3,
        ("hidden",),
        range=lambda ranges, attrs: hull(ranges[1], SIGNED_UNIT),
    ),
    _cell(
        "lstm_cell",
        "LSTMCell",
        "{self}({x}, ({y}, {z}))[0]",
        4,
        ("hidden", "cell"),
        range=SIGNED_UNIT,
    ),
)
