"""The cases of the tolerance rule: reductions, softmax, norms, products, scans, windows."""

from __future__ import annotations

from collections.abc import Callable

import torch
from tolerance_cases import (
    Case,
    in_double,
    normed,
    online_softmax,
    pairwise,
    projected,
    relu_pool,
    sequential,
    split_k,
    summed,
    welford,
)
from torch import Tensor
from torch.nn import functional

_Function = Callable[[Tensor], Tensor]
_ROWS = 100_000
_WIDTH = 1024
_SCALAR, _SCALAR_CHEATS = summed()
_KEPT, _KEPT_CHEATS = summed(keeps_axis=True)
_PRODUCT, _PRODUCT_CHEATS = projected()


def _softmax_without(x: Tensor, count: int) -> Tensor:
    peak = x.amax(-1, keepdim=True)
    return torch.exp(x - peak) / torch.exp(x[..., :-count] - peak).sum(-1, keepdim=True)


def _softmax_by(x: Tensor, exp: _Function, add: _Function) -> Tensor:
    powers = exp(x - x.amax(-1, keepdim=True))
    return powers / add(powers)[..., None]


def _exp2(x: Tensor) -> Tensor:
    return torch.exp2(x * 1.4426950408889634)


def _lanes(x: Tensor) -> Tensor:
    """Add up as 256 threads do: each strides through the row, then a tree joins them."""
    rows = functional.pad(x, (0, -x.shape[-1] % 256)).unflatten(-1, (-1, 256))
    return pairwise(sequential(rows.transpose(-1, -2)))


def _moments(x: Tensor) -> tuple[Tensor, Tensor]:
    mean = x.mean(-1)
    return mean, (x * x).mean(-1) - mean * mean


def _two_pass(x: Tensor) -> tuple[Tensor, Tensor]:
    mean = sequential(x) / x.shape[-1]
    return mean, sequential((x - mean[..., None]).square()) / x.shape[-1]


def _scanned(x: Tensor, size: int, num_carried: int | None = None) -> Tensor:
    parts = [part.cumsum(-1) for part in x.split(size, -1)]
    total = torch.zeros_like(x[..., :1])
    out = []
    for number, part in enumerate(parts):
        is_carried = num_carried is None or number < num_carried
        out.append(part + total if is_carried else part)
        total = total + part[..., -1:]
    return torch.cat(out, -1)


def _short(
    x: Tensor,
    model: torch.nn.Module,
    drop: int = 0,
    parts: int = 4,
    kept: torch.dtype = torch.float32,
) -> Tensor:
    """Linear and gelu in float32; `kept` is the type that the parts of a sum are rounded to."""
    weight, bias = model.linear.weight, model.linear.bias
    end = x.shape[-1] - drop
    pairs = zip(x[:, :end].chunk(parts, -1), weight[:, :end].chunk(parts, -1), strict=True)
    total = sum(((a.float() @ b.float().T).to(kept) for a, b in pairs), torch.zeros((), dtype=kept))
    return functional.gelu(total.float() + bias.float())


def _stepwise(x: Tensor, model: torch.nn.Module) -> Tensor:
    weight, bias = model.linear.weight, model.linear.bias
    sums = (split_k(x, weight, 8) + bias.float()).to(x.dtype)
    return functional.gelu(sums.float()).to(x.dtype)


def _kept_short(x: Tensor, size: int) -> Tensor:
    """Add up squares in parts of `size` in float32, the parts one by one in the type of `x`."""
    parts = x.float().square().unflatten(-1, (-1, size)).sum(-1).to(x.dtype)
    total = torch.zeros_like(parts[..., 0])
    for part in parts.unbind(-1):
        total = total + part
    return total


def _short_sum(name: str) -> Case:
    def way(add: Callable[[Tensor], Tensor]) -> Callable[[Tensor, torch.nn.Module], Tensor]:
        return lambda x, _m: add(x.float().square())

    return Case(
        f"{name}: sums of 4,096 squares",
        "(x * x).sum(-1)",
        f"torch.randn(512, 4096, dtype=torch.{name})",
        {
            "one after the other in float32": way(sequential),
            "pairwise in float32": way(pairwise),
            "256 lanes in float32": way(_lanes),
            "squares rounded first": lambda x, _m: (x * x).float().sum(-1),
        },
        {
            "last eighth dropped": way(lambda x: x[..., :-512].sum(-1)),
            "one after the other in the short type": lambda x, _m: _kept_short(x, 1),
        },
        edges={
            "wrong: last block of 64 dropped": way(lambda x: x[..., :-64].sum(-1)),
            f"16 parts kept in {name}": lambda x, _m: _kept_short(x, 256),
            f"128 parts kept in {name}": lambda x, _m: _kept_short(x, 32),
        },
    )


