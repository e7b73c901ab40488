"""Attention for boards of at most 128 cells in one Triton program per (board, head).

All keys of a board fit in one tile, so the softmax needs no running maximum, and the backward pass recomputes the
weights from q and k instead of storing them. Dropout keeps no mask: it is a hash of (seed, head, row, column).
Reads the packed output of the qkv projection and writes packed gradients, so that no transposition is ever stored.
"""

# pyright: reportMissingImports=false, reportIndexIssue=false, reportArgumentType=false
# pyright: reportOptionalMemberAccess=false, reportCallIssue=false, reportGeneralTypeIssues=false

import torch
import triton
import triton.language as tl
from torch import Tensor

ROWS = 32  # query rows handled at a time


@triton.jit
def _keep(seed, program, rows, columns, threshold):
    """True with probability 1 - threshold / 2^32: Murmur3's finaliser of a counter."""
    x = (program * 16384 + rows[:, None] * 128 + columns[None, :]).to(tl.uint32) * 0x9E3779B1 + seed
    x = (x ^ (x >> 16)) * 0x85EBCA6B
    x = (x ^ (x >> 13)) * 0xC2B2AE35
    return (x ^ (x >> 16)) >= threshold


@triton.jit
def _weights(q, k, columns, scale, CELLS: tl.constexpr):
    logits = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
    logits = tl.where(columns[None, :] < CELLS, logits, float("-inf"))
    p = tl.exp(logits - tl.max(logits, 1)[:, None])
    return p / tl.sum(p, 1)[:, None]


