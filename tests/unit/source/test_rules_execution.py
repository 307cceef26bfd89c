"""Waiting for the device, leaving it, and asking how the code is being run."""

import pytest

WAITS = ("executes", "waits")
SHAPES = ("executes", "data_shapes")
MODE = ("executes", "mode_dependence")
PRINTS = ("executes", "prints")
LEAVES = ("executes", "plain_leaves")
HOST = ("executes", "host_tensors")


@pytest.mark.parametrize(
    "forward",
    [
        "return self.linear(x) * x.sum().item()",
        "return self.linear(x) * self.linear.bias.mean().item()",
        "return self.linear(x) * x.sum(0).tolist()[0]",
        "return self.linear(x).cpu()",
        "return self.linear(x) * float(x.sum())",
        "n = int(x.abs().max())\nreturn self.linear(x) * n",
        "return self.linear(x) if bool(x.any()) else x",
        "return self.linear(x) if x.sum() > 0 else x",
        "y = self.linear(x)\ny += 1\nreturn y if y.max() > 1 else x",
        "y = self.linear(x)\nif not (y > 0).all():\n    y = y + 1\nreturn y",
        "while torch.any(x > 1):\n    x = x / 2\nreturn self.linear(x)",
    ],
)
def test_waiting_for_values(broken, forward):
    assert WAITS in broken(forward)


@pytest.mark.parametrize(
    "forward",
    [
        "n = int(x.shape[0])\nreturn self.linear(x) * n",
        "n = float(x.size(1))\nreturn self.linear(x) * n",
        "n = int(x.numel() // 2)\nreturn self.linear(x) * n",
        "n = sum(int(x) for x in (1, 2))\nreturn self.linear(x) * n",
        "for x in (1, 2):\n    n = float(x)\nreturn n * self.linear.weight",
        "x = x.shape[0]\nreturn int(x) * self.linear.weight",
        "parts = {'a': self.linear}\nfor _, part in parts.items():\n    x = part(x)\nreturn x",
        "if x.shape[0] > 4 and x is not None:\n    x = x + 1\nreturn self.linear(x)",
        "if x.type() == 'a' or x.get_device() > 3:\n    x = x + 1\nreturn self.linear(x)",
        "if torch.is_complex(x) or x.is_sparse_csr():\n    x = x + 1\nreturn self.linear(x)",
        "if x.device.type == 'cuda' or x.dtype == torch.half:\n    x = x + 1\nreturn self.linear(x)",
        "if x.dim() == 2 or x.is_contiguous():\n    x = x + 1\nreturn self.linear(x)",
        "if self.training:\n    self.linear.bias.sum().item()\nreturn self.linear(x)",
    ],
)
def test_numbers_that_are_known(broken, forward):
    assert WAITS not in broken(forward)


@pytest.mark.parametrize(
    "forward",
    [
        "return self.linear(x).nonzero()",
        "return torch.masked_select(self.linear(x), x > 0)",
        "return torch.unique(self.linear(x))",
        "return torch.where(self.linear(x) > 0)[0]",
        "return self.linear(x)[x > 0]",
        "keep = (x > 0) & (x < 1)\nreturn self.linear(x)[~keep]",
        "return torch.nonzero(self.linear(x)) if True else x",
    ],
)
def test_shapes_of_data(broken, forward):
    assert broken(forward) == {SHAPES}


def test_shapes_of_sizes(broken):
    assert broken("return torch.where(x > 0, self.linear(x), x)") == set()
    assert broken("y = self.linear(x)\ny[y > 0] = 0\nreturn y") == set()
    assert broken("y = self.linear(x)\nreturn y[x.shape[0] > 4]") == set()
    assert broken("return torch.nonzero(x) if False else self.linear(x)") == set()
    assert (
        broken("return self.unique(x)", methods="def unique(self, x):\n    return self.linear(x)")
        == set()
    )


@pytest.mark.parametrize(
    ("above", "forward"),
    [
        ("", "return x if torch.compiler.is_compiling() else self.linear(x)"),
        ("", "return x if torch._dynamo.is_compiling() else self.linear(x)"),
        ("", "torch._dynamo.graph_break()\nreturn self.linear(x)"),
        (
            "from torch.compiler import is_compiling as asks",
            "return x if asks() else self.linear(x)",
        ),
        ("import torch._dynamo as d", "d.graph_break()\nreturn self.linear(x)"),
        ("is_it = torch.compiler.is_exporting", "return x if is_it() else self.linear(x)"),
    ],
)
def test_questions_about_the_mode(broken, above, forward):
    assert MODE in broken(forward, above=above)


@pytest.mark.parametrize("asks", ["torch.jit.is_scripting()", "torch.jit.is_tracing()"])
def test_what_never_differs_may_be_asked_for(broken, asks):
    assert broken(f"return x if {asks} else self.linear(x)") == set()


