"""A graph as self-contained source in the KernelBench form.

`Model`, `get_inputs`, `get_init_inputs` and module-level sizes, in the form
black would give it; no seeds and no device, so that harnesses choose both.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from opsgen.ops import DRAWS, Dim
from opsgen.records import Graph, Input
from opsgen.render.expansion import Expansion
from opsgen.render.lines import fit_line
from opsgen.sampler import ResolvedNode, differentiated, resolve

_FULL_NAMES = {"C": "num_channels", "D": "num_features"}


def render_source(graph: Graph, sizes: dict[str, int]) -> str:
    """Return the source of a graph with `sizes` as its module-level sizes."""
    return _Writer(graph, sizes, is_tapped=False).write()


def render_tapped(graph: Graph, sizes: dict[str, int]) -> str:
    """Return the same source with every node passed through a global `tap`.

    `tap(value, result, args)` gets the node's value id (inputs count from 0,
    nodes follow), its result and its tensor arguments, and returns what
    `forward` goes on with. Attribute names equal those of `render_source`, so
    a state_dict of one loads into the other.
    """
    return _Writer(graph, sizes, is_tapped=True).write()


@dataclass
class _Module:
    """What the constructor needs: parameters with their values, and its statements."""

    params: dict[str, str] = field(default_factory=dict)
    statements: list[str] = field(default_factory=list)
    stored: dict[str, None] = field(default_factory=dict)


class _Writer:
    def __init__(self, graph: Graph, sizes: dict[str, int], *, is_tapped: bool) -> None:
        self.graph = graph
        self.sizes = sizes
        self.is_tapped = is_tapped
        self.module = _Module()
        dims: dict[str, int] = {name: Dim.named(name, value) for name, value in sizes.items()}
        self.nodes = resolve(graph, dims).nodes
        self.dtype = "" if graph.dtype == "float32" else f", dtype=torch.{graph.dtype}"

    def write(self) -> str:
        forward = self._forward()
        body = "\n".join(forward)
        blocks = [
            [
                "import torch",
                "import torch.nn as nn",
                *(["import torch.nn.functional as F"] if "F." in body else []),
            ],
            ["", "class Model(nn.Module):", *self._constructor(), "", *forward],
            ["", *[f"{name} = {value}" for name, value in self.sizes.items()]],
            ["", "def get_inputs():", *self._inputs()],
            [
                "",
                "def get_init_inputs():",
                f"    return [{', '.join(self.module.params.values())}]",
            ],
        ]
        lines = [line for block in blocks for line in ("", *block)][1:]
        return "\n".join(split for line in lines for split in fit_line(line)) + "\n"

    def _constructor(self) -> list[str]:
        params = ", ".join(("self", *self.module.params))
        stored = [f"        self.{name} = {name}" for name in self.module.stored]
        return [
            f"    def __init__({params}):",
            "        super().__init__()",
            *stored,
            *self.module.statements,
        ]

    def _inputs(self) -> list[str]:
        statements = [line for known in self.graph.inputs for line in self._draw(known)]
        names = ", ".join(known.name for known in self.graph.inputs)
        return [*statements, f"    return [{names}]"]

    def _draw(self, known: Input) -> list[str]:
        dims = [str(dim) for dim in known.dims]
        if known.layout == "transposed":
            dims[-2:] = dims[:-3:-1]
        source = DRAWS[known.draw].source
        if len(dims) != 1:
            # A trailing comma behind several elements would make black split the call.
            source = source.replace("({shape},)", "({shape})")
        shape = ", ".join(dims) if dims else "()"
        made = source.format(shape=shape, dtype=self.dtype, high=known.high)
        statements = [f"    {known.name} = {made}"]
        if known.layout == "transposed":
            statements.append(f"    {known.name} = {known.name}.transpose(-2, -1)")
        elif known.layout == "channels_last":
            name = "channels_last" if len(dims) == 4 else "channels_last_3d"
            cast = f"{known.name}.to(memory_format=torch.{name})"
            statements.append(f"    {known.name} = {cast}")
        return statements

    def _forward(self) -> list[str]:
        names = {place: known.name for place, known in enumerate(self.graph.inputs)}
        head = f"    def forward({', '.join(('self', *names.values()))}):"
        if self.graph.grad_output is None:
            return [head, *self._statements(names)]
        gradient = names.pop(self.graph.grad_output)
        wanted = [names[place] for place in differentiated(self.graph)]
        body = [f"    {line}" for line in self._statements(names)]
        inner = [f"        def compute({', '.join(wanted)}):", *body, ""]
        return [head, *inner, *self._backward(wanted, gradient)]

    def _backward(self, wanted: list[str], gradient: str) -> list[str]:
        """Return the statements that pull `gradient` back through `compute`."""
        args, grads = ", ".join(wanted), ", ".join(f"{name}_grad" for name in wanted)
        unpacked = f"({grads},)" if len(wanted) == 1 else grads
        if not self.is_tapped:
            return [
                f"        _, pullback = torch.func.vjp(compute, {args})",
                f"        {unpacked} = pullback({gradient})",
                f"        return {grads}",
            ]
        # A tap sees plain tensors here, which it may keep and hand out later.
        leaves = ", ".join(f"{name}.detach().requires_grad_()" for name in wanted)
        return [
            "        with torch.enable_grad():",
            f"            leaves = ({leaves},)",
            "            output = compute(*leaves)",
            f"            {unpacked} = torch.autograd.grad(output, leaves, {gradient})",
            f"        return {grads}",
        ]

    def _statements(self, inputs: dict[int, str]) -> list[str]:
        names = dict(inputs)
        taken = {known.name for known in self.graph.inputs}
        last_use = {arg: step for step, node in enumerate(self.graph.nodes) for arg in node.args}
        statements: list[str] = []
        for step, node in enumerate(self.nodes):
            value = len(self.graph.inputs) + step
            call = self._call(step, node, tuple(names[arg] for arg in node.args))
            if self.is_tapped:
                args = ", ".join(names[arg] for arg in node.args)
                call = f"tap({value}, {call}, ({args},))"
            if (value,) == self.graph.outputs and step == len(self.nodes) - 1:
                return [*statements, f"        return {call}"]
            free = last_use[node.args[0]] == step and node.args[0] not in self.graph.outputs
            names[value] = names[node.args[0]] if free else _fresh_name(taken)
            taken.add(names[value])
            statements.append(f"        {names[value]} = {call}")
        returned = ", ".join(names[output] for output in self.graph.outputs)
        return [*statements, f"        return {returned}"]

    def _call(self, step: int, node: ResolvedNode, args: tuple[str, ...]) -> str:
        spelling = node.op.spellings[self.graph.nodes[step].spelling]
        module = self._module_name(step) if spelling.init else ""
        if spelling.init:
            made = Expansion(node, self._parameter).expand(spelling.init, (), "", self.dtype)
            self.module.statements.append(f"        {module} = {made}")
        return Expansion(node, self._stored).expand(spelling.call, args, module, self.dtype)

    def _module_name(self, step: int) -> str:
        names = [node.label or node.op for node in self.graph.nodes[: step + 1]]
        number = names.count(names[-1])
        return f"self.{names[-1]}" if number == 1 else f"self.{names[-1]}_{number}"

    def _parameter(self, placeholder: str, size: Dim) -> str:
        """Return the constructor's parameter that holds a size, made if need be."""
        source = size.expression
        params = self.module.params
        for name, known in params.items():
            if known == source:
                return name
        name = source if source in self.sizes else _FULL_NAMES.get(placeholder, placeholder)
        unique, number = name, 2
        while unique in params or (unique in self.sizes and unique != source):
            unique, number = f"{name}_{number}", number + 1
        params[unique] = source
        return unique

    def _stored(self, placeholder: str, size: Dim) -> str:
        name = self._parameter(placeholder, size)
        self.module.stored[name] = None
        return f"self.{name}"


def _fresh_name(taken: set[str]) -> str:
    number = 1
    while f"h{number}" in taken:
        number += 1
    return f"h{number}"
