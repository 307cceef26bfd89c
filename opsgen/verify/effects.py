"""Whether every part of a task matters: nodes deleted and frozen, inputs and state redrawn.

Each change is made to one part alone, and the changed output is compared
with the true one at the task's own tolerance: see `comparison_margin`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from opsgen.records import Effect, Graph, Tolerance
from opsgen.verify.comparison import comparison_margin
from opsgen.verify.leaves import Inputs, Leaves, equal_bits, map_tensors, tensors_of
from opsgen.verify.reference import Reference
from opsgen.verify.running import TaskCodeError

Tolerances = tuple[Tolerance, ...]
TapFunction = Callable[[int, Any, tuple[Any, ...]], Any]
CLEAR_MARGIN = 2.0
"""A change this far outside the tolerance needs no second pair of draws."""


def input_effects(
    reference: Reference, draws: Iterable[tuple[Inputs, Inputs]], tolerances: Tolerances
) -> tuple[Effect, ...]:
    """Return what taking one input from another draw does, for each tensor input.

    An input that is the same in both draws is rolled by one element instead; one that stays
    the same even then shows nothing and is left out.

    Args:
        reference: The task.
        draws: Pairs of input draws: the first is run, the second lends single inputs.
        tolerances: The task's own.
    """
    pairs = [(inputs, other, reference.run(inputs)) for inputs, other in draws]
    inputs, other, _ = pairs[0]
    effects = []
    for position, name in enumerate(reference.input_names(inputs)):
        ours = tensors_of(inputs[position])
        is_fixed = equal_bits(ours, tensors_of(other[position]))
        if not ours or (is_fixed and equal_bits(ours, _rolled(ours))):
            continue
        margins = (
            _margin_of(reference, _exchanged(ours, theirs, position), output, tolerances)
            for ours, theirs, output in pairs
        )
        effects.append(_effect(f"input {name}", "rolled" if is_fixed else "redrawn", margins))
    return tuple(effects)


def state_effects(
    reference: Reference, inputs: Inputs, tolerances: Tolerances, seeds: tuple[int, int]
) -> tuple[Effect, ...]:
    """Return what redrawing one parameter or running statistic does, for each of them.

    Args:
        reference: The task, at the state of the first seed.
        inputs: What it runs on.
        tolerances: The task's own.
        seeds: Seed of the present state, which is restored, and of another one.
    """
    output = reference.run(inputs)
    parameters = dict(reference.model.named_parameters())
    effects = []
    for name in reference.state.names:
        reference.state.redraw(seeds[1], only=name)
        margin = _margin_of(reference, inputs, output, tolerances)
        reference.state.redraw(seeds[0], only=name)
        kind = "parameter" if name in parameters else "buffer"
        effects.append(_effect(f"{kind} {name}", "redrawn", [margin]))
    return tuple(effects)


def node_effects(
    tapped: Reference,
    graph: Graph,
    draws: Iterable[tuple[Inputs, Inputs]],
    tolerances: Tolerances,
) -> tuple[Effect, ...]:
    """Return what deleting and freezing each node does.

    A deleted node hands on an argument of its result's shape and dtype; with several such
    arguments the least effect counts, and without any the node is only frozen. A frozen node
    hands on what it computed for another draw; of a node with several results each is frozen
    alone. Where one pair of draws leaves doubt the next is tried, and the largest counts.

    Args:
        tapped: The task rendered with a tap at every node, at the state to be tried.
        graph: What was rendered.
        draws: Pairs of input draws: the first is run, the second lends frozen values.
        tolerances: The task's own.
    """
    records = [_record_pair(tapped, *pair) for pair in draws]
    effects = []
    for index, node in enumerate(graph.nodes):
        value_id = len(graph.inputs) + index
        subject = f"node {index} ({node.op})"
        margins = [_deleted(tapped, value_id, record, tolerances) for record in records[:1]]
        if margins[0] is not None:
            later = (_deleted(tapped, value_id, record, tolerances) for record in records[1:])
            effects.append(_effect(subject, "deleted", _present(margins, later)))
        num_results = len(_results(records[0].theirs[value_id][0]))
        for part in range(num_results):
            name = subject if num_results == 1 else f"{subject}[{part}]"
            frozen = (_frozen(tapped, value_id, part, record, tolerances) for record in records)
            effects.append(_effect(name, "frozen", frozen))
    return tuple(effects)


class _Record:
    """One pair of draws, run: the first's inputs and outputs, both draws' node values."""

    def __init__(self, inputs: Inputs, output: Leaves, ours: _Values, theirs: _Values) -> None:
        self.inputs = inputs
        self.output = output
        self.ours = ours
        self.theirs = theirs


_Values = dict[int, tuple[Any, tuple[Any, ...]]]


def _record_pair(tapped: Reference, inputs: Inputs, other: Inputs) -> _Record:
    ours: _Values = {}
    theirs: _Values = {}
    output = _run_tapped(tapped, inputs, _recorder(ours))
    _run_tapped(tapped, other, _recorder(theirs))
    return _Record(inputs, output, ours, theirs)


def _recorder(values: _Values) -> TapFunction:
    def record(value_id: int, result: Any, args: tuple[Any, ...]) -> Any:
        values[value_id] = (result, args)
        return result

    return record


def _run_tapped(tapped: Reference, inputs: Inputs, tap: TapFunction) -> Leaves:
    tapped.module.__dict__["tap"] = tap
    return tapped.run(inputs)


def _replacing(target: int, change: Callable[[Any, tuple[Any, ...]], Any]) -> TapFunction:
    def replace(value_id: int, result: Any, args: tuple[Any, ...]) -> Any:
        return change(result, args) if value_id == target else result

    return replace


class _Pass:
    """Hands on the argument at one position instead of the result."""

    def __init__(self, position: int) -> None:
        self._position = position

    def __call__(self, _result: Any, args: tuple[Any, ...]) -> Any:
        return args[self._position]


def _deleted(
    tapped: Reference, value_id: int, record: _Record, tolerances: Tolerances
) -> float | None:
    result, args = record.ours[value_id]
    fitting = [i for i, arg in enumerate(args) if _fits(arg, result)]
    margins = []
    for position in fitting:
        tap = _replacing(value_id, _Pass(position))
        margins.append(_tapped_margin(tapped, record, tap, tolerances))
    return min(margins, default=None)


def _frozen(
    tapped: Reference, value_id: int, part: int, record: _Record, tolerances: Tolerances
) -> float:
    stored = _results(record.theirs[value_id][0])[part]

    def freeze(result: Any, _args: tuple[Any, ...]) -> Any:
        leaves, layout = pytree.tree_flatten(result)
        leaves[part] = stored
        return pytree.tree_unflatten(leaves, layout)

    return _tapped_margin(tapped, record, _replacing(value_id, freeze), tolerances)


def _tapped_margin(
    tapped: Reference, record: _Record, tap: TapFunction, tolerances: Tolerances
) -> float:
    try:
        changed = _run_tapped(tapped, record.inputs, tap)
    except TaskCodeError as error:
        return _Broken(error.failure.kind)
    return comparison_margin(changed, record.output, tolerances)


def _margin_of(
    reference: Reference, inputs: Inputs, output: Leaves, tolerances: Tolerances
) -> float:
    try:
        changed = reference.run(inputs)
    except TaskCodeError as error:
        return _Broken(error.failure.kind)
    return comparison_margin(changed, output, tolerances)


class _Broken(float):
    """The infinite margin of a change that the rest cannot do without; remembers what it raised."""

    def __new__(cls, kind: str) -> _Broken:
        margin = super().__new__(cls, math.inf)
        margin.kind = kind
        return margin

    kind: str


def _effect(subject: str, change: str, margins: Iterable[float]) -> Effect:
    largest = 0.0
    for margin in margins:
        largest = max(largest, margin)
        if largest >= CLEAR_MARGIN:
            break
    raised = largest.kind if isinstance(largest, _Broken) else None
    return Effect(subject=subject, change=change, margin=float(largest), raised=raised)


def _present(*groups: Iterable[float | None]) -> Iterator[float]:
    for group in groups:
        yield from (margin for margin in group if margin is not None)


def _exchanged(inputs: Inputs, other: Inputs, position: int) -> Inputs:
    changed = other[position]
    if equal_bits(tensors_of(changed), tensors_of(inputs[position])):
        (changed,) = map_tensors(_roll, (changed,))
    return (*inputs[:position], changed, *inputs[position + 1 :])


def _rolled(leaves: Leaves) -> Leaves:
    return tuple(_roll(leaf) for leaf in leaves)


def _roll(tensor: Tensor) -> Tensor:
    return tensor.roll(1)


def _results(result: Any) -> list[Any]:
    return pytree.tree_leaves(result)


def _fits(argument: Any, result: Any) -> bool:
    return (
        isinstance(argument, Tensor)
        and isinstance(result, torch.Tensor)
        and argument.shape == result.shape
        and argument.dtype == result.dtype
    )
