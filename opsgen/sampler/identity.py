"""What makes two graphs the same: a canonical form, its hash, and families.

The form ignores names, spellings, sizes and the order of commutative
arguments, and changes with any op, edge, attribute, dtype or order in memory. A bottom-up
Merkle hash orders commutative arguments; values get their numbers in the
order of a walk from the outputs, so that a value used twice differs from two
equal ones. Where two arguments hash alike both orders are tried.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from itertools import product

import msgspec

from opsgen.ops import CATALOGUE
from opsgen.records import Graph, Input, Node

_SIZE_NAME = re.compile(r"[a-z_][a-z_0-9]*")


def graph_hash(graph: Graph) -> str:
    """Return 24 hex digits that identify a graph without its sizes."""
    return _hash(_canonical(graph, with_attrs=True))


def family_hash(graph: Graph) -> str:
    """Return 16 hex digits that near-duplicates share: the graph with attributes abstracted."""
    return _hash(_canonical(graph, with_attrs=False))[:16]


def task_id(graph: Graph, sizes: dict[str, int], graph_hash: str) -> str:
    """Return the identity of a sampled task: its graph, by its hash, and its default workload."""
    workload = _hash(msgspec.json.encode(_renamed_sizes(graph, sizes)))
    return f"{graph_hash[:16]}-{workload[:8]}"


def _renamed_sizes(graph: Graph, sizes: dict[str, int]) -> list[int]:
    # In the order in which the graph mentions them, so that names do not matter.
    return [sizes[name] for name in size_names(graph)]


def size_names(graph: Graph) -> list[str]:
    """Return the names of the sizes that a graph uses, in order of first mention."""
    names: dict[str, None] = {}
    for known in graph.inputs:
        for dim in (*known.dims, known.high):
            if isinstance(dim, str):
                names.update(dict.fromkeys(_SIZE_NAME.findall(dim)))
    for node in graph.nodes:
        for size in node.sizes.values():
            if isinstance(size, str):
                names.update(dict.fromkeys(_SIZE_NAME.findall(size)))
    return list(names)


def _hash(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=12).hexdigest()


def _canonical(graph: Graph, *, with_attrs: bool) -> bytes:
    labels = _labels(graph, with_attrs)
    orders = [_orders(graph, node, labels) for node in graph.nodes]
    forms = (_walk(graph, choice, with_attrs) for choice in product(*orders))
    return min(msgspec.json.encode(form, order="sorted") for form in forms)


def _labels(graph: Graph, with_attrs: bool) -> list[str]:
    """Merkle labels of all values: equal for values that are computed alike."""
    labels = [
        _hash(msgspec.json.encode([*_traits(known), _pattern(known.dims, {})]))
        for known in graph.inputs
    ]
    for node in graph.nodes:
        args = [labels[arg] for arg in node.args]
        if "commutative" in CATALOGUE[node.op].props:
            args[:2] = sorted(args[:2])
        attrs = node.attrs if with_attrs else None
        labels.append(_hash(msgspec.json.encode([node.op, args, attrs], order="sorted")))
    return labels


def _orders(graph: Graph, node: Node, labels: list[str]) -> list[tuple[int, ...]]:
    args = node.args
    if "commutative" not in CATALOGUE[node.op].props or len(args) < 2:
        return [args]
    swapped = (args[1], args[0], *args[2:])
    first, second = labels[args[0]], labels[args[1]]
    if first == second:
        return [args, swapped]
    return [args if first < second else swapped]


def _walk(graph: Graph, args_of: tuple[tuple[int, ...], ...], with_attrs: bool) -> list[object]:
    num_inputs = len(graph.inputs)
    numbers: dict[int, int] = {}
    sizes: dict[str, str] = {}
    rows: list[object] = [graph.dtype, graph.grad_output is not None]

    def visit(value: int) -> Iterator[int]:
        if value in numbers:
            return
        if value >= num_inputs:
            for arg in args_of[value - num_inputs]:
                yield from visit(arg)
        numbers[value] = len(numbers)
        yield value

    for output in graph.outputs:
        for value in visit(output):
            if value < num_inputs:
                known = graph.inputs[value]
                rows.append(["input", *_traits(known), _pattern(known.dims, sizes)])
            else:
                node = graph.nodes[value - num_inputs]
                args = [numbers[arg] for arg in args_of[value - num_inputs]]
                rows.append([node.op, args, node.attrs if with_attrs else None])
    rows.append([numbers[output] for output in graph.outputs])
    return rows


def _traits(known: Input) -> list[str]:
    return [known.dtype, known.draw, known.layout]


def _pattern(dims: tuple[int | str, ...], sizes: dict[str, str]) -> list[int | str]:
    """Rename sizes by first mention, so that equal dims stay visible and names do not."""

    def rename(match: re.Match[str]) -> str:
        return sizes.setdefault(match.group(), f"s{len(sizes)}")

    return [dim if isinstance(dim, int) else _SIZE_NAME.sub(rename, dim) for dim in dims]
