"""State outside of parameters, buffers and inputs; definitions that hide one another."""

import pytest

PLAIN = ("self_contained", "plain_tensors")
UNREGISTERED = ("self_contained", "unregistered_modules")
MODULE_TENSOR = ("self_contained", "module_tensors")
COUNTER = ("self_contained", "counters")
GLOBAL = ("self_contained", "global_state")


@pytest.mark.parametrize(
    "init",
    [
        "self.mask = torch.tril(torch.ones(16, 16))",
        "self.mask = torch.ones(16).view(1, 16)",
        "self.mask = 2 * torch.arange(16)",
        "mask = torch.ones(16)\nself.mask = mask.unsqueeze(0)",
        "self.mask: torch.Tensor = torch.zeros(16)",
    ],
)
def test_plain_tensors(broken, init):
    assert broken("return self.linear(x) * self.mask", init=init) == {PLAIN}


@pytest.mark.parametrize(
    "init",
    [
        "self.register_buffer('mask', torch.tril(torch.ones(16, 16)))",
        "self.mask = nn.Parameter(torch.ones(16))",
        "self.mask = torch.nn.Parameter(torch.ones(16) * 2)",
        "self.mask = torch.linspace(0, 1, 3).tolist()[1]",
        "self.mask = torch.tensor(3.0).item()",
        "self.mask = nn.Buffer(torch.ones(16))",
        "self.register_buffer('mask', torch.zeros(16))\nself.mask = torch.ones(16)",
        "self.mask = 0.5",
    ],
)
def test_registered_tensors_and_numbers(broken, init):
    assert broken("return self.linear(x) * self.mask", init=init) == set()


def test_modules_in_plain_lists(broken):
    forward = "x = self.linear(x)\nfor part in self.parts:\n    x = part(x)\nreturn x"
    hidden = ("[nn.Linear(16, 16) for _ in range(2)]", "[nn.Linear(16, 16), nn.ReLU()]")
    for value in hidden:
        assert broken(forward, init=f"self.parts = {value}") == {UNREGISTERED}
        assert broken(forward, init=f"self.parts = nn.ModuleList({value})") == set()
        wrapped = f"self.parts = {value}\nself.kept = nn.ModuleList(self.parts)"
        assert UNREGISTERED not in broken(forward, init=wrapped)
    assert broken(forward, init="self.parts = [nn.ReLU(), nn.GELU()]") == set()


@pytest.mark.parametrize(
    ("forward", "init"),
    [
        ("self.calls += 1\nreturn self.linear(x) * self.calls", "self.calls = 0"),
        ("self.calls = self.calls + 1\nreturn self.linear(x)", "self.calls = 0"),
        ("self.seen.append(x)\nreturn self.linear(x)", "self.seen = []"),
        ("self.seen[x.shape] = x\nreturn self.linear(x)", "self.seen = {}"),
        ("y = self.linear(x)\nself.register_buffer('last', y)\nreturn y", ""),
        ("self.shared += 1\nreturn self.linear(x)", ""),
        ("self.memory.append(x)\nreturn self.linear(x)", ""),
    ],
)
def test_counters(broken, forward, init):
    assert broken(forward, init=init, methods="shared = 0\nmemory = []") == {COUNTER}


@pytest.mark.parametrize(
    ("forward", "init"),
    [
        ("self.total = 0\nself.total += x.shape[0]\nreturn self.linear(x) * self.total", ""),
        ("self.last = self.linear(x)\nreturn self.last", ""),
        ("seen = []\nseen.append(self.linear(x))\nreturn seen[0]", ""),
        ("y = self.linear(x)\nif self.training:\n    self.calls += 1\nreturn y", "self.calls = 0"),
    ],
)
def test_attributes_that_carry_nothing_over(broken, forward, init):
    assert broken(forward, init=init) == set()


@pytest.mark.parametrize(
    ("forward", "parts"),
    [
        ("global calls\ncalls += 1\nreturn self.linear(x) * calls", {"above": "calls = 0"}),
        ("seen.append(x)\nreturn self.linear(x)", {"above": "seen = []"}),
        ("seen['n'] = x\nreturn self.linear(x)", {"above": "seen = {}"}),
        ("Model.calls += 1\nreturn self.linear(x)", {}),
        ("type(self).calls = 1\nreturn self.linear(x)", {}),
        ("seen[0] = x\nreturn self.linear(x)", {"takes": "self, x, seen={}"}),
    ],
)
def test_global_state(broken, forward, parts):
    assert broken(forward, **parts) == {GLOBAL}


def test_inputs_that_count(broken):
    counting = "calls.append(1)\nreturn [torch.randn(8, 16) * len(calls)]"
    assert broken(above="calls = []", inputs=counting) == {GLOBAL}
    assert broken(inputs=f"calls = []\n{counting}") == set()


def test_tensors_built_on_import(broken):
    assert broken("return self.linear(x) * scale", below="scale = torch.ones(16)") == {
        MODULE_TENSOR
    }
    assert broken("return self.linear(x) * scale", below="scale = 2.0") == set()
    buffered = "self.register_buffer('scale', scale)"
    used = "return self.linear(x) * self.scale"
    assert broken(used, below="scale = torch.ones(16)", init=buffered) == set()
    shadowed = "scale = x.sum(-1, keepdim=True)\nreturn self.linear(x) * scale"
    assert broken(shadowed, below="scale = torch.ones(16)") == set()
