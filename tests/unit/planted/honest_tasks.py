"""Honest tasks that several planted defects are put into."""

PROJECTION = '''
import torch
import torch.nn as nn
import torch.nn.functional as F

batch_size = 128
in_features = 256
out_features = 192
scale = 1.5


class Model(nn.Module):
    """Projects a folded input, activates and rescales it."""

    def __init__(self, in_features, out_features, scale):
        super(Model, self).__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.scale = scale

    def forward(self, x):
        low, high = x.chunk(2, dim=1)
        x = self.linear(torch.maximum(low, high.sin()))
        x = F.gelu(x)
        return x * self.scale


def get_inputs():
    return [torch.randn(batch_size, 2 * in_features)]


def get_init_inputs():
    return [in_features, out_features, scale]
'''

CONV_BLOCK = '''
import torch
import torch.nn as nn

batch_size = 8
in_channels = 16
out_channels = 24
height = 24
width = 28


class Model(nn.Module):
    """
    A convolution with its activation and a learned gain per channel.
    """

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size, padding=1)
        self.gain = nn.Parameter(torch.randn(out_channels, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """
        Args:
            x: (batch_size, in_channels, height, width).
        """
        h = self.conv(x)
        h = nn.functional.silu(h)
        return h * self.gain


def get_inputs():
    x = torch.randn(batch_size, in_channels, height, width)
    return [x]


def get_init_inputs():
    return [in_channels, out_channels, 3]
'''

GATED_PAIR = '''
import torch
import torch.nn as nn

rows = 96
features = 320


class Model(nn.Module):
    """Gates one tensor by another after a row normalisation."""

    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x, gate):
        normed = self.norm(x)
        opened = torch.sigmoid(gate)
        return torch.tanh(normed * opened) + 0.5 * gate


def get_inputs():
    return [torch.randn(rows, features), torch.randn(rows, features)]


def get_init_inputs():
    return [features]
'''

PLAIN_CHAIN = '''
import torch
import torch.nn as nn

batch_size = 64
length = 500


class Model(nn.Module):
    """Mixes neighbours and activates."""

    def __init__(self):
        super().__init__()

    def forward(self, x):
        h = x + 0.5 * torch.roll(x, shifts=1, dims=1)
        return torch.nn.functional.mish(h) - torch.cos(x)


def get_inputs():
    return [torch.randn(batch_size, length)]


def get_init_inputs():
    return []
'''

BATCH_NORM = '''
import torch
import torch.nn as nn
import torch.nn.functional as F

batch_size = 24
channels = 20
length = 96


class Model(nn.Module):
    """Normalises by running statistics, shifts and activates."""

    def __init__(self, channels):
        super().__init__()
        self.norm = nn.BatchNorm1d(channels)
        self.shift = nn.Parameter(torch.randn(channels, 1))

    def forward(self, x):
        y = self.norm(x)
        return F.softplus(y + self.shift)


def get_inputs():
    return [torch.randn(batch_size, channels, length)]


def get_init_inputs():
    return [channels]
'''

ATTENTION = '''
import math

import torch
import torch.nn as nn

batch_size = 6
heads = 4
length = 40
head_dim = 24


class Model(nn.Module):
    """Scaled scores, their softmax over the keys, and the weighted values."""

    def __init__(self, head_dim):
        super().__init__()
        self.factor = 1.0 / math.sqrt(head_dim)

    def forward(self, query, key, value):
        scores = torch.matmul(query, key.transpose(-2, -1)) * self.factor
        weights = torch.softmax(scores, dim=-1)
        return torch.matmul(weights, value)


def get_inputs():
    return [
        torch.randn(batch_size, heads, length, head_dim),
        torch.randn(batch_size, heads, length, head_dim),
        torch.randn(batch_size, heads, length, head_dim),
    ]


def get_init_inputs():
    return [head_dim]
'''

TWO_BRANCHES = '''
import torch
import torch.nn as nn
import torch.nn.functional as F

batch_size = 48
in_features = 160
hidden = 208


class Model(nn.Module):
    """Two projections of the same rows that meet in a product."""

    def __init__(self, in_features, hidden):
        super(Model, self).__init__()
        self.value = nn.Linear(in_features, hidden)
        self.gate = nn.Linear(in_features, hidden, bias=False)

    def forward(self, x):
        value = self.value(x)
        gate = F.silu(self.gate(x))
        return value * gate


def get_inputs():
    return [torch.randn(batch_size, in_features)]


def get_init_inputs():
    return [in_features, hidden]
'''
