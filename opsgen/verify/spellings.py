"""Whether a task's declared ops are what ran: catalogue spellings against a recording."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass

from opsgen.ops import CATALOGUE, Spelling
from opsgen.records import Graph, Task
from opsgen.verify.declared import describe_declared
from opsgen.verify.recording import Call, Recording, record_calls
from opsgen.verify.reference import Reference, task_module
from opsgen.verify.running import task_code

_PLACEHOLDER = re.compile(r"\{(\.\.\.|\w+)\}")
_TENSORS = frozenset("xyzwv")
_NOT_TENSORS = frozenset(("shape", "device", "dtype", "ndim"))
_ROOTS = {"torch": "torch", "F": "torch.nn.functional"}
_INFIX: dict[type[ast.AST], str] = {
    ast.Add: "torch.add",
    ast.Sub: "torch.sub",
    ast.Mult: "torch.mul",
    ast.Div: "torch.div",
    ast.FloorDiv: "torch.floor_divide",
    ast.Mod: "torch.remainder",
    ast.Pow: "torch.pow",
    ast.MatMult: "torch.matmul",
    ast.USub: "torch.neg",
    ast.Eq: "torch.eq",
    ast.NotEq: "torch.ne",
    ast.Lt: "torch.lt",
    ast.LtE: "torch.le",
    ast.Gt: "torch.gt",
    ast.GtE: "torch.ge",
}


def check_ops(task: Task) -> str | None:
    """Return how what runs differs from what `task` declares, or None; see `describe_calls`.

    The code runs on `meta` at its default workload.

    Raises:
        TaskCodeError: It does not run there.
    """
    with task_module(task.code) as module:
        reference = Reference.build(module, "meta", 0)
        inputs = reference.draw(0)
        with task_code("meta"):
            recording = record_calls(reference.model, inputs)
    return describe_calls(task, recording)


def describe_calls(task: Task, recording: Recording) -> str | None:
    """Return how a recording of `task` differs from its declared ops, or None.

    Of a task with a graph the calls must be those that the spellings of its nodes are written
    with, in their order, and no aten op may compute outside of them. Unless it is a composite,
    which is one name for many nodes, each declared op must be its node's, be called and
    dispatch something; what else its spelling calls may move elements, make constants or
    return from complex numbers, and no more. Of foreign code see `describe_declared`.
    """
    if task.graph is None:
        return describe_declared(task.ops, recording)
    if recording.loose:
        return f"{recording.loose[0]} computes outside of every call"
    if task.origin is not None:  # a composite
        return _describe_order(task.graph, recording.calls)
    spelled = tuple(_spelling_of(task.graph, index).name for index in range(len(task.graph.nodes)))
    if task.ops != spelled:
        return f"declared are {_listed(task.ops)}, the graph's nodes are {_listed(spelled)}"
    return _describe_order(task.graph, recording.calls) or _describe_work(
        task.graph, recording.calls
    )


@dataclass(frozen=True, slots=True)
class _Expected:
    """One call that the spelling of a node is written with."""

    node: int
    name: str
    is_declared: bool


def _expected(graph: Graph) -> Iterator[_Expected]:
    for index in range(len(graph.nodes)):
        spelling = _spelling_of(graph, index)
        for name in spelled_calls(spelling):
            yield _Expected(index, name, name == spelling.name)


def _describe_order(graph: Graph, calls: tuple[Call, ...]) -> str | None:
    expected = tuple(_expected(graph))
    for place, (call, wanted) in enumerate(zip(calls, expected, strict=False)):
        if wanted.name not in call.names:
            return (
                f"call {place} is {call.names[0]}, not {wanted.name} of node {wanted.node} "
                f"({graph.nodes[wanted.node].op})"
            )
    if len(calls) < len(expected):
        return f"{expected[len(calls)].name} is not called"
    if len(calls) > len(expected):
        return f"call {len(expected)}, {calls[len(expected)].names[0]}, belongs to no node"
    return None


def _describe_work(graph: Graph, calls: tuple[Call, ...]) -> str | None:
    seen: set[int] = set()
    for call, wanted in zip(calls, _expected(graph), strict=True):
        if not wanted.is_declared and call.computes:
            return f"{wanted.name} computes beside the op of node {wanted.node}"
        if wanted.is_declared and not call.aten:
            return f"{wanted.name} of node {wanted.node} dispatches nothing"
        if wanted.is_declared:
            seen.add(wanted.node)
    for index in range(len(graph.nodes)):
        if index not in seen:
            return f"{_spelling_of(graph, index).name} of node {index} is not called"
    return None


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names)


def _spelling_of(graph: Graph, index: int) -> Spelling:
    node = graph.nodes[index]
    return CATALOGUE[node.op].spellings[node.spelling]


@functools.cache
def spelled_calls(spelling: Spelling) -> tuple[str, ...]:
    """Return the qualified names of the calls and operators on tensors in a spelling.

    In the order in which Python evaluates them. Indexing and properties are no calls.
    """
    written = _PLACEHOLDER.sub(_fill, spelling.call)
    reader = _Reader(spelling)
    reader.read(ast.parse(written, mode="eval").body)
    return tuple(reader.names)


def _fill(match: re.Match[str]) -> str:
    return "" if match[1] == "..." else "module" if match[1] == "self" else match[1]


class _Reader:
    """Reads an expression in the order of its evaluation; `read` tells what gives a tensor."""

    def __init__(self, spelling: Spelling) -> None:
        self.names: list[str] = []
        self._init = spelling.init or ""

    def read(self, node: ast.AST) -> bool:
        if isinstance(node, ast.Call):
            return self._call(node)
        if isinstance(node, ast.Attribute):
            return self.read(node.value) and node.attr not in _NOT_TENSORS
        if isinstance(node, ast.Name):
            return node.id in _TENSORS
        if isinstance(node, ast.Subscript):
            is_tensor = self.read(node.value)
            self.read(node.slice)
            return is_tensor
        found = [self.read(child) for child in ast.iter_child_nodes(node)]
        for name in self._operators(node, is_reversed=not found[0]) if any(found) else ():
            self.names.append(name)
        return any(found)

    def _call(self, node: ast.Call) -> bool:
        name = self._function(node.func)
        for argument in (*node.args, *node.keywords):
            self.read(argument)
        self.names += name
        return bool(name)

    def _function(self, node: ast.expr) -> list[str]:
        if isinstance(node, ast.Name):
            made = self._init.partition("(")[0].removeprefix("nn.")
            return [f"torch.nn.{made}"] if node.id == "module" else []  # such as float("inf")
        assert isinstance(node, ast.Attribute)
        head, _, rest = ast.unparse(node).partition(".")
        if head in _ROOTS and "(" not in rest:
            return [f"{_ROOTS[head]}.{rest}"]
        self.read(node.value)
        return [f"torch.Tensor.{node.attr}"]

    def _operators(self, node: ast.AST, *, is_reversed: bool) -> list[str]:
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub) and is_reversed:
            return ["torch.rsub"]
        if isinstance(node, ast.BinOp | ast.UnaryOp):
            return [_INFIX[type(node.op)]]
        return [_INFIX[type(op)] for op in node.ops] if isinstance(node, ast.Compare) else []
