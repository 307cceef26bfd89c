"""Rules that a task's code must keep, read off its syntax tree without running it.

One function per rule, one line per rule in `RULES`. Each yields the lines it
objects to with a witness; an empty answer means that the code may be run.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from opsgen.records import SourceFault

Breach = tuple[int, str]
Rule = Callable[[ast.Module], Iterator[Breach]]

ALLOWED_IMPORTS = frozenset(
    {"__future__", "collections", "dataclasses", "functools", "itertools", "math", "torch"}
    | {"typing"}
)
DENIED_IMPORTS = (
    "torch.distributed",
    "torch.hub",
    "torch.multiprocessing",
    "torch.package",
    "torch.utils.cpp_extension",
    "torch.utils.data",
)
DENIED_NAMES = frozenset(
    {"__builtins__", "__import__", "breakpoint", "ctypes", "eval", "exec", "exit", "globals"}
    | {"importlib", "locals", "open", "os", "pathlib", "pickle", "print", "quit", "shutil"}
    | {"socket", "subprocess", "sys", "threading", "urllib"}
)
DENIED_ATTRIBUTES = frozenset(
    {"__bases__", "__builtins__", "__class__", "__code__", "__dict__", "__globals__"}
    | {"__loader__", "__mro__", "__subclasses__", "cpp_extension", "hub", "load_library"}
    | {"load_inline"}
)
# Denied as calls only: both are common names of arguments.
DENIED_CALLS = frozenset({"compile", "input"})
DENIED_FUNCTIONS = frozenset(
    {"torch.load", "torch.save", "torch.from_file", "torch.compile", "torch.manual_seed"}
    | {"torch.set_default_device", "torch.set_default_dtype", "torch.use_deterministic_algorithms"}
)
RANDOM_CALLS = frozenset(
    {"bernoulli", "bernoulli_", "cauchy_", "dropout_", "exponential_", "geometric_"}
    | {"gumbel_softmax", "log_normal_", "multinomial", "normal", "normal_", "poisson", "rand"}
    | {"rand_like", "randint", "randint_like", "randn", "randn_like", "random_", "randperm"}
    | {"rrelu", "rrelu_", "uniform_"}
)
DROPOUT_CALLS = frozenset(
    {"alpha_dropout", "dropout", "dropout1d", "dropout2d", "dropout3d", "feature_alpha_dropout"}
)
ENTRY_POINTS = ("get_inputs", "get_init_inputs")
_TOP_LEVEL = (ast.Import, ast.ImportFrom, ast.ClassDef, ast.FunctionDef, ast.Assign, ast.AnnAssign)


def check_source(code: str) -> tuple[SourceFault, ...]:
    """Return every rule that `code` breaks; nothing of it is run."""
    if "```" in code:
        line = code[: code.index("```")].count("\n") + 1
        return (SourceFault(rule="prose", line=line, witness="code fence"),)
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None) or 1
        return (SourceFault(rule="parses", line=line, witness=str(error).partition("\n")[0]),)
    return tuple(
        SourceFault(rule=name, line=line, witness=witness)
        for name, rule in RULES.items()
        for line, witness in rule(tree)
    )


def _one_model(tree: ast.Module) -> Iterator[Breach]:
    models = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Model"]
    if len(models) != 1:
        yield (models[1].lineno if models else 1), f"{len(models)} classes named Model"
    for model in models[:1]:
        if not any(_dotted(base).endswith("Module") for base in model.bases):
            yield model.lineno, "Model does not derive from nn.Module"
        for name in ("__init__", "forward"):
            count = sum(isinstance(n, ast.FunctionDef) and n.name == name for n in model.body)
            if count > 1 or (count == 0 and name == "forward"):
                yield model.lineno, f"{count} definitions of {name} in Model"


def _entry_points(tree: ast.Module) -> Iterator[Breach]:
    for name in ENTRY_POINTS:
        count = sum(isinstance(n, ast.FunctionDef) and n.name == name for n in tree.body)
        if count != 1:
            yield 1, f"{count} definitions of {name}"


def _top_level(tree: ast.Module) -> Iterator[Breach]:
    for node in tree.body:
        is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not is_docstring and not isinstance(node, _TOP_LEVEL):
            yield node.lineno, f"{type(node).__name__} statement at module level"


def _imports(tree: ast.Module) -> Iterator[Breach]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            names = [f"{base}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            is_allowed = name.partition(".")[0] in ALLOWED_IMPORTS
            if not is_allowed or any(f"{name}.".startswith(f"{d}.") for d in DENIED_IMPORTS):
                yield node.lineno, f"import of {name}"


def _denied(tree: ast.Module) -> Iterator[Breach]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in DENIED_NAMES:
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute):
            dotted = _dotted(node)
            if node.attr in DENIED_ATTRIBUTES or dotted in DENIED_FUNCTIONS:
                yield node.lineno, dotted
        elif isinstance(node, ast.Call) and _dotted(node.func) in DENIED_CALLS:
            yield node.lineno, _dotted(node.func)


def _random_forward(tree: ast.Module) -> Iterator[Breach]:
    for node in ast.walk(tree):
        if not (isinstance(node, ast.FunctionDef) and node.name == "forward"):
            continue
        for call in ast.walk(node):
            if isinstance(call, ast.Call) and _draws(call):
                yield call.lineno, _dotted(call.func)


RULES: dict[str, Rule] = {
    "one_model": _one_model,
    "entry_points": _entry_points,
    "top_level": _top_level,
    "imports": _imports,
    "denied_name": _denied,
    "random_forward": _random_forward,
}


def _draws(call: ast.Call) -> bool:
    name = _dotted(call.func)
    last = name.rpartition(".")[2]
    if name.startswith("self.") and not last.endswith("_"):
        return False  # a submodule that happens to bear such a name
    if last in RANDOM_CALLS:
        return True
    if last not in DROPOUT_CALLS:
        return False
    # Functional dropout drops by default: only an explicit mode makes it safe.
    modes = [word.value for word in call.keywords if word.arg == "training"] + call.args[2:3]
    return not any(
        (isinstance(mode, ast.Constant) and mode.value is False) or _dotted(mode) == "self.training"
        for mode in modes
    )


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return ""
