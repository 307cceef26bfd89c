"""The renderer: from a graph to the text that people and models read.

`source` writes self-contained modules in the KernelBench form, plain and
with a tap at every node; `expansion` fills the catalogue's templates in;
`lines` splits long lines as black does; `task` makes a task of a plan's
line. Rendering is pure: it decides nothing about shapes, draws nothing and
never runs what it wrote. Imports `records`, `ops` and `sampler`.
"""

from opsgen.render.source import render_source, render_tapped
from opsgen.render.task import render_task

__all__ = ["render_source", "render_tapped", "render_task"]
