"""Inputs that do not vary, and constructor arguments read off them."""

import pytest

from opsgen.source import check_source

NONE = ("stable_inputs", "no_inputs")
SEEDED = ("stable_inputs", "seeded_inputs")
FIXED = ("stable_inputs", "fixed_inputs")
NESTED = ("stable_inputs", "nested_draw")


@pytest.mark.parametrize("inputs", ["return []", "return ()", "inputs = []\nreturn inputs"])
def test_no_inputs(broken, inputs):
    assert NONE in broken("return self.linear.weight", takes="self", inputs=inputs)


@pytest.mark.parametrize(
    ("inputs", "above"),
    [
        ("torch.manual_seed(0)\nreturn [torch.randn(8, 16)]", ""),
        ("seeds(3)\nreturn [torch.randn(8, 16)]", "from torch import manual_seed as seeds"),
        ("g = torch.Generator().manual_seed(7)\nreturn [torch.randn(8, 16, generator=g)]", ""),
        (
            "g = torch.Generator()\ng.manual_seed(SEED)\nreturn [torch.randn(8, 16, generator=g)]",
            "SEED = 3",
        ),
        ("return [draw()]", "def draw():\n    torch.manual_seed(0)\n    return torch.randn(8, 16)"),
    ],
)
def test_seeds_of_its_own(broken, inputs, above):
    assert broken(inputs=inputs, above=above) == {SEEDED}


def test_inputs_that_are_kept(broken, written):
    assert SEEDED not in broken()
    code = written(above="import functools")
    assert check_source(code) == ()
    cached = code.replace("def get_inputs", "@functools.cache\ndef get_inputs")
    assert ("stable_inputs", "seeded_inputs") in {
        (fault.criterion, fault.rule) for fault in check_source(cached)
    }


@pytest.mark.parametrize(
    ("inputs", "below"),
    [
        ("return [torch.ones(8, 16)]", ""),
        ("x = torch.zeros(8, 16)\nreturn [x]", ""),
        ("return [torch.randn(8, 16), torch.eye(16)]", ""),
        ("return [torch.linspace(0, 1, 128).view(8, 16) * 2.0]", ""),
        ("return [torch.tril(torch.ones(8, 16))]", ""),
        ("return [torch.ones(8, 16, dtype=torch.float16)]", ""),
        ("return [X]", "X = torch.randn(8, 16)"),
        ("return [X.clone()]", "X = torch.randn(8, 16)"),
        ("x = X.to(torch.float32)\nreturn [x]", "X = torch.rand(8, 16) * 2"),
    ],
)
def test_fixed_inputs(broken, inputs, below):
    takes = "self, x, *rest"
    assert broken(inputs=inputs, below=below, takes=takes) == {FIXED}


@pytest.mark.parametrize(
    "inputs",
    [
        "return [torch.randn(8, 16), torch.ones(8, dtype=torch.long)]",
        "return [torch.randn(8, 16), torch.arange(8)]",
        "return [torch.randn(8, 16), torch.ones(8, 8, dtype=torch.bool).tril()]",
        "x = torch.zeros(8, 16)\nx.normal_()\nreturn [x]",
        "x = torch.zeros(8, 16)\nx[0] = torch.randn(16)\nreturn [x]",
        "x = torch.zeros(8, 16)\nnn.init.normal_(x)\nreturn [x]",
        "x = torch.ones(8, 16)\nx = x * torch.rand(8, 16)\nreturn [x]",
        "return [torch.ones(8, 16) * torch.rand(8, 16)]",
        "x = torch.zeros(8, 16)\nv = x.view(-1)\nv.normal_()\nreturn [x]",
        "x = torch.zeros(8, 16)\nx.view(-1)[:3] = torch.randn(3)\nreturn [x]",
        "x = torch.zeros(8, 16)\nfill(x)\nreturn [x]",
        "return [torch.linspace(0, draw(1).item(), 16)]",
        "return [draw(8, 16)]",
        "torch.randn(1)\nreturn [torch.randn(size, 16)]",
        "return [torch.full((8, 16), torch.rand(()).item())]",
    ],
)
def test_inputs_that_vary_or_are_integers(broken, inputs):
    above = "def fill(x):\n    x.normal_()\n\nsize = 8\n\ndef draw(*shape):\n    return torch.zeros(shape).uniform_()"
    assert broken(inputs=inputs, above=above, takes="self, x, *rest") == set()


def test_a_buffer_that_is_filled_anew_varies(broken):
    above = "X = torch.zeros(8, 16)"
    assert broken(inputs="X.normal_()\nreturn [X]", above=above) == set()
    assert broken(inputs="torch.nn.init.normal_(X)\nreturn [X]", above=above) == set()
    assert broken(inputs="return [X + 1]", above=above) == {FIXED}
    assert broken(inputs="return [X]", above=above) == {FIXED}


def test_arguments_off_drawn_inputs(broken):
    parts = {"args": "width", "init": "self.act = nn.Softplus(width)"}
    forward = "return self.act(self.linear(x))"
    assert NESTED in broken(forward, given="get_inputs()[0].shape[1]", **parts)
    helper = "def width():\n    return get_inputs()[0].shape[1]"
    assert NESTED in broken(forward, given="width()", above=helper, **parts)
    assert broken(forward, given="16", **parts) == set()
