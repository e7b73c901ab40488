"""Attention for heads of size 16 is one kernel per direction; see attention.cu."""

from __future__ import annotations

import torch
from torch import Tensor

from letgo.engines.cuda import kernel, multiprocessors

SIZE = 16  # the head size that the kernels are written for
MOST_CELLS = 1152  # whose keys and values fit twice in a multiprocessor's shared memory
MOST_DROPOUT = 0.25  # four weights that drop out one at a time share a number
SCALE = 65536  # dropout probabilities are whole multiples of 1 / SCALE


def padded(cells: int) -> int:
    return -(-cells // 8) * 8


def forward(
    qkv: Tensor, boards: int, cells: int, seed: Tensor, heads: int, dropout: float, site: int = 0, models: int = 1
) -> tuple[Tensor, Tensor]:
    """Return mixed values and each row's log-sum-exp (base 2), from packed qkv in cores, model after model.

    Dropout follows `seed`, one int64 on the device, and `site`.
    """
    out = qkv.new_empty(len(qkv), heads * SIZE)
    lse = torch.empty(boards, heads, cells, device=qkv.device)
    tiles = -(-cells // 16)
    threads = 32 * min(tiles, 16)
    numbers = {"N": cells, "HEADS": heads, "DROP": round(dropout * SCALE)}
    ahead, items = cells <= 128, boards * heads  # AHEAD, and below BUFFER and RESIDENT, of attention.cu
    resident = 960 // threads * multiprocessors(qkv.device)
    blocks = resident if ahead and items > 8 * resident else items  # few are spread better by the card itself
    launch = kernel("attention.cu", "attention_forward", (6 if ahead else 2) * tiles * 16 * 48, **numbers)
    launch((blocks,), threads, qkv, seed, out, lse, boards // models, items, site)
    return out, lse


def backward(
    qkv: Tensor, seed: Tensor, out: Tensor, lse: Tensor, dout: Tensor, dropout: float, site: int = 0, models: int = 1
) -> Tensor:
    """Return the gradient at the packed qkv, in cores."""
    boards, heads, cells = lse.shape
    dqkv = torch.empty_like(qkv)
    tiles = -(-cells // 16)
    groups = tiles if tiles <= 16 else -(-tiles // 2)  # KEYS and GROUPS, below ROUNDS and CREW of attention.cu
    crew = -(-groups // -(-groups // 16))
    numbers = {"N": cells, "HEADS": heads, "DROP": round(dropout * SCALE)}
    launch = kernel("attention.cu", "attention_backward", tiles * 16 * 168, **numbers)
    launch((boards * heads,), 32 * crew, qkv, seed, out, lse, dout, dqkv, boards // models, site)
    return dqkv
