"""Sources rewritten so that they mean the same, by means of their own: tokens and text."""

from __future__ import annotations

import ast
import io
import keyword
import random
import re
import tokenize

_KEPT = {"Model", "get_inputs", "get_init_inputs", "forward", "self", "super", "torch", "nn", "F"}


def own_names(code: str) -> set[str]:
    """Return locals, arguments, attributes of self and module-level names that may be renamed."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.attr)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
    return {name for name in names - _KEPT if not name.startswith("__")}


def rename(code: str, rng: random.Random) -> str:
    """Return the source with all of its own names replaced, each by one fresh name."""
    names = sorted(own_names(code))
    fresh = [f"{rng.choice('abkqz')}{number}_" for number in range(len(names))]
    rng.shuffle(fresh)
    mapping = dict(zip(names, fresh, strict=True))
    tokens = list(tokenize.generate_tokens(io.StringIO(code).readline))
    depth, result = 0, []
    for place, token in enumerate(tokens):
        text = token.string
        depth += (text in "([{" and bool(text)) - (text in ")]}" and bool(text))
        before = tokens[place - 1].string
        is_member = before == "." and tokens[place - 2].string != "self"
        is_keyword = depth > 0 and tokens[place + 1].string == "=" if text else False
        if token.type == tokenize.NAME and not (is_member or is_keyword or keyword.iskeyword(text)):
            text = mapping.get(text, text)
        result.append((token.type, text))
    return tokenize.untokenize(result)


def respell_imports(code: str) -> str:
    """Return the source with torch's parts imported another way."""
    code = code.replace("import torch.nn as nn\n", "from torch import nn\n")
    if "import torch.nn.functional as F\n" in code:
        code = code.replace("import torch.nn.functional as F\n", "")
        code = re.sub(r"\bF\.", "torch.nn.functional.", code)
    return code


def reorder_sizes(code: str, rng: random.Random) -> str:
    """Return the source with its module-level numbers in another order, ahead of the class."""
    pattern = re.compile(r"^\w+ = \d+\n", re.MULTILINE)
    sizes = pattern.findall(code)
    rng.shuffle(sizes)
    head, tail = pattern.sub("", code).split("\n\n\n", 1)
    return f"{head}\n\n{''.join(sizes)}\n\n{tail}"


def relayout(code: str, rng: random.Random) -> str:
    """Return the source as `ast` writes it, with comments, docstrings and blank lines."""
    lines = []
    for line in ast.unparse(ast.parse(code)).splitlines():
        lines.append(line + f"  # note {rng.randrange(99)}")
        if line.lstrip().startswith(("def ", "class ")):
            lines.append(" " * (len(line) - len(line.lstrip()) + 4) + '"""What it does."""')
        lines += [""] * rng.randrange(2)
    return "\n".join(lines) + "\n"


def annotate(code: str) -> str:
    """Return the source with types on the arguments of forward and what it returns."""

    def typed(match: re.Match[str]) -> str:
        args = [f"{arg}: torch.Tensor" for arg in match[1].split(", ")]
        return f"def forward(self, {', '.join(args)}) -> torch.Tensor:"

    return re.sub(r"def forward\(self, ([\w, ]+)\):", typed, code)


def disguise(code: str, rng: random.Random) -> str:
    """Return the source with everything changed that its author was free in."""
    code = annotate(reorder_sizes(respell_imports(code), rng))
    return relayout(rename(code, rng), rng)


def resize(code: str, rng: random.Random) -> str:
    """Return the source with other module-level numbers."""
    return re.sub(
        r"^(\w+ = )(\d+)$",
        lambda found: found[1] + str(int(found[2]) + rng.randrange(1, 4096)),
        code,
        flags=re.MULTILINE,
    )


def add_identity(code: str) -> str:
    """Return the source with one line more, which gives the first input to itself."""

    def padded(match: re.Match[str]) -> str:
        name = match[2].split(", ")[0]
        return f"{match[0]}\n        {name} = {name}.contiguous()"

    return re.sub(r"(def forward\(self, )([\w, ]+)\):", padded, code)