def _short_linear(name: str, length: int) -> Case:
    dtype = getattr(torch, name)
    return Case(
        f"{name}: linear over {length:,} and gelu",
        "F.gelu(self.linear(x))",
        f"torch.randn(96, {length}, dtype=torch.{name})",
        {
            "float32 throughout, split in 4": _short,
            "split in 64": lambda x, m: _short(x, m, parts=64),
            "rounded between the two": _stepwise,
            "float64, rounded once": in_double(
                lambda x, m: functional.gelu(
                    x @ m.linear.weight.double().T + m.linear.bias.double()
                )
            ),
        },
        {
            "last block of 32 dropped": lambda x, m: _short(x, m, drop=32),
            "no bias": lambda x, m: functional.gelu(split_k(x, m.linear.weight, 1)),
            "relu for gelu": lambda x, m: functional.relu(
                split_k(x, m.linear.weight, 1) + m.linear.bias.float()
            ),
        },
        edges={
            "wrong: last term dropped": lambda x, m: _short(x, m, drop=1),
            f"16 parts kept in {name}": lambda x, m: _short(x, m, parts=16, kept=dtype),
            f"128 parts kept in {name}": lambda x, m: _short(x, m, parts=128, kept=dtype),
        },
        init=f"self.linear = nn.Linear({length}, 128, dtype=torch.{name})",
    )


