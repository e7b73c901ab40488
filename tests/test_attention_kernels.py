"""Attention's CUDA kernels against float64, on a CPU by emulator.h and on a card. The dropout mask is repeated here."""

from __future__ import annotations

import pytest
import torch
from emulator import emulated, hopper
from torch import Tensor

from letgo.engines import attention
from letgo.engines.reference import cores, uncored

pytestmark = pytest.mark.emulator


def distance(a: Tensor, b: Tensor) -> float:
    return float((a.double() - b).norm() / b.norm())


def keep(seed: int, blocks: int, cells: int, drop: int, device: str) -> Tensor:
    """`stream` and `without_one` of warp.cuh: weights whose rows and columns are eight apart share a number."""
    word, block, cell = 0xFFFFFFFF, torch.arange(blocks, device=device), torch.arange(cells, device=device)
    x = (seed + (block + 1) * 0x85EBCA6B) & word
    x = ((x ^ (x >> 16)) * 0xC2B2AE35) & word
    first, half = cell & ~8, cell >> 3 & 1
    place = ((x ^ (x >> 15))[:, None, None] + first[:, None] * 0x9E3779B1 + first * 0x85EBCA6B) & word
    number = ((place ^ (place >> 15)) * 0xC2B2AE35) & word
    member = half[:, None] + 2 * half
    return ((number - member * (drop << 16)) & word) >= drop << 16


def pack(x: Tensor, models: int) -> Tensor:
    """Boards of all models one after another, (boards, cells, width), in cores."""
    return cores(x.unflatten(0, (models, -1)).flatten(1, 2)).flatten(0, 1)


def unpack(x: Tensor, models: int, like: Tensor) -> Tensor:
    cells = like.shape[0] * like.shape[1] // models
    return uncored(x.unflatten(0, (models, -1)), cells).reshape(like.shape)


CASES = [(2, 1, 14, 0.01), (6, 1, 81, 0.25), (3, 3, 49, 0.01), (1, 1, 128, 0.0), (1, 1, 196, 0.01), (1, 1, 272, 0.25)]
CASES += [(1, 1, 528, 0.01)]
ON_A_CARD = [(3, 1, cells, p) for cells in (14, 49, 81, 128, 196, 272, 512, 528, 900) for p in (0.01, 0.25)]


@pytest.mark.parametrize(
    ("on", "boards", "models", "cells", "dropout"),
    [
        *(pytest.param(emulated.values[0], *case, marks=emulated.marks) for case in CASES),
        *(pytest.param(hopper.values[0], *case, marks=hopper.marks) for case in CASES + ON_A_CARD),
    ],
    indirect=["on"],
)
def test_attention_with_dropout(on: str, boards: int, models: int, cells: int, dropout: float):
    """48 heads of 81 cells are more than the one emulated multiprocessor has room for: blocks go on to others."""
    heads, drop, seed = 8, round(dropout * attention.SCALE), 12345
    torch.manual_seed(cells)
    qkv, dout = (torch.randn(boards, cells, width, device=on).bfloat16() for width in (384, 128))
    packed, numbers = pack(qkv, models), torch.tensor([seed], device=on)
    out, lse = attention.forward(packed, boards, cells, numbers, heads, dropout, models=models)
    dqkv = attention.backward(packed, numbers, out, lse, pack(dout, models), dropout, models=models)
    x = qkv.double().requires_grad_()
    q, k, v = x.unflatten(-1, (3, heads, -1)).permute(2, 0, 3, 1, 4)
    kept = keep(seed, boards * heads, cells, drop, on).view(boards, heads, cells, cells)
    assert abs(float(kept.double().mean()) - (1 - dropout)) < 0.02
    logits = q @ k.mT / 4
    scale = attention.SCALE / (attention.SCALE - drop)
    mixed = (logits.softmax(-1) * kept * scale @ v).transpose(1, 2).flatten(2)
    (gradient,) = torch.autograd.grad(mixed, x, dout.double())
    assert distance(unpack(out, models, mixed), mixed.detach()) < 5e-3
    assert distance(lse, logits.detach().logsumexp(-1) / torch.tensor(2.0).log()) < 1e-3
    for mine, true in zip(unpack(dqkv, models, qkv).split(128, -1), gradient.split(128, -1), strict=True):
        assert distance(mine, true) < 5e-3


@pytest.mark.parametrize("on", [emulated, hopper], indirect=True)
@pytest.mark.parametrize("cells", [81, 272])
def test_attention_far_below_zero_has_finite_gradients(on: str, cells: int):
    """All true logits near -120: padding keys, whose logit is 0, must not count."""
    torch.manual_seed(0)
    boards, seed = 1, torch.zeros(1, dtype=torch.int64, device=on)
    qkv = torch.randn(boards, cells, 384, device=on) * 0.1
    qkv[..., :128] += 5.5
    qkv[..., 128:256] -= 5.5  # q k / 4 = -121
    packed = pack(qkv.bfloat16(), 1)
    out, lse = attention.forward(packed, boards, cells, seed, 8, 0.0)
    assert float(lse.max()) < -128
    dqkv = attention.backward(packed, seed, out, lse, torch.randn_like(out), 0.0)
    assert bool(unpack(dqkv, 1, qkv).isfinite().all())


@pytest.mark.parametrize("on", [emulated, hopper], indirect=True)
@pytest.mark.parametrize("cells", [196, 272])
@pytest.mark.parametrize("size", [2.0, 6.0])
def test_logits_far_above_those_of_the_first_keys(on: str, cells: int, size: float):
    """The first chunk's largest logit stands for all chunks: a rise by 32 is within its range, by 288 is not."""
    torch.manual_seed(0)
    qkv = torch.randn(1, cells, 384, device=on) * 0.1
    qkv[..., :128] += size
    qkv[..., 128:256] += torch.where(torch.arange(cells, device=on) < 150, -size, size)[:, None]  # q k / 4 = +-4 size^2
    qkv = qkv.bfloat16()
    out, lse = attention.forward(pack(qkv, 1), 1, cells, torch.zeros(1, dtype=torch.int64, device=on), 8, 0.0)
    q, k, v = qkv.double().unflatten(-1, (3, 8, -1)).permute(2, 0, 3, 1, 4)
    logits = q @ k.mT / 4
    assert distance(unpack(out, 1, qkv[..., :128]), (logits.softmax(-1) @ v).transpose(1, 2).flatten(2)) < 5e-3
    assert distance(lse, logits.logsumexp(-1) / torch.tensor(2.0).log()) < 1e-3
