"""The sampler: from a seed to an endless plan of sized, legal graphs.

`plan` is the way in: `quotas` give a line its cell (`strata`) and the op
sequences to try, numbered by `table`, cleared of bad `pairs` and shuffled by
`permutation`. `growth` turns a sequence into a graph (a `draft` until it is
done), checked by `algebra`; `composites` do so for named blocks. `cost`, on
the speeds of a `calibration`, and `sizing` give it sizes near a target time.
`resolution` computes shapes, `identity` hashes, `views` shows graphs;
`trials`, `points`, `shapes` and `fitting` make calibrations.
Nothing here needs torch, writes source or keeps state between lines.
Imports `records`, `errors`, `recipe` and `ops`.
"""

from opsgen.sampler.composites import COMPOSITES, Composite, composite_of
from opsgen.sampler.cost import calibration_digest, estimate, load_calibration
from opsgen.sampler.growth import grow
from opsgen.sampler.identity import family_hash, graph_hash, size_names, task_id
from opsgen.sampler.pairs import pairs_digest
from opsgen.sampler.plan import Line, Plan, Sampled, num_ops, workload
from opsgen.sampler.resolution import (
    Resolution,
    ResolvedNode,
    differentiated,
    input_specs,
    is_legal,
    output_specs,
    resolve,
)
from opsgen.sampler.table import Table
from opsgen.sampler.views import draw_text, to_networkx

__all__ = [
    "COMPOSITES",
    "Composite",
    "Line",
    "Plan",
    "Resolution",
    "ResolvedNode",
    "Sampled",
    "Table",
    "calibration_digest",
    "composite_of",
    "differentiated",
    "draw_text",
    "estimate",
    "family_hash",
    "graph_hash",
    "grow",
    "input_specs",
    "is_legal",
    "load_calibration",
    "num_ops",
    "output_specs",
    "pairs_digest",
    "resolve",
    "size_names",
    "task_id",
    "to_networkx",
    "workload",
]