@triton.jit
def _forward(
    qkv, out, seeds, threshold, upscale, scale,
    CELLS: tl.constexpr, HEADS: tl.constexpr, SIZE: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr,
    DROPOUT: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    board, head = program // HEADS, program % HEADS
    width: tl.constexpr = HEADS * SIZE
    columns, depth = tl.arange(0, COLUMNS), tl.arange(0, SIZE)
    start = qkv + board.to(tl.int64) * CELLS * 3 * width + head * SIZE
    column_at = columns[:, None] * 3 * width + depth[None, :]
    inside = columns[:, None] < CELLS
    k = tl.load(start + width + column_at, inside, 0.0)
    v = tl.load(start + 2 * width + column_at, inside, 0.0)
    seed = tl.load(seeds).to(tl.uint32)
    for first in tl.static_range(0, CELLS, ROWS):
        rows = first + tl.arange(0, ROWS)
        row_inside = rows[:, None] < CELLS
        q = tl.load(start + rows[:, None] * 3 * width + depth[None, :], row_inside, 0.0)
        p = _weights(q, k, columns, scale, CELLS)
        if DROPOUT:
            p = tl.where(_keep(seed, program, rows, columns, threshold), p * upscale, 0.0)
        mixed = tl.dot(p.to(v.dtype), v, input_precision="ieee")
        out_at = (board.to(tl.int64) * CELLS + rows[:, None]) * width + head * SIZE + depth[None, :]
        tl.store(out + out_at, mixed.to(out.dtype.element_ty), row_inside)


@triton.jit
def _backward(
    qkv, dout, dqkv, seeds, threshold, upscale, scale,
    CELLS: tl.constexpr, HEADS: tl.constexpr, SIZE: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr,
    DROPOUT: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    board, head = program // HEADS, program % HEADS
    width: tl.constexpr = HEADS * SIZE
    columns, depth = tl.arange(0, COLUMNS), tl.arange(0, SIZE)
    offset = board.to(tl.int64) * CELLS * 3 * width + head * SIZE
    column_at = columns[:, None] * 3 * width + depth[None, :]
    inside = columns[:, None] < CELLS
    k = tl.load(qkv + offset + width + column_at, inside, 0.0)
    v = tl.load(qkv + offset + 2 * width + column_at, inside, 0.0)
    dk = tl.zeros((COLUMNS, SIZE), tl.float32)
    dv = tl.zeros((COLUMNS, SIZE), tl.float32)
    seed = tl.load(seeds).to(tl.uint32)
    for first in tl.static_range(0, CELLS, ROWS):
        rows = first + tl.arange(0, ROWS)
        row_inside = rows[:, None] < CELLS
        row_at = offset + rows[:, None] * 3 * width + depth[None, :]
        q = tl.load(qkv + row_at, row_inside, 0.0)
        out_at = (board.to(tl.int64) * CELLS + rows[:, None]) * width + head * SIZE + depth[None, :]
        do = tl.load(dout + out_at, row_inside, 0.0)  # zero rows beyond the board give zero gradients
        p = _weights(q, k, columns, scale, CELLS)
        dp = tl.dot(do, tl.trans(v), input_precision="ieee")
        used = p
        if DROPOUT:
            kept = _keep(seed, program, rows, columns, threshold)
            used = tl.where(kept, p * upscale, 0.0)
            dp = tl.where(kept, dp * upscale, 0.0)
        dv += tl.dot(tl.trans(used.to(do.dtype)), do, input_precision="ieee")
        ds = (p * (dp - tl.sum(p * dp, 1)[:, None]) * scale).to(q.dtype)
        dk += tl.dot(tl.trans(ds), q, input_precision="ieee")
        dq = tl.dot(ds, k, input_precision="ieee")
        tl.store(dqkv + row_at, dq.to(dqkv.dtype.element_ty), row_inside)
    tl.store(dqkv + offset + width + column_at, dk.to(dqkv.dtype.element_ty), inside)
    tl.store(dqkv + offset + 2 * width + column_at, dv.to(dqkv.dtype.element_ty), inside)


def _arguments(qkv: Tensor, dropout: float) -> tuple[tuple[int], list[float], dict[str, int]]:
    batch, cells, _, heads, size = qkv.shape
    numbers = [int(dropout * 2**32), 1 / (1 - dropout), size**-0.5]
    shape = {"CELLS": cells, "HEADS": heads, "SIZE": size, "ROWS": ROWS, "DROPOUT": dropout > 0}
    return (batch * heads,), numbers, {**shape, "COLUMNS": max(16, triton.next_power_of_2(cells)), "num_warps": 4}


@torch.library.custom_op("letgo::attention", mutates_args=())
def attention(qkv: Tensor, seeds: Tensor, dropout: float) -> Tensor:
    batch, cells, _, heads, size = qkv.shape
    out = qkv.new_empty(batch, cells, heads, size)
    grid, numbers, constants = _arguments(qkv, dropout)
    _forward[grid](qkv, out, seeds, *numbers, **constants)
    return out


@torch.library.custom_op("letgo::attention_backward", mutates_args=())
def attention_backward(qkv: Tensor, dout: Tensor, seeds: Tensor, dropout: float) -> Tensor:
    dqkv = torch.empty_like(qkv)
    grid, numbers, constants = _arguments(qkv, dropout)
    _backward[grid](qkv, dout, dqkv, seeds, *numbers, **constants)
    return dqkv


@attention.register_fake
def _(qkv, seeds, dropout):
    batch, cells, _, heads, size = qkv.shape
    return qkv.new_empty(batch, cells, heads, size)


@attention_backward.register_fake
def _(qkv, dout, seeds, dropout):
    return torch.empty_like(qkv)


def _save(ctx, inputs, output):
    qkv, seeds, ctx.dropout = inputs
    ctx.save_for_backward(qkv, seeds)


def _gradient(ctx, dout):
    qkv, seeds = ctx.saved_tensors
    return attention_backward(qkv, dout.contiguous(), seeds, ctx.dropout), None, None


attention.register_autograd(_gradient, setup_context=_save)


def fused(qkv: Tensor, dropout: float) -> Tensor:
    """The same as `plain` but for which weights dropout hits."""
    seeds = torch.randint(2**31, (1,), device=qkv.device) if dropout > 0 else qkv.new_zeros(1, dtype=torch.int64)
    return attention(qkv.contiguous(), seeds, dropout)
