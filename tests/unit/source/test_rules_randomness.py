"""Chance in a call, in the structure, and under other names."""

import pytest

RANDOM = ("self_contained", "random_forward")
DROPPED = ("self_contained", "functional_dropout")
HIDDEN = ("deterministic", "hidden_randomness")
STRUCTURE = ("self_contained", "random_structure")


@pytest.mark.parametrize(
    ("above", "forward"),
    [
        ("", "return self.linear(x) + torch.rand_like(x)"),
        ("", "return self.linear(x) + x.bernoulli()"),
        ("", "return self.linear(x) + torch.zeros_like(x).normal_()"),
        ("", "return self.linear(x) + torch.Tensor.uniform_(torch.zeros_like(x))"),
        ("", "return self.linear(x) + torch.normal(0.0, 1.0, x.shape, device=x.device)"),
        ("", "return self.linear(x)[torch.randperm(8, device=x.device)]"),
        ("", "return self.linear(nn.Linear(16, 16)(x))"),
        ("", "return self.linear(nn.Dropout(0.5)(x))"),
        ("", "return self.linear(x) + nn.init.xavier_uniform_(torch.zeros_like(x))"),
        (
            "",
            "if x.shape[0] != 8:\n    raise ValueError(x.shape)\nreturn self.linear(x).bernoulli()",
        ),
        ("", "noise = getattr(torch, 'rand_like')\nreturn self.linear(x) + noise(x)"),
        ("", "y = self.linear(x)\nfor i in range(2):\n    y = y + torch.rand_like(y)\nreturn y"),
        ("import torch as t", "return self.linear(x) + t.rand_like(x)"),
        ("from torch import rand_like as r", "return self.linear(x) + r(x)"),
        ("from torch import *", "return self.linear(x) + rand_like(x)"),
        ("draw = torch.rand_like", "return self.linear(x) + draw(x)"),
        (
            "from torch.distributions import Normal as N",
            "return self.linear(x) + N(0.0, 1.0).sample(x.shape)",
        ),
        (
            "import torch.distributions as D",
            "noise = D.Normal(x, 1.0)\nreturn self.linear(x) + noise.rsample()",
        ),
    ],
)
def test_draws_in_a_call(broken, above, forward):
    assert RANDOM in broken(forward, above=above)


@pytest.mark.parametrize(
    "parts",
    [
        {"methods": "def noise(self, x):\n    return x + torch.rand_like(x)"},
        {"above": "def noise(x):\n    return x + torch.rand_like(x)", "init": "self.noise = noise"},
        {"init": "self.noise = lambda x: x + torch.rand_like(x)"},
        {
            "above": """
                class Noise(nn.Module):
                    def forward(self, x):
                        return x + torch.rand_like(x)
                """,
            "init": "self.noise = nn.Sequential(nn.ReLU(), Noise())",
        },
        {
            "above": """
                class Noise(nn.Module):
                    def forward(self, x):
                        return self.add(x)

                    def add(self, x):
                        return x + torch.rand_like(x)

                class Loud(Noise):
                    pass
                """,
            "init": """
                parts = []
                for _ in range(2):
                    parts.append(Loud())
                self.noise = nn.Sequential(*parts)
                """,
        },
        {
            "above": """
                class Noise(nn.Module):
                    def forward(self, x):
                        return x + torch.rand_like(x)
                """,
            "methods": "def make(self):\n    return nn.Sequential(Noise())",
            "init": "self.noise = self.make()",
        },
    ],
)
def test_draws_in_what_a_call_reaches(broken, parts):
    assert RANDOM in broken("return self.noise(self.linear(x))", **parts)


@pytest.mark.parametrize(
    ("forward", "parts"),
    [
        ("if self.training:\n    x = x + torch.rand_like(x)\nreturn self.linear(x)", {}),
        ("return self.linear(x + torch.rand_like(x) if self.training else x)", {}),
        (
            "y = self.linear(x)\nif not self.training:\n    return y\nreturn y * torch.rand_like(y)",
            {},
        ),
        ("return self.linear(x)", {"init": "nn.init.normal_(self.linear.weight)"}),
        ("return self.linear(x)", {"init": "self.apply(lambda m: m.weight.normal_())"}),
        ("return self.normal(self.linear(x))", {"init": "self.normal = nn.LayerNorm(16)"}),
        ("return self.linear(rand(x))", {"above": "def rand(x):\n    return x + 1"}),
        ("rand_like = torch.relu\nreturn self.linear(rand_like(x))", {}),
        ("return self.rand(self.linear(x))", {"init": "self.rand = nn.Softmax(dim=-1)"}),
        (
            "y = self.linear(x)\nif self.training:\n    y = self.noise(y)\nreturn y",
            {
                "above": """
                    class Noise(nn.Module):
                        def forward(self, x):
                            return x + torch.rand_like(x)
                    """,
                "init": "self.noise = Noise()",
            },
        ),
        (
            "return self.block(self.linear(x))",
            {
                "init": """
                    def block(width):
                        return nn.Sequential(nn.Linear(width, 16), nn.ReLU())
                    self.block = block(16)
                    """
            },
        ),
        (
            "return drop_path(self.linear(x), 0.1, self.training)",
            {
                "above": """
                    def drop_path(x, share=0.0, training=False):
                        if share == 0.0 or not training:
                            return x
                        return x * torch.rand_like(x)
                    """
            },
        ),
    ],
)
def test_honest_neighbours_of_draws(broken, forward, parts):
    assert broken(forward, **parts) == set()


