"""Parts, results, inputs and constructor arguments that nothing reads."""

import pytest

UNUSED_MODULE = ("live", "unused_modules")
DEAD = ("live", "dead_values")
UNUSED_INPUT = ("live", "unused_inputs")
UNUSED_ARGUMENT = ("self_contained", "unused_arguments")
SHADOWED = ("self_contained", "shadowed_arguments")
STORED = ("self_contained", "stored_arguments")


@pytest.mark.parametrize(
    "parts",
    [
        {"init": "self.norm = nn.LayerNorm(16)"},
        {"init": "self.scale: nn.Parameter = nn.Parameter(torch.ones(16))"},
        {"init": "self.act = nn.ReLU()"},
        {"init": "self.norm = nn.LayerNorm(16)\nfor m in self.modules():\n    m.training = False"},
        {
            "above": """
                class Norm(nn.Module):
                    def __init__(self):
                        super().__init__()
                        self.norm = nn.LayerNorm(16)
                        self.spare = nn.LayerNorm(16)

                    def forward(self, x):
                        return self.norm(x)
                """,
            "init": "self.block = Norm()",
            "forward": "return self.block(self.linear(x))",
        },
    ],
)
def test_unused_parts(broken, parts):
    assert broken(**parts) == {UNUSED_MODULE}


@pytest.mark.parametrize(
    "parts",
    [
        {"init": "self.norm = nn.LayerNorm(16)", "forward": "return self.norm(self.linear(x))"},
        {
            "init": "self.norm = nn.LayerNorm(16)\nself.net = nn.Sequential(self.linear, self.norm)",
            "forward": "return self.net(x)",
        },
        {
            "init": "self.norm0 = nn.LayerNorm(16)\nself.norm1 = nn.LayerNorm(16)",
            "forward": "for i in range(2):\n    x = getattr(self, f'norm{i}')(x)\nreturn self.linear(x)",
        },
        {
            "init": "self.norm = nn.LayerNorm(16)",
            "forward": "for part in self.children():\n    x = part(x)\nreturn x",
        },
        {
            "init": "self.head = nn.Linear(16, 16)\nself.head.weight = self.linear.weight",
            "forward": "return self.head(x)",
        },
        {
            "above": """
                class Stack(nn.Sequential):
                    def __init__(self):
                        super().__init__()
                        self.norm = nn.LayerNorm(16)
                """,
            "init": "self.stack = Stack()",
            "forward": "return self.stack(self.linear(x))",
        },
        {
            "above": """
                class Unused(nn.Module):
                    def __init__(self):
                        super().__init__()
                        self.norm = nn.LayerNorm(16)
                """,
        },
    ],
)
def test_parts_that_something_reads(broken, parts):
    assert broken(**parts) == set()


@pytest.mark.parametrize(
    "forward",
    [
        "y = torch.relu(x)\nreturn self.linear(x)",
        "y = self.linear(x)\ny = self.linear(torch.relu(x))\nreturn y",
        "y = self.linear(x)\nz = y + 1\nz = F.gelu(y)\nz = torch.tanh(y)\nreturn z",
        "torch.relu(x)\nreturn self.linear(x)",
        "y = self.linear(x)\nF.softmax(y, dim=-1)\nreturn y",
        "a, b = torch.chunk(x, 2, dim=-1)\nreturn self.linear(x)",
        "y = torch.exp(x) * 2\nreturn self.linear(x)",
        "y = x @ x.T\nreturn self.linear(x)",
        "y = x.softmax(-1)\nreturn self.linear(x)",
        "for i in range(2):\n    y = torch.relu(x)\nreturn self.linear(x)",
    ],
)
def test_dead_results(broken, forward):
    assert broken(forward) == {DEAD}


@pytest.mark.parametrize(
    "forward",
    [
        "batch, width = x.shape\nreturn self.linear(x)",
        "width = x.size(1)\nreturn self.linear(x)",
        "y, _ = torch.max(self.linear(x), dim=-1)\nreturn y",
        "y, places = torch.max(self.linear(x), dim=-1)\nreturn y",
        "_ = torch.relu(x)\nreturn self.linear(x)",
        "y = F.relu(x, inplace=True)\nreturn self.linear(x)",
        "F.relu(x, True)\nreturn self.linear(x)",
        "x.clone().add_(1)\nreturn self.linear(x)",
        "y = torch.zeros_like(x)\ntorch.add(x, 1, out=y)\nreturn self.linear(y)",
        "y = torch.relu(x)\nif x.dim() == 3:\n    return y\ny = self.linear(x)\nreturn y",
        "y = torch.relu(x)\ny = self.linear(y)\nreturn y",
        "y = torch.relu(x)\ny += self.linear(x)\nreturn y",
        "y = torch.relu(x)\nf = lambda: y\ny = self.linear(x)\nreturn f() + y",
        "y = torch.relu(x)\nfor i in range(2):\n    z = self.linear(y)\n    y = torch.tanh(z)\nreturn y",
        "try:\n    y = torch.relu(x)\nexcept RuntimeError:\n    pass\nreturn self.linear(x)",
        "y = torch.relu(x)\nreturn self.linear(x) + sum([y for _ in range(2)])",
        "y = torch.relu(x)\ndel y\nreturn self.linear(x)",
    ],
)
def test_results_that_are_read_or_cost_nothing(broken, forward):
    assert broken(forward) == set()


