"""Plain PyTorch computes here what the kernels do, without dropout: the tests compare them, and a CPU runs this."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

Weights = dict[str, Tensor]


def cores(x: Tensor) -> Tensor:
    """Arrange (models, cells, width) as the kernels do: 8 x 8 cores, eight cells by eight features (see warp.cuh)."""
    x = F.pad(x, (0, 0, 0, -x.shape[1] % 8))
    return x.unflatten(1, (-1, 8)).unflatten(3, (-1, 8)).transpose(2, 3).reshape(x.shape)


def uncored(x: Tensor, count: int) -> Tensor:
    """Arrange cores as rows again, the first `count` of each model."""
    models, rows, width = x.shape
    return x.view(models, rows // 8, width // 8, 8, 8).transpose(2, 3).reshape(x.shape)[:, :count]


def core_norm(x: Tensor, gain: Tensor, shift: Tensor, count: int) -> Tensor:
    """Return LayerNorm of a tensor in cores; rows beyond the first `count` of each model hold nothing and become 0,
    as do their gradients. Gain and shift are (models, width)."""
    models, rows, width = x.shape
    parts = x.view(models, rows // 8, width // 8, 8, 8)
    row = torch.arange(rows, device=x.device).view(1, rows // 8, 1, 8, 1)
    parts = torch.where(row < count, parts, 0.0)
    variance, mean = torch.var_mean(parts, dim=(2, 4), correction=0, keepdim=True)
    gain, shift = (vector.reshape(models, 1, width // 8, 1, 8) for vector in (gain, shift))
    y = (parts - mean) * (variance + 1e-5).rsqrt() * gain + shift
    return torch.where(row < count, y, 0.0).view_as(x)


def heads_first(x: Tensor, boards: int, heads: int) -> Tensor:
    """Turn (boards * cells, parts * width) into (parts, boards, heads, cells, size)."""
    size = 16
    return x.unflatten(0, (boards, -1)).unflatten(2, (-1, heads, size)).permute(2, 0, 3, 1, 4)


def cells_first(x: Tensor) -> Tensor:
    return x.permute(1, 3, 0, 2, 4).flatten(2).flatten(0, 1)


def normed(x: Tensor, w: Weights, name: str) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], w[f"{name}.weight"], w[f"{name}.bias"])


def linear(x: Tensor, w: Weights, name: str) -> Tensor:
    return F.linear(x, w[f"{name}.weight"], w[f"{name}.bias"])


def block_forward(
    x: Tensor, w: Weights, boards: int, heads: int
) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Compute one block over (cells, width); return its output, and qkv, mixed values, log-sum-exp (base 2), middle."""
    qkv = linear(normed(x, w, "norm1"), w, "attention.qkv")
    q, k, v = heads_first(qkv, boards, heads)
    logits = q @ k.mT / math.sqrt(q.shape[-1])
    mixed = cells_first((logits.softmax(-1) @ v)[None])
    mid = x + linear(mixed, w, "attention.out")
    y = mid + linear(F.gelu(linear(normed(mid, w, "norm2"), w, "mlp.0")), w, "mlp.2")
    return y, (qkv, mixed, logits.logsumexp(-1) / math.log(2), mid)


def block_backward(
    dy: Tensor, x: Tensor, saved: tuple[Tensor, ...], w: Weights, boards: int, heads: int
) -> tuple[Tensor, Weights]:
    """Return the gradients at the block's input and of its weights."""
    qkv, mixed, mid = saved
    grads: Weights = {}

    def through_linear(d: Tensor, given: Tensor, name: str) -> Tensor:
        grads[f"{name}.weight"], grads[f"{name}.bias"] = d.T @ given, d.sum(0)
        return d @ w[f"{name}.weight"]

    def through_norm(d: Tensor, given: Tensor, name: str) -> Tensor:
        deviation = (given.var(-1, correction=0, keepdim=True) + 1e-5).sqrt()
        unit = (given - given.mean(-1, keepdim=True)) / deviation
        grads[f"{name}.weight"], grads[f"{name}.bias"] = (d * unit).sum(0), d.sum(0)
        d = d * w[f"{name}.weight"]
        return (d - d.mean(-1, keepdim=True) - unit * (d * unit).mean(-1, keepdim=True)) / deviation

    n2 = normed(mid, w, "norm2")
    u = linear(n2, w, "mlp.0")
    cdf, density = torch.special.ndtr(u), (-u * u / 2).exp() / math.sqrt(2 * math.pi)
    du = through_linear(dy, u * cdf, "mlp.2") * (cdf + u * density)
    dmid = dy + through_norm(through_linear(du, n2, "mlp.0"), mid, "norm2")
    dout = heads_first(through_linear(dmid, mixed, "attention.out"), boards, heads)[0]
    q, k, v = heads_first(qkv, boards, heads)
    scale = 1 / math.sqrt(q.shape[-1])
    p = (q @ k.mT * scale).softmax(-1)
    dp = dout @ v.mT
    ds = p * (dp - (p * dp).sum(-1, keepdim=True)) * scale
    dqkv = cells_first(torch.stack([ds @ k, ds.mT @ q, p.mT @ dout]))
    n1 = normed(x, w, "norm1")
    return dmid + through_norm(through_linear(dqkv, n1, "attention.qkv"), x, "norm1"), grads