def test_training_is_a_mode_to_ask_for(broken):
    assert broken("return self.linear(x) * 2 if self.training else self.linear(x)") == set()


def test_printing(broken):
    assert broken("print(x.shape)\nreturn self.linear(x)") == {PRINTS}
    assert broken(init="print('built')") == set()


@pytest.mark.parametrize(
    ("forward", "inputs"),
    [
        ("return self.linear(x), None", "return [torch.randn(8, 16)]"),
        ("return self.linear(x), 1.0", "return [torch.randn(8, 16)]"),
        ("y = self.linear(x)\nreturn", "return [torch.randn(8, 16)]"),
        ("y = self.linear(x)\nassert y is not None", "return [torch.randn(8, 16)]"),
        ("return self.linear(x)", "return [torch.randn(8, 16), None]"),
        ("return self.linear(x)", "x = torch.randn(8, 16)\nreturn (x, 3)"),
        ("return self.linear(x)", "all = [torch.randn(8, 16), True]\nreturn all"),
    ],
)
def test_leaves_that_are_no_tensors(broken, forward, inputs):
    assert LEAVES in broken(forward, inputs=inputs, takes="self, x, *rest")


def test_leaves_of_another_branch_are_for_the_probe(broken):
    assert broken("y = self.linear(x)\nif y is None:\n    return None\nreturn y") == set()


@pytest.mark.parametrize(
    "forward",
    [
        "return self.linear(x) + torch.ones(16)",
        "y = self.linear(x)\nreturn torch.cat([y, torch.zeros(1, 16)])",
        "mask = torch.tril(torch.ones(8, 16))\nreturn self.linear(x).masked_fill(mask == 0, 0.0)",
        "places = torch.arange(16)\nkeep = places[None, :] > places[:, None]\nreturn x @ keep",
        "w = torch.tensor([0.5, 0.5] * 8)\nreturn F.linear(x, w[None, :])",
        "return self.linear(x) * torch.linspace(0, 1, x.shape[1])",
        "return self.linear(x) * torch.zeros(x.shape)",
        "y = self.linear(x)\nreturn y * torch.zeros(y.size())",
        "return x @ self.linear.weight + torch.eye(8, 16)",
        "import torch as t\nreturn self.linear(x) + t.ones(16)",
        "z = torch.zeros\nreturn self.linear(x) + z(16)",
        "y = self.linear(x)\nreturn torch.ones(16)",
        "return (self.linear(x) + torch.ones(16)).to(x.device)",
        "return self.linear(x) + torch.ones(16, device='cpu')",
        "return self.scale + self.linear(x) * torch.ones(x.size(1))",
    ],
)
def test_tensors_of_the_host(broken, forward):
    if "[0.5, 0.5] * 8" in forward:
        forward = forward.replace("[0.5, 0.5] * 8", str([0.5] * 16))
    assert HOST in broken(forward, init="self.scale = nn.Parameter(torch.ones(16))")


@pytest.mark.parametrize(
    "forward",
    [
        "return self.linear(x) + torch.ones(16, device=x.device)",
        "return self.linear(x) + torch.ones(16).to(x.device)",
        "return self.linear(x) + torch.ones(16).to(x)",
        "return self.linear(x) + torch.ones(16).type_as(x)",
        "mask = torch.tril(torch.ones(16, 16))\nmask = mask.to(x.device)\nreturn self.linear(x) @ mask",
        "return self.linear(x) * torch.tensor(0.5)",
        "return self.linear(x) * torch.full((), 0.5)",
        "return self.linear(x) * torch.zeros(())",
        "return torch.where(x > 0, self.linear(x), torch.tensor(0.0))",
        "return self.linear(x)[torch.arange(8)]",
        "rows = torch.arange(8)\nreturn self.linear(x)[rows, rows + 1]",
        "return self.linear(x) + x.new_ones(16)",
        "return self.linear(x) + torch.ones_like(x)",
        "return self.linear(x) * torch.arange(4).sum()",
        "with torch.device(x.device):\n    y = torch.ones(16)\nreturn self.linear(x) + y",
        "opts = {'device': x.device}\nreturn self.linear(x) + torch.ones(16, **opts)",
        "return self.linear(x) + self.ones(16)",
        "return self.linear(x).expand_as(torch.ones(8, 16))",
        "y = self.linear(x)\ny[:, :4] = torch.ones(8, 4)\nreturn y",
        "y = self.linear(x)\ny.copy_(torch.ones(8, 16))\nreturn y",
        "a, b = torch.tensor_split(self.linear(x), torch.tensor([2]))\nreturn torch.cat([a, b])",
        "return self.linear(x) + torch.ones(x.shape[2:])",
    ],
)
def test_tensors_of_the_device_numbers_and_indices(broken, forward):
    ones = "def ones(self, n):\n    return torch.ones(n).to(self.linear.weight)"
    assert broken(forward, methods=ones) == set()