def test_an_activation_in_place_has_an_effect(broken):
    in_place = "self.act(x)\nreturn self.linear(x)"
    assert broken(in_place, init="self.act = nn.ReLU(inplace=True)") == set()
    assert broken(in_place, init="self.act = nn.ReLU()") == {DEAD}


TWO = "return [torch.randn(8, 16), torch.randn(8, 16)]"


@pytest.mark.parametrize(
    ("takes", "forward", "inputs"),
    [
        ("self, x, y", "return self.linear(x)", TWO),
        ("self, x, y=None", "return self.linear(x)", TWO),
        ("self, x, y", "y = torch.relu(x)\nreturn self.linear(y)", TWO),
        ("self, x, y", "f = lambda y: y + 1\nreturn self.linear(f(x))", TWO),
    ],
)
def test_unused_inputs(broken, takes, forward, inputs):
    assert broken(forward, takes=takes, inputs=inputs) == {UNUSED_INPUT}


@pytest.mark.parametrize(
    ("takes", "forward", "inputs"),
    [
        ("self, x, y", "return self.linear(x) + y", TWO),
        ("self, x, y=None", "return self.linear(x)", "return [torch.randn(8, 16)]"),
        ("self, x, *rest", "return self.linear(x)", "return [torch.randn(8, 16)]"),
        ("self, x, y", "y = torch.relu(y)\nreturn self.linear(x) + y", TWO),
        ("self, x, y", "f = lambda: y + 1\nreturn self.linear(x) + f()", TWO),
        ("self, x, y", "y += 1\nreturn self.linear(x) + y", TWO),
        ("self, x, y", "if x.dim() == 3:\n    y = x\nreturn self.linear(x) + y", TWO),
    ],
)
def test_inputs_that_are_read(broken, takes, forward, inputs):
    assert broken(forward, takes=takes, inputs=inputs) == set()


@pytest.mark.parametrize(
    ("parts", "faults"),
    [
        ({"args": "width", "given": "16"}, {UNUSED_ARGUMENT}),
        ({"args": "width, eps=1e-5", "init": "self.act = nn.Softplus(width)"}, {UNUSED_ARGUMENT}),
        ({"args": "width", "init": "self.act = nn.Softplus(2)\nself.width = width"}, {STORED}),
        (
            {"args": "width", "init": "self.act = nn.Softplus(2)\nself.w = float(width) / 2"},
            {STORED},
        ),
        (
            {
                "args": "slope",
                "given": "slope",
                "below": "slope = 2",
                "init": "self.act = nn.Softplus(2)",
                "forward": "return self.act(self.linear(x)) * slope",
            },
            {UNUSED_ARGUMENT, SHADOWED},
        ),
    ],
)
def test_arguments_without_effect(broken, parts, faults):
    parts = {"forward": "return self.act(self.linear(x))", **parts}
    if "self.act" not in parts.get("init", ""):
        parts["forward"] = "return self.linear(x)"
    assert broken(**parts) == faults


@pytest.mark.parametrize(
    "parts",
    [
        {"init": "self.slope = slope", "forward": "return self.linear(x) * self.slope"},
        {"init": "self.act = nn.Softplus(slope)", "forward": "return self.act(self.linear(x))"},
        {
            "init": "self.slope = slope",
            "methods": "@property\ndef twice(self):\n    return 2 * self.slope",
            "forward": "return self.linear(x) * self.twice",
        },
        {
            "init": "self.slope = slope\nself.act = self.make()",
            "methods": "def make(self):\n    return nn.Softplus(self.slope)",
            "forward": "return self.act(self.linear(x))",
        },
        {
            "init": "self.slope = slope\nself.act = nn.Softplus(slope)",
            "forward": "return self.act(self.linear(x))",
        },
        {
            "init": "self.act = make(slope)",
            "above": "def make(slope):\n    return lambda y: y * slope",
            "forward": "return self.act(self.linear(x))",
        },
        {
            "init": "self.act = lambda y: y * slope",
            "forward": "return self.act(self.linear(x))",
        },
        {
            "init": "self.slope = slope",
            "forward": "return self.linear(x) * getattr(self, 'slope')",
        },
    ],
)
def test_arguments_with_an_effect(broken, parts):
    assert broken(args="slope", given="slope", below="slope = 2", **parts) == set()


def test_an_object_that_is_handed_over_may_be_read_elsewhere(broken):
    parts = {"args": "slope", "given": "2", "init": "self.slope = slope"}
    assert broken("return F.relu(self.linear(x))", **parts) == {STORED}
    assert broken("return nn.Module.__call__(self, self.linear(x))", **parts) == set()


def test_arguments_handed_to_a_class_above(broken):
    above = """
        class Base(nn.Module):
            def __init__(self, slope):
                super().__init__()
                self.slope = slope
                self.linear = nn.Linear(16, 16)

            def forward(self, x):
                return self.linear(x) * self.slope
        """
    code_parts = {"above": above, "args": "slope", "given": "2"}
    assert (
        broken("return super().forward(x) * self.slope", init="self.slope = slope", **code_parts)
        == set()
    )
