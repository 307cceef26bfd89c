"""Reduction lengths of foreign code against what the shapes say."""

import pytest

from opsgen.verify import count_terms

X = "torch.randn(4, 8, 16)"
CASES = [
    ("return x.sum()", X, 512),
    ("return x.mean(1)", X, 8),
    ("return x.cumsum(2)", X, 16),
    ("return x @ x.mT", X, 16),
    ("return F.linear(x, x[0])", X, 16),
    ("return x.softmax(1)", X, 16),
    ("return F.layer_norm(x, (8, 16))", X, 128),
    ("return F.group_norm(x, 2)", X, 64),
    ("return F.batch_norm(x, x[0, :, 0], x[0, :, 1].abs())", X, 1),
    ("return F.instance_norm(x)", X, 16),
    ("return F.conv1d(x, x[:, :, :3])", X, 24),
    ("return F.avg_pool1d(x, 4, 2)", X, 4),
    ("return F.scaled_dot_product_attention(x, x, x)", X, 16),
    ("return torch.relu(x).transpose(1, 2) * 2", X, 1),
    ("return x.max(2)[0], x.gather(1, x[:, :1].long() * 0)", X, 1),
    ("return F.embedding(x.long().clamp(0, 3), x[0])", X, 1),
]


@pytest.mark.parametrize(("forward", "inputs", "num_terms"), CASES)
def test_the_longest_reduction_counts(build, forward, inputs, num_terms):
    reference = build(forward, inputs)
    found = count_terms(reference, reference.draw(0))
    assert num_terms <= found <= max(num_terms, 2 * num_terms - 1)
    if num_terms == 1:
        assert found == 1
