"""Other names and other ways to import hide no breach and make none; sampled tasks break no rule."""

import ast
import keyword
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsgen.source import RULES, check_source

# A call, in terms of a torch function, and the rule that it breaks.
BREACHES = {
    "torch.rand_like": ("y = self.linear(x) + {f}(x)", "random_forward"),
    "torch.nn.functional.dropout": ("y = {f}(self.linear(x), 0.5)", "functional_dropout"),
    "torch.nn.functional.gumbel_softmax": ("y = {f}(self.linear(x))", "hidden_randomness"),
    "torch.ones": ("y = self.linear(x) + {f}(16)", "host_tensors"),
    "torch.nonzero": ("y = {f}(self.linear(x))", "data_shapes"),
    "torch.compiler.is_compiling": ("y = self.linear(x) if {f}() else x", "mode_dependence"),
    "torch.load": ("y = self.linear({f}('x'))", "denied_name"),
}
HONEST = {
    "torch.relu": "y = self.linear({f}(x))",
    "torch.nn.functional.gelu": "y = {f}(self.linear(x))",
    "torch.ones_like": "y = self.linear(x) * {f}(x)",
}
names = st.from_regex(r"[a-z_][a-z0-9_]{2,8}", fullmatch=True).filter(
    lambda name: (
        not keyword.iskeyword(name)
        and name.strip("_")
        and name not in {"self", "torch", "open", "exec", "eval", "vars", "exit", "quit", "help"}
        and name not in {"input", "globals", "locals", "delattr", "compile", "breakpoint"}
    )
)


@st.composite
def spellings(draw, path):
    """Draw lines for the module, lines for forward and an expression that all mean `path`."""
    package, _, function = path.rpartition(".")
    first, second, third = draw(st.lists(names, min_size=3, max_size=3, unique=True))
    parent, _, child = package.rpartition(".")
    forms = [
        (f"import {package} as {first}", f"{first}.{function}"),
        (f"from {package} import {function} as {first}", first),
        (f"import {package}", path),
        (f"import torch as {first}", f"{first}.{path.partition('.')[2]}"),
        (f"import {package} as {first}", f"getattr({first}, {function!r})"),
    ]
    if parent:
        forms.append((f"from {parent} import {child} as {first}", f"{first}.{function}"))
    above, use = draw(st.sampled_from(forms))
    inside = ""
    if draw(st.booleans()):
        above, inside = "", above
    for alias in (second, third)[: draw(st.integers(0, 2))]:
        inside, use = f"{inside}\n{alias} = {use}", alias
    return above, inside, use


@pytest.mark.parametrize("path", BREACHES)
@given(data=st.data())
def test_spellings_hide_no_breach(broken, path, data):
    call, rule = BREACHES[path]
    above, inside, use = data.draw(spellings(path))
    forward = f"{inside}\n{call.format(f=use)}\nreturn y"
    assert {name for _, name in broken(forward, above=above)} & {rule, "reflection"}, forward


@pytest.mark.parametrize("path", HONEST)
@given(data=st.data())
def test_spellings_make_no_breach(broken, path, data):
    above, inside, use = data.draw(spellings(path))
    forward = f"{inside}\n{HONEST[path].format(f=use)}\nreturn y"
    assert broken(forward, above=above) == set(), forward


class _Renaming(ast.NodeTransformer):
    """Gives the locals and arguments of every method other names."""

    def __init__(self, renamed):
        self.renamed = renamed

    def visit_Name(self, node):
        node.id = self.renamed.get(node.id, node.id)
        return node

    def visit_arg(self, node):
        node.arg = self.renamed.get(node.arg, node.arg)
        return node


BODIES = (
    "y = torch.relu(x)\ny = torch.tanh(x)\nreturn self.linear(y)",
    "y = torch.relu(x)\nreturn self.linear(x)",
    "y = torch.arange(16)\nz = y * 2\nreturn self.linear(x) * z",
    "y = self.linear(x)\nz = y.sum()\nreturn y if y.max() > 0 else y * float(x.sum()) + z",
    "y = self.linear(x)\nz = y.item()\nreturn z, None",
    "y = self.linear(x)\nz = torch.relu(y)\nreturn z + y",
    "z = torch.rand_like\ny = z(x)\nreturn self.linear(y)",
)


@pytest.mark.parametrize("body", BODIES)
@given(new=st.lists(names, min_size=4, max_size=4, unique=True))
def test_names_of_locals_do_not_matter(written, body, new):
    tree = ast.parse(written(body))
    plain = check_source(ast.unparse(tree))
    renamed = ast.unparse(
        _Renaming(dict(zip(("x", "y", "z", "self"), new, strict=True))).visit(tree)
    )
    assert [(f.rule, f.line) for f in check_source(renamed)] == [(f.rule, f.line) for f in plain]


def test_every_rule_has_a_known_criterion_and_a_docstring():
    known = {"self_contained", "executes", "deterministic", "live", "stable_inputs"}
    assert {rule.criterion for rule in RULES.values()} <= known
    assert all(rule.find.__doc__ for rule in RULES.values())


def test_every_rule_has_a_case_that_breaks_it():
    text = "".join(
        path.read_text()
        for path in Path(__file__).parent.glob("test_*.py")
        if path != Path(__file__)
    )
    assert [name for name in RULES if f'"{name}")' not in text] == []


@pytest.mark.check
@pytest.mark.parametrize("recipe", ["broad", "ops6k"])
def test_sampled_tasks_break_no_rule(shipped, planned, recipe):
    num_tasks = 0
    classes = ("torch#1", "torch#2", "transformers")
    for task in planned(shipped(recipe, *classes), 300):
        if task is not None:
            assert check_source(task.code) == (), task.code
            num_tasks += 1
    assert num_tasks > 200