@pytest.mark.parametrize(
    ("forward", "parts"),
    [
        ("return F.dropout(self.linear(x))", {}),
        ("return F.dropout(self.linear(x), 0.3)", {}),
        ("return F.dropout(self.linear(x), p=0.3, training=True)", {}),
        ("return F.dropout(self.linear(x), 0.3, True)", {}),
        (
            "return G.dropout2d(self.linear(x)[None])[0]",
            {"above": "from torch.nn import functional as G"},
        ),
        ("return F.alpha_dropout(self.linear(x), 0.3, True)", {}),
        ("return torch.dropout(self.linear(x), 0.3, True)", {}),
        ("y = self.linear(x)\nreturn F.scaled_dot_product_attention(y, y, y, dropout_p=0.1)", {}),
        (
            "self.drop.train()\nreturn self.drop(self.linear(x))",
            {"init": "self.drop = nn.Dropout(0.1)"},
        ),
        (
            "return F.dropout(self.linear(x), self.p)",
            {"args": "p", "init": "self.p = p", "given": "rate", "below": "rate = 0.2"},
        ),
    ],
)
def test_dropout_that_drops_in_eval_mode(broken, forward, parts):
    assert DROPPED in broken(forward, **parts)


@pytest.mark.parametrize(
    ("forward", "parts"),
    [
        ("return F.dropout(self.linear(x), 0.3, self.training)", {}),
        ("return F.dropout(self.linear(x), 0.3, training=False)", {}),
        ("return F.dropout(self.linear(x), p=0.0)", {}),
        ("return F.alpha_dropout(self.linear(x), 0.3)", {}),
        ("return self.drop(self.linear(x))", {"init": "self.drop = nn.Dropout(0.1)"}),
        ("self.eval()\nreturn self.linear(x)", {}),
        (
            "y = self.linear(x)\n"
            "p = 0.1 if self.training else 0.0\n"
            "return F.scaled_dot_product_attention(y, y, y, dropout_p=p)",
            {},
        ),
        (
            "return F.dropout(self.linear(x), self.p)",
            {"args": "p", "init": "self.p = p", "given": "rate", "below": "rate = 0.0"},
        ),
    ],
)
def test_honest_neighbours_of_dropout(broken, forward, parts):
    assert broken(forward, **parts) == set()


@pytest.mark.parametrize(
    ("forward", "parts"),
    [
        ("return F.gumbel_softmax(self.linear(x))", {}),
        ("return F.rrelu(self.linear(x), training=True)", {}),
        ("return F.fractional_max_pool2d(self.linear(x)[None], 2, output_size=(2, 4))", {}),
        (
            "return self.pool(self.linear(x)[None])",
            {"init": "self.pool = nn.FractionalMaxPool2d(2, output_size=(2, 4))"},
        ),
    ],
)
def test_hidden_draws(broken, forward, parts):
    assert HIDDEN in broken(forward, **parts)


@pytest.mark.parametrize(
    ("forward", "parts"),
    [
        ("return F.rrelu(self.linear(x))", {}),
        ("return self.act(self.linear(x))", {"init": "self.act = nn.RReLU()"}),
        (
            "return self.pool(self.linear(x)[None])",
            {"init": "self.pool = nn.AdaptiveMaxPool2d((2, 4))"},
        ),
    ],
)
def test_honest_neighbours_of_hidden_draws(broken, forward, parts):
    assert broken(forward, **parts) == set()


@pytest.mark.parametrize(
    "parts",
    [
        {
            "args": "k",
            "init": "self.act = nn.Softplus(k)",
            "given": "torch.randint(1, 5, (1,)).item()",
        },
        {"args": "k", "init": "self.act = nn.Softplus(k)", "given": "int(torch.rand(()) * 3)"},
        {
            "args": "k",
            "init": "self.act = nn.Softplus(k)",
            "given": "k",
            "below": "k = int(torch.rand(1))",
        },
        {"init": "k = torch.randint(1, 5, (1,))\nself.act = nn.Softplus(k.item())"},
        {"above": "import random", "init": "self.act = nn.Softplus(random.randint(1, 5))"},
    ],
)
def test_structure_by_chance(broken, parts):
    assert STRUCTURE in broken("return self.act(self.linear(x))", **parts)


def test_rates_read_off_a_fixed_tensor_are_no_chance(broken):
    rates = "self.act = nn.Softplus([r.item() for r in torch.linspace(1, 2, 3)][1])"
    assert broken("return self.act(self.linear(x))", init=rates) == set()
