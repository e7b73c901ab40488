"""The stack of Transformer blocks is one operation with its own backward pass: fused kernels, no autograd inside.

Several models of one shape can be stacked: their weights lie in the rows of one matrix, their boards side by side.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from letgo.engines import attention
from letgo.engines.cuda import kernel, multiprocessors
from letgo.engines.reference import block_backward, block_forward, cores, uncored

MATRICES = ("attention.qkv.weight", "attention.out.weight", "mlp.0.weight", "mlp.2.weight")
VECTORS = (
    "attention.qkv.bias", "attention.out.bias", "mlp.0.bias", "mlp.2.bias",
    "norm1.weight", "norm1.bias", "norm2.weight", "norm2.bias",
)  # fmt: skip
WIDTH = 128  # that the kernels are written for
SAVED = 4  # tensors that a layer keeps for its backward pass, besides its input


@dataclass(frozen=True)
class Shape:
    """A Shape says how many models are stacked, their boards and cells, and the network's own numbers."""

    models: int
    boards: int
    cells: int
    heads: int
    hidden: int
    depth: int
    dropout: float
    multiprocessors: int = 132
    half: bool = False  # the residual stream in bf16

    def warps(self, name: str) -> int:
        """Return the warps of a block: twelve share the weights they fetch, four spread few tiles of 64 cells wider."""
        tiles = self.models * -(-self.tokens // 64)
        loops = name in LOOPING or name == "arrange"  # which does not care: so the file is not compiled once more
        most = tiles if loops else 3 * self.multiprocessors
        return 12 if 2 * self.multiprocessors < tiles <= most else 4

    @property
    def tokens(self) -> int:
        return self.boards * self.cells

    @property
    def rows(self) -> int:
        """Return the rows of a tensor in cores: each model's cells, rounded up to whole cores."""
        return self.models * attention.padded(self.tokens)

    @property
    def layer(self) -> int:
        """Return how many numbers a layer has in all its parameters."""
        return sum(self.sizes)

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Return the shapes of MATRICES and VECTORS."""
        matrices = [(3 * WIDTH, WIDTH), (WIDTH, WIDTH), (self.hidden, WIDTH), (WIDTH, self.hidden)]
        return [*matrices, *((size,) for size in (3 * WIDTH, WIDTH, self.hidden, *[WIDTH] * 5))]

    @property
    def sizes(self) -> list[int]:
        return [math.prod(shape) for shape in self.shapes]

    @cached_property
    def names(self) -> list[str]:
        return [f"blocks.{i}.{name}" for i in range(self.depth) for name in (*MATRICES, *VECTORS)]

    def kernel(self, name: str) -> Any:
        """Return a kernel of blocks.cu."""
        warps, drop = self.warps(name), round(self.dropout * attention.SCALE)
        numbers = {"HIDDEN": self.hidden, "WARPS": warps, "BLOCKS": 12 // warps, "HALF": int(self.half)}
        return kernel("blocks.cu", name, shared_memory(name, warps), DROP=drop, **numbers)

    def launch(self, name: str, *arguments: Tensor | int) -> None:
        """Run a kernel of blocks.cu over all cells."""
        run, warps = self.kernel(name), self.warps(name)
        count = -(-self.tokens // (16 * warps))
        if name in LOOPING:
            count = min(count, max(1, 12 // warps * self.multiprocessors // self.models))
        run((count, self.models), 32 * warps, *arguments)


PIECE, GROUP = 8192, 16_384  # as in blocks.cu, in bytes
LOOPING = ("qkv_forward", "mlp_forward", "embed", "head")  # blocks that go on to other cells when they are done


def shared_memory(name: str, warps: int) -> int:
    """Return the bytes of shared memory that a block of this kernel needs."""
    ring = 6 if warps > 4 else 3
    pieces = {"qkv_forward": 12, "mlp_forward": 2 * ring + 5, "mlp_backward": 2 * ring, "qkv_backward": ring}
    more = {"mlp_backward": warps // 4 * 2 * GROUP, "qkv_backward": warps * 1024}
    return pieces.get(name, 0) * PIECE + more.get(name, 0)


def arranged(shape: Shape, flat: Tensor) -> Tensor:
    """Return the weights in bf16, in the order in which the kernels fetch them."""
    half = torch.empty_like(flat, dtype=torch.bfloat16)
    shape.kernel("arrange")((-(-flat.shape[1] // 2048), shape.models), 256, flat, half, flat.shape[1], shape.layer)
    return half


def layer_forward(
    shape: Shape, layer: int, x: Tensor, flat: Tensor, half: Tensor, seed: Tensor, save: bool
) -> tuple[Tensor, list[Tensor]]:
    """Compute one block; return its output and what its backward pass needs."""
    where = (shape.tokens, flat.shape[1], layer * shape.layer)
    qkv = half.new_empty(shape.rows, 3 * WIDTH)
    boards = shape.models * shape.boards
    shape.launch("qkv_forward", x, half, flat, qkv, *where)
    mixed, lse = attention.forward(qkv, boards, shape.cells, seed, shape.heads, shape.dropout, layer, shape.models)
    y = torch.empty_like(x)
    mid = torch.empty_like(x) if save else y
    shape.launch("mlp_forward", mixed, x, half, flat, seed, mid, y, *where, layer)
    return y, [qkv, mixed, lse, mid] if save else []


def layer_backward(
    shape: Shape,
    layer: int,
    dy: Tensor,
    x: Tensor,
    saved: list[Tensor],
    flat: Tensor,
    half: Tensor,
    seed: Tensor,
    grads: Tensor,
) -> Tensor:
    """Return the gradient at the block's input; those of its weights are added to `grads`."""
    qkv, mixed, lse, mid = saved
    where = (shape.tokens, flat.shape[1], layer * shape.layer)
    dmid, dx = torch.empty_like(x), torch.empty_like(x)
    dmixed, n1, n2, dstep1, dstep2 = (torch.empty_like(mixed) for _ in range(5))
    hidden, dhidden = (half.new_empty(shape.rows, shape.hidden) for _ in range(2))
    outputs = (dmid, dmixed, hidden, dhidden, n2, dstep1, dstep2, grads)
    shape.launch("mlp_backward", dy, mid, half, flat, seed, *outputs, *where, layer)
    dqkv = attention.backward(qkv, seed, mixed, lse, dmixed, shape.dropout, layer, shape.models)
    shape.launch("qkv_backward", dqkv, dmid, x, half, flat, dx, n1, grads, *where)
    weight_gradients(shape, (n1, dqkv, mixed, dstep1, n2, dhidden, hidden, dstep2), grads, where)
    return dx


def weight_gradients(shape: Shape, operands: tuple[Tensor, ...], grads: Tensor, where: tuple[int, int, int]) -> None:
    tiles = 4 + 2 * (shape.hidden // WIDTH)
    pieces = max(1, 2 * shape.multiprocessors // (tiles * shape.models))
    chunk = -(-shape.tokens // (64 * pieces)) * 64
    launch = kernel("weights.cu", "weight_gradients", 3 * 32_768 + 256, HIDDEN=shape.hidden)
    launch((tiles, -(-shape.tokens // chunk), shape.models), 256, *operands, grads, *where, chunk)


@torch.library.custom_op("letgo::blocks", mutates_args=(), device_types="cuda")
def blocks(
    x: Tensor,
    flat: Tensor,
    seed: Tensor,
    boards: int,
    cells: int,
    heads: int,
    hidden: int,
    depth: int,
    dropout: float,
    save: bool,
) -> list[Tensor]:
    """Take cells in cores (models, rows, width) through all blocks: output, inputs of layers 1.., SAVED a layer."""
    bf16 = x.dtype == torch.bfloat16
    assert not (bf16 and save), "training keeps the residual stream in fp32"
    shape = Shape(len(x), boards, cells, heads, hidden, depth, dropout, multiprocessors(x.device), bf16)
    half = arranged(shape, flat)
    outputs, rest = [], []
    for layer in range(depth):
        x, saved = layer_forward(shape, layer, x, flat, half, seed, save)
        outputs.append(x)
        rest += saved
    return [outputs[-1], *outputs[:-1], *rest] if save else [outputs[-1]]


@blocks.register_fake
def _(x, flat, seed, boards, cells, heads, hidden, depth, dropout, save):
    if not save:
        return [torch.empty_like(x)]
    models, rows, width = len(x), len(x) * x.shape[1], x.shape[2]

    def saved() -> list[Tensor]:
        packed = x.new_empty(rows, 3 * width, dtype=torch.bfloat16 if x.is_cuda else x.dtype)
        lse = x.new_empty(models * boards, heads, cells, dtype=torch.float32)
        return [packed, packed.new_empty(rows, width), lse, torch.empty_like(x)]

    return [torch.empty_like(x) for _ in range(depth)] + [tensor for _ in range(depth) for tensor in saved()]


@torch.library.custom_op("letgo::blocks_backward", mutates_args=(), device_types="cuda")
def blocks_backward(
    dy: Tensor,
    x: Tensor,
    saved: list[Tensor],
    flat: Tensor,
    seed: Tensor,
    boards: int,
    cells: int,
    heads: int,
    hidden: int,
    depth: int,
    dropout: float,
) -> tuple[Tensor, Tensor]:
    shape = Shape(len(x), boards, cells, heads, hidden, depth, dropout, multiprocessors(x.device))
    half, grads = arranged(shape, flat), torch.zeros_like(flat)
    inputs, rest = [x, *saved[: depth - 1]], saved[depth - 1 :]
    for layer in reversed(range(depth)):
        mine = rest[SAVED * layer : SAVED * (layer + 1)]
        dy = layer_backward(shape, layer, dy, inputs[layer], mine, flat, half, seed, grads)
    return dy, grads


@blocks_backward.register_fake
def _(dy, x, saved, flat, seed, boards, cells, heads, hidden, depth, dropout):
    return torch.empty_like(x), torch.empty_like(flat)


def _layers(shape: Shape, flat: Tensor) -> list[list[dict[str, Tensor]]]:
    """Return every model's layers, each a table of parameters by name."""

    def named(layer: Tensor) -> dict[str, Tensor]:
        parts = zip(layer.split(shape.sizes), shape.shapes, strict=True)
        return dict(zip((*MATRICES, *VECTORS), (part.view(size) for part, size in parts), strict=True))

    return [[named(layer) for layer in row.split(shape.layer)] for row in flat]


@blocks.register_kernel("cpu")
def _(x, flat, seed, boards, cells, heads, hidden, depth, dropout, save):
    assert dropout == 0, "the twin of the kernels knows no dropout"
    shape = Shape(len(x), boards, cells, heads, hidden, depth, dropout)
    outputs: list[list[Tensor]] = []
    for state, layers in zip(uncored(x, shape.tokens).to(flat.dtype), _layers(shape, flat), strict=True):
        states, rest = [], []
        for layer in layers:
            state, saved = block_forward(state, layer, boards, heads)
            states.append(cores(state[None])[0].to(x.dtype))
            rest += [v if v.ndim == 3 else cores(v[None])[0] for v in saved]
        outputs.append([states[-1], *states[:-1], *rest] if save else states[-1:])
    wide = {0, *range(depth), *range(depth + 3, depth + SAVED * depth, SAVED)}  # the residual stream has a models axis
    joined = [
        torch.stack(parts) if i in wide else torch.cat(parts) for i, parts in enumerate(zip(*outputs, strict=True))
    ]
    return joined


@blocks_backward.register_kernel("cpu")
def _(dy, x, saved, flat, seed, boards, cells, heads, hidden, depth, dropout):
    shape = Shape(len(x), boards, cells, heads, hidden, depth, dropout)
    grads, dxs, count = torch.zeros_like(flat), [], shape.tokens
    inputs, rest = [x, *saved[: depth - 1]], saved[depth - 1 :]

    def rows(value: Tensor, model: int) -> Tensor:
        return uncored(value.view(len(x), -1, value.shape[-1]), count)[model]

    for model, layers in enumerate(_layers(shape, flat)):
        d = rows(dy, model)
        for i in reversed(range(depth)):
            qkv, mixed, _, mid = rest[SAVED * i : SAVED * (i + 1)]
            mine = rows(qkv, model), rows(mixed, model), rows(mid, model)
            d, gradients = block_backward(d, rows(inputs[i], model), mine, layers[i], boards, heads)
            row = torch.cat([gradients[name].flatten() for name in (*MATRICES, *VECTORS)])
            grads[model, shape.layer * i : shape.layer * (i + 1)] = row
        dxs.append(cores(d[None])[0])
    return torch.stack(dxs), grads


def _save(ctx, inputs, output):
    x, flat, seed, *numbers = inputs
    ctx.numbers = numbers[:-1]
    ctx.save_for_backward(x, flat, seed, *output[1:])


def _gradient(ctx, dys):
    x, flat, seed, *saved = ctx.saved_tensors
    dx, grads = blocks_backward(dys[0].contiguous(), x, saved, flat, seed, *ctx.numbers)
    return dx, grads, *[None] * 8


blocks.register_autograd(_gradient, setup_context=_save)