CASES = (
    Case(
        "scalar: sum of 65,536 squares",
        "(x * x).sum()",
        "torch.randn(65536)",
        _SCALAR,
        {
            "last block of 1,024 dropped": lambda x, _m: (x * x)[:-1024].sum(),
            "constant from another draw": lambda _x, _m: torch.tensor(65000.0),
        },
        edges={"wrong: last element dropped": lambda x, _m: (x * x)[:-1].sum()},
    ),
    Case(
        "[512, 1]: sums of 4,096 squares",
        "(x * x).sum(-1, keepdim=True)",
        "torch.randn(512, 4096)",
        _KEPT,
        _KEPT_CHEATS,
    ),
    Case(
        "[512]: sums of 4,096 squares",
        "(x * x).sum(-1)",
        "torch.randn(512, 4096)",
        _SCALAR,
        _SCALAR_CHEATS,
    ),
    Case(
        "[400, 1]: product with a vector of 512",
        "self.linear(x)",
        "torch.randn(400, 512)",
        _PRODUCT,
        _PRODUCT_CHEATS,
        init="self.linear = nn.Linear(512, 1, bias=False)",
    ),
    Case(
        "[128, 192]: product over 768",
        "self.linear(x)",
        "torch.randn(128, 768)",
        _PRODUCT,
        _PRODUCT_CHEATS,
        init="self.linear = nn.Linear(768, 192, bias=False)",
    ),
    Case(
        "softmax over rows of 100,000",
        "torch.softmax(x, dim=-1)",
        f"torch.randn(6, {_ROWS})",
        {
            "online, blocks of 1,000": lambda x, _m: online_softmax(x, 1000),
            "online, blocks of 64": lambda x, _m: online_softmax(x, 64),
            "256 lanes, then a tree": lambda x, _m: _softmax_by(x, torch.exp, _lanes),
            "exp2 instead of exp": lambda x, _m: _softmax_by(x, _exp2, lambda e: e.sum(-1)),
            "without the maximum": lambda x, _m: x.exp() / x.exp().sum(-1, keepdim=True),
            "float64, rounded once": in_double(lambda x, _m: torch.softmax(x, -1)),
        },
        {
            "last block of 1,024 not summed": lambda x, _m: _softmax_without(x, 1024),
            "last element not summed": lambda x, _m: _softmax_without(x, 1),
            "last element left at zero": lambda x, _m: functional.pad(
                torch.softmax(x, -1)[:, :-1], (0, 1)
            ),
            "weights of the row before": lambda x, _m: torch.softmax(x, -1).roll(1, 0),
        },
        edges={
            "right: sum one after the other": lambda x, _m: _softmax_by(x, torch.exp, sequential),
        },
    ),
    Case(
        "log softmax over rows of 1,024",
        "F.log_softmax(x, dim=-1)",
        f"3 * torch.randn(64, {_WIDTH})",
        {
            "log of an online softmax": lambda x, _m: online_softmax(x, 128).log(),
            "float64, rounded once": in_double(lambda x, _m: functional.log_softmax(x, -1)),
        },
        {
            "last element not summed": lambda x, _m: x - x[:, :-1].logsumexp(-1, keepdim=True),
            "maximum for the sum": lambda x, _m: x - x.amax(-1, keepdim=True),
        },
    ),
    Case(
        "layer norm over 1,024",
        "self.norm(x)",
        f"torch.randn(96, {_WIDTH}) + 0.5",
        {
            "Welford": lambda x, m: normed(x, *welford(x), m),
            "two passes, one after the other": lambda x, m: normed(x, *_two_pass(x), m),
            "mean of squares less square": lambda x, m: normed(x, *_moments(x), m),
            "float64, rounded once": in_double(lambda x, m: normed(x, *_moments(x), m)),
        },
        {
            "unbiased variance": lambda x, m: normed(x, x.mean(-1), x.var(-1), m),
            "last element not in the mean": lambda x, m: normed(
                x, x[:, :-1].mean(-1), x.var(-1, correction=0), m
            ),
            "last block not in the variance": lambda x, m: normed(
                x, x.mean(-1), x[:, :-32].var(-1, correction=0), m
            ),
            "epsilon of 1e-6": lambda x, m: normed(
                x, x.mean(-1), x.var(-1, correction=0) - 9e-6, m
            ),
            "no affine": lambda x, _m: functional.layer_norm(x, x.shape[-1:]),
        },
        init=f"self.norm = nn.LayerNorm({_WIDTH})",
    ),
    Case(
        "[256, 1]: variance of 1,024 around 3",
        "x.var(-1, keepdim=True, correction=0)",
        f"torch.randn(256, {_WIDTH}) + 3",
        {
            "Welford": lambda x, _m: welford(x)[1][:, None],
            "two passes, one after the other": lambda x, _m: _two_pass(x)[1][:, None],
            "mean of squares less square": lambda x, _m: _moments(x)[1][:, None],
            "float64, rounded once": in_double(lambda x, _m: _moments(x)[1][:, None]),
        },
        {
            "unbiased": lambda x, _m: x.var(-1, keepdim=True),
            "last element dropped": lambda x, _m: x[:, :-1].var(-1, keepdim=True, correction=0),
        },
    ),
    Case(
        "running sums of 4,096",
        "torch.cumsum(x, dim=-1)",
        "torch.randn(48, 4096)",
        {
            "blocks of 256": lambda x, _m: _scanned(x, 256),
            "blocks of 64": lambda x, _m: _scanned(x, 64),
            "float64, rounded once": in_double(lambda x, _m: x.cumsum(-1)),
        },
        {
            "last block without a carry": lambda x, _m: _scanned(x, 256, 15),
            "off by one": lambda x, _m: x.cumsum(-1) - x,
        },
    ),
    Case(
        "largest of windows of 3, rectified",
        "F.relu(F.max_pool1d(x, 3, 3))",
        "torch.randn(32, 24, 120)",
        {"by unfolding": lambda x, _m: relu_pool(x)},
        {
            "windows of 2": lambda x, _m: relu_pool(x, window=2),
            "off by one": lambda x, _m: functional.pad(relu_pool(x, shift=1), (0, 1)),
        },
    ),
    Case(
        "means of windows of 5",
        "F.avg_pool1d(x, 5, 1)",
        "torch.randn(32, 24, 120)",
        {
            "running differences": lambda x, _m: (
                (x[..., :-4] + x[..., 1:-3] + x[..., 2:-2] + x[..., 3:-1] + x[..., 4:]) * 0.2
            ),
            "float64, rounded once": in_double(lambda x, _m: functional.avg_pool1d(x, 5, 1)),
        },
        {
            "off by one": lambda x, _m: functional.avg_pool1d(x, 5, 1).roll(1, -1),
            "divided by 4": lambda x, _m: functional.avg_pool1d(x, 5, 1) * 1.25,
        },
    ),
    Case(
        "pointwise: x * w + b, then tanh",
        "torch.tanh(x * self.w + self.b)",
        "torch.randn(64, 300)",
        {
            "fused multiply-add": lambda x, m: torch.tanh(
                (x.double() * m.w.double() + m.b.double()).float()
            ),
            "float64, rounded once": in_double(lambda x, m: torch.tanh(x * m.w + m.b)),
            "tanh by exp": lambda x, m: 1 - 2 / (torch.exp(2 * (x * m.w + m.b)) + 1),
        },
        {
            "no bias": lambda x, m: torch.tanh(x * m.w),
            "tanh by a fraction": lambda x, m: (
                (y := (x * m.w + m.b).clamp(-3, 3)) * (27 + y * y) / (27 + 9 * y * y)
            ),
        },
        init="self.w = nn.Parameter(torch.randn(300)); self.b = nn.Parameter(torch.randn(300))",
    ),
    *(_short_sum(name) for name in ("bfloat16", "float16")),
    *(_short_linear(name, length) for name in ("bfloat16", "float16") for length in (512, 4096)),
    Case(
        "bfloat16: softmax over 2,048",
        "torch.softmax(x, dim=-1)",
        "2 * torch.randn(64, 2048, dtype=torch.bfloat16)",
        {
            "online in float32": lambda x, _m: online_softmax(x.float(), 128),
            "float64, rounded once": in_double(lambda x, _m: torch.softmax(x, -1)),
        },
        {
            "half not summed": lambda x, _m: _softmax_without(x.float(), 1024),
            "unscaled": lambda x, _m: torch.exp(x.float() - x.float().amax(-1, keepdim=True)),
        },
    ),
)
