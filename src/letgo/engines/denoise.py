"""The whole network is one operation here, for sampling: one model, all boards at the same time, nothing saved."""

import torch
from torch import Tensor

from letgo.engines.attention import padded
from letgo.engines.blocks import WIDTH, Shape, arranged, layer_forward
from letgo.engines.cuda import multiprocessors

MOST_SYMBOLS = 16  # a state's dimension is one step of the tensor cores


@torch.library.custom_op("letgo::denoise", mutates_args=(), device_types="cuda")
def denoise(x_t: Tensor, base: Tensor, flat: Tensor, ends: list[Tensor], heads: int, hidden: int, depth: int) -> Tensor:
    """Return x0_hat of states (boards, cells, dim), the residual stream in bf16.

    `base` holds what each cell adds to its embedding: place, time and bias. `flat` are the blocks' weights; `ends` the
    embedding's, the last norm's gain and shift, the head's weight and bias.
    """
    boards, cells, dim = x_t.shape
    shape = Shape(1, boards, cells, heads, hidden, depth, 0.0, multiprocessors(x_t.device), half=True)
    embedding, *last = ends
    x = x_t.new_empty(1, padded(shape.tokens), WIDTH, dtype=torch.bfloat16)
    shape.launch("embed", x_t, embedding, base, x, shape.tokens, cells, dim)
    half, seed = arranged(shape, flat), torch.zeros(1, dtype=torch.int64, device=x.device)
    for layer in range(depth):
        x, _ = layer_forward(shape, layer, x, flat, half, seed, save=False)
    out = torch.empty_like(x_t)
    shape.launch("head", x, *last, out, shape.tokens, dim)
    return out


@denoise.register_fake
def _(x_t, base, flat, ends, heads, hidden, depth):
    return torch.empty_like(x_t)
