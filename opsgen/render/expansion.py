"""Templates of catalogue entries, expanded for one node of a graph."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable

from opsgen.ops import Attrs, Dim
from opsgen.sampler import ResolvedNode

_PLACEHOLDER = re.compile(r"\{(\.\.\.|\w+)\}")
_ARGUMENT_NAMES = ("x", "y", "z", "w", "v")


def literal(value: object) -> str:
    """Return a Python literal in the form black gives it."""
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, tuple):
        inner = ", ".join(literal(item) for item in value)
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, float) and math.isinf(value):
        return 'float("inf")' if value > 0 else 'float("-inf")'
    return repr(value)


class Expansion:
    """Expands the templates of one node.

    Args:
        node: The node resolved with sizes that are `Dim`s, so that expressions survive.
        write_size: Gets a placeholder's name and a size; returns what the source writes.
    """

    def __init__(self, node: ResolvedNode, write_size: Callable[[str, Dim], str]) -> None:
        self._op = node.op
        self._write_size = write_size
        first = node.ins[0]
        self._values: Attrs = {
            "D": first[-1] if first else 1,
            "C": first[1] if len(first) > 1 else 1,
            **node.attrs,
            **node.op.refs(node.ins, node.attrs),
        }

    def expand(self, template: str, args: tuple[str, ...], module: str, dtype: str) -> str:
        """Fill a template in.

        Args:
            template: Of a call or a constructor; see `opsgen.ops.Spelling`.
            args: Variables that hold the node's tensors.
            module: What `{self}` stands for.
            dtype: What `{dtype}` stands for: empty or `, dtype=...`.
        """
        fixed = {"self": module, "dtype": dtype, **dict(zip(_ARGUMENT_NAMES, args, strict=False))}

        def fill(match: re.Match[str]) -> str:
            name = match.group(1)
            if name == "...":
                return self._options()
            return fixed[name] if name in fixed else self._write(name, self._values[name])

        return _PLACEHOLDER.sub(fill, template).replace("(, ", "(")

    def _write(self, name: str, value: object) -> str:
        if isinstance(value, Dim):
            return self._write_size(name, value)
        if isinstance(value, tuple) and any(isinstance(item, Dim) for item in value):
            inner = ", ".join(self._write(name, item) for item in value)
            return f"({inner},)" if len(value) == 1 else f"({inner})"
        return literal(value)

    def _options(self) -> str:
        written = ""
        for name, default in self._op.defaults.items():
            value = self._values[name]
            # True == 1 in Python, but not to a reader.
            if value != default or type(value) is not type(default):
                written += f", {name}={self._write(name, value)}"
        return written
