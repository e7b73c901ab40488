"""Attention against the formula, one board, head and query at a time."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from letgo.models.transformer import Attention

pytestmark = pytest.mark.fast


def by_hand(layer: Attention, x: Tensor) -> Tensor:
    """softmax(q k^T / sqrt(size)) v, the heads side by side, then the output map."""
    batch, cells, width = x.shape
    size = width // layer.heads
    q, k, v = (x @ layer.qkv.weight.T + layer.qkv.bias).split(width, -1)
    mixed = torch.zeros_like(x)
    for b in range(batch):
        for h in range(layer.heads):
            part = slice(h * size, (h + 1) * size)
            for i in range(cells):
                score = torch.stack([(q[b, i, part] * k[b, j, part]).sum() for j in range(cells)]) / size**0.5
                weight = score.exp() / score.exp().sum()
                mixed[b, i, part] = sum(weight[j] * v[b, j, part] for j in range(cells))
    return mixed @ layer.out.weight.T + layer.out.bias


def test_attention_is_the_softmax_formula() -> None:
    torch.manual_seed(0)
    layer = Attention(width=12, heads=3, dropout=0.5).eval()
    x = torch.randn(2, 7, 12)
    assert_close(layer(x), by_hand(layer, x))


def test_dropout_on_the_weights_keeps_their_mean() -> None:
    """With values of one an output is the sum of its kept weights over 0.75; odds of a false alarm 1e-6."""
    torch.manual_seed(0)
    layer = Attention(width=8, heads=2, dropout=0.25).train()
    with torch.no_grad():
        layer.qkv.weight[16:], layer.qkv.bias[16:] = 0, 1
        layer.out.weight.copy_(torch.eye(8))
        layer.out.bias.zero_()
        means = torch.stack([layer(torch.randn(2, 40, 8)).mean() for _ in range(20)])
    assert abs(float(means.mean()) - 1) < 5 * float(means.std()) / 20**0.5
    assert float(means.std()) > 0
