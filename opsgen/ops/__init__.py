"""The catalogue of ops: one file per kind, entries readable without torch.

An entry says which shapes it takes, how its attributes are chosen, what comes
out, what it costs, which numbers it accepts and returns, and how the source
writes it. `entry` defines the form, `dims` the sizes that remember their
expressions, `intervals` the numeric domains, `draws` the input
distributions. What cannot be stated in closed form does not belong here.
Imports `records` only.
"""

from opsgen.ops.catalogue import BLOCK_OPS, CATALOGUE
from opsgen.ops.dims import Dim, Shape, evaluate, expression, same_shape
from opsgen.ops.draws import DRAWS, draws_within
from opsgen.ops.entry import PROPS, Attrs, Draw, Kind, Op, Operand, Shapes, Spelling, spell
from opsgen.ops.intervals import Interval

__all__ = [
    "BLOCK_OPS",
    "CATALOGUE",
    "DRAWS",
    "PROPS",
    "Attrs",
    "Dim",
    "Draw",
    "Interval",
    "Kind",
    "Op",
    "Operand",
    "Shape",
    "Shapes",
    "Spelling",
    "draws_within",
    "evaluate",
    "expression",
    "same_shape",
    "spell",
]
