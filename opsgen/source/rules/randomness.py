"""Rules against chance where an answer must not depend on it.

Calls are known by what their names mean, so aliases hide nothing. Only calls that surely run
in eval mode count: noise under `if self.training` is honest.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from opsgen.source.rules.constants import argument_of, constant
from opsgen.source.rules.task import Breach, Reading, called_name, last_part

_DRAWS = frozenset(
    {"bernoulli", "binomial", "multinomial", "normal", "poisson", "rand", "rand_like", "randint"}
    | {"randint_like", "randn", "randn_like", "randperm"}
)
_IN_PLACE_DRAWS = frozenset(
    {"bernoulli_", "cauchy_", "exponential_", "geometric_", "log_normal_", "normal_", "random_"}
    | {"uniform_"}
)
_METHOD_DRAWS = _IN_PLACE_DRAWS | {"bernoulli", "multinomial"}
_INITIAL_DRAWS = ("kaiming_", "normal_", "orthogonal_", "sparse_", "trunc_", "uniform_", "xavier_")
_RANDOM_PACKAGES = ("random.", "numpy.random.", "secrets.")
# Functional dropout by the default of `training`; the variants in `torch` always want it given.
_DROPOUTS = {
    "dropout": True,
    "dropout1d": True,
    "dropout2d": True,
    "dropout3d": True,
    "alpha_dropout": False,
    "feature_alpha_dropout": False,
}
_DROPOUT_MODULES = frozenset(
    {"AlphaDropout", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "FeatureAlphaDropout"}
)
_DRAWN_MODULES = frozenset(
    {"Bilinear", "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d"}
    | {"ConvTranspose3d", "Embedding", "EmbeddingBag", "GRU", "GRUCell", "LSTM", "LSTMCell"}
    | {"Linear", "MultiheadAttention", "RNN", "RNNCell", "Transformer", "TransformerDecoderLayer"}
    | {"TransformerEncoderLayer"}
)
_FRACTIONAL = frozenset(
    {"fractional_max_pool2d", "fractional_max_pool2d_with_indices", "fractional_max_pool3d"}
    | {"fractional_max_pool3d_with_indices"}
)
_HIDDEN_DRAWS = frozenset({"gumbel_softmax", "lobpcg", "pca_lowrank", "svd_lowrank"})
_SCALARS = frozenset({"item", "tolist"})
_CASTS = frozenset({"builtins.int", "builtins.float", "builtins.bool", "builtins.round"})


def random_forward(task: Reading) -> Iterator[Breach]:
    """Random calls in `forward` and in what it surely reaches."""
    for call in task.calls(task.call):
        if is_draw(task, call) or _samples_distribution(task, call) or _is_fresh(task, call):
            yield call.lineno, called_name(task, call)


def functional_dropout(task: Reading) -> Iterator[Breach]:
    """Dropout that also drops in eval mode."""
    for call in task.calls(task.call):
        path = task.out.path(call.func)
        if not path.startswith("torch."):
            if _enters_training(task, call):
                yield call.lineno, ast.unparse(call)
        elif _drops(task, call, path):
            yield call.lineno, path


def hidden_randomness(task: Reading) -> Iterator[Breach]:
    """Ops that draw numbers without saying so in their names."""
    for call in task.calls(task.call):
        path = task.out.path(call.func)
        name = last_part(path)
        if path.startswith("torch.") and (
            name in _HIDDEN_DRAWS
            or (name in _FRACTIONAL and not _has_samples(call))
            or (name in {"rrelu", "rrelu_"} and _is_training(task, call, 3, False))
        ):
            yield call.lineno, path
    for call in task.calls(task.setup):
        path = task.out.path(call.func)
        is_fractional = path.startswith("torch.nn.") and "FractionalMaxPool" in path
        if is_fractional and not _has_samples(call):
            yield call.lineno, path


def random_structure(task: Reading) -> Iterator[Breach]:
    """Random Python numbers in constructor arguments, sizes or the constructor."""
    scopes = [task.out.module, *task.init_inputs, *task.setup]
    for call in task.calls(scopes):
        if task.out.path(call.func).startswith(_RANDOM_PACKAGES) or (
            _makes_scalar(task, call) and _holds_draw(task, call)
        ):
            yield call.lineno, ast.unparse(call)[:80]


def is_draw(task: Reading, call: ast.Call) -> bool:
    """Return whether a call certainly draws random numbers by its name."""
    path = task.out.path(call.func)
    if not path:
        is_method = isinstance(call.func, ast.Attribute) and not task.is_submodule(call.func)
        return is_method and called_name(task, call) in _METHOD_DRAWS
    name = last_part(path)
    if path.startswith(_RANDOM_PACKAGES):
        return True
    if path.startswith("torch.nn.init."):
        return name.startswith(_INITIAL_DRAWS)
    if path.startswith("torch.Tensor."):
        return name in _METHOD_DRAWS
    is_torch = path in {f"torch.{name}", f"torch.functional.{name}"}
    return (is_torch and name in _DRAWS) or name in _IN_PLACE_DRAWS


def _samples_distribution(task: Reading, call: ast.Call) -> bool:
    func = call.func
    if not (isinstance(func, ast.Attribute) and func.attr in {"sample", "rsample", "sample_n"}):
        return False
    base: ast.AST = func.value
    if isinstance(base, ast.Name):
        _, found = task.out.bindings(base.id, task.out.home[base])
        base = found[0] if len(found) == 1 and isinstance(found[0], ast.expr) else base
    return isinstance(base, ast.Call) and task.out.path(base.func).startswith(
        "torch.distributions."
    )


def _is_fresh(task: Reading, call: ast.Call) -> bool:
    """Whether a call builds a module with random parameters, or dropout in training mode."""
    path = task.out.path(call.func)
    if not path.startswith("torch.nn."):
        return False
    name = last_part(path)
    if name in _DRAWN_MODULES:
        return True
    parent = task.out.parents.get(call)
    is_called = isinstance(parent, ast.Call) and parent.func is call
    return name in _DROPOUT_MODULES and is_called and _is_share(task, argument_of(call, 0, "p"))


def _drops(task: Reading, call: ast.Call, path: str) -> bool:
    name = last_part(path)
    if name == "scaled_dot_product_attention":
        share = argument_of(call, 4, "dropout_p")
        return share is not None and _is_share(task, share)
    if name not in _DROPOUTS:
        return False
    if path == f"torch.{name}":
        mode = argument_of(call, 2, "train")
        is_on = mode is not None and constant(task.out, mode) is True
    elif path.startswith("torch.nn.functional."):
        is_on = _is_training(task, call, 2, _DROPOUTS[name])
    else:
        return False
    return is_on and _is_share(task, argument_of(call, 1, "p"))


def _is_training(task: Reading, call: ast.Call, position: int, default: bool) -> bool:
    mode = argument_of(call, position, "training")
    if mode is None:
        has_star = any(isinstance(arg, ast.Starred) for arg in call.args)
        return default and not has_star and all(word.arg for word in call.keywords)
    return constant(task.out, mode) is True


def _is_share(task: Reading, node: ast.expr | None) -> bool:
    """Whether a probability is known to lie between 0 and 1; it is one half by default."""
    if node is None:
        return True
    value = constant(task.out, node)
    return isinstance(value, int | float) and 0 < value < 1


def _enters_training(task: Reading, call: ast.Call) -> bool:
    func = call.func
    if not (isinstance(func, ast.Attribute) and func.attr == "train"):
        return False
    base = func.value
    while isinstance(base, ast.Attribute | ast.Subscript):
        base = base.value
    scope = task.out.home[call]
    if not (isinstance(base, ast.Name) and base.id == scope.receiver):
        return False
    mode = argument_of(call, 0, "mode")
    return mode is None or constant(task.out, mode) is True


def _has_samples(call: ast.Call) -> bool:
    return any(word.arg in {"_random_samples", None} for word in call.keywords)


def _makes_scalar(task: Reading, call: ast.Call) -> bool:
    if isinstance(call.func, ast.Attribute) and call.func.attr in _SCALARS:
        return True
    return task.out.path(call.func) in _CASTS


def _holds_draw(task: Reading, call: ast.Call, depth: int = 0) -> bool:
    """Whether a draw stands inside a call, or inside what its names are bound to."""
    for node in ast.walk(call):
        if isinstance(node, ast.Call) and is_draw(task, node):
            return True
        if isinstance(node, ast.Name) and depth == 0 and node in task.out.home:
            _, found = task.out.bindings(node.id, task.out.home[node])
            value = found[0] if len(found) == 1 else None
            if isinstance(value, ast.Call) and _holds_draw(task, value, depth + 1):
                return True
    return False
