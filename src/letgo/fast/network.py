"""The Transformer with fused blocks, for one model or several stacked ones, its weights in one flat matrix."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from letgo.fast.blocks import Shape, blocks
from letgo.models.transformer import Transformer


def cores(x: Tensor) -> Tensor:
    """(models, cells, width) as the kernels keep it: 8 x 8 cores, eight cells by eight features (see warp.cuh)."""
    x = pad(x, (0, 0, 0, -x.shape[1] % 8))
    return x.unflatten(1, (-1, 8)).unflatten(3, (-1, 8)).transpose(2, 3).reshape(x.shape)


def uncored(x: Tensor, count: int) -> Tensor:
    """Back to rows, the first `count` of each model."""
    models, rows, width = x.shape
    return x.view(models, rows // 8, width // 8, 8, 8).transpose(2, 3).reshape(x.shape)[:, :count]


class FastTransformer(nn.Module):
    """Called like the Transformer it was made from, with its weights given: rows of `flat`, in the order of `names`.

    With several rows the batch holds the models' boards in turn: board i belongs to model i % models.
    """

    def __init__(self, network: Transformer):
        super().__init__()
        first, block = network.blocks[0].mlp[0], network.blocks[0]
        self.network, self.heads, self.hidden = network, block.attention.heads, first.out_features
        self.dropout, self.depth = block.attention.dropout, len(network.blocks)
        shapes = {name: p.shape for name, p in network.named_parameters()}
        mine = Shape(1, 1, 1, self.heads, self.hidden, self.depth, 0.0).names
        self.names = [*mine, *(name for name in shapes if name not in set(mine))]
        self.shapes = {name: shapes[name] for name in self.names}
        self.blocks_size = sum(shapes[name].numel() for name in mine)

    def split(self, flat: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """The blocks' weights, and the other parameters, each (models, ...)."""
        others = [name for name in self.names if not name.startswith("blocks.")]
        inner, *parts = flat.split([self.blocks_size, *(self.shapes[name].numel() for name in others)], 1)
        return inner, {name: part.unflatten(1, self.shapes[name]) for name, part in zip(others, parts, strict=True)}

    def forward(self, flat: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        models, (inner, w) = len(flat), self.split(flat)
        x = x_t.unflatten(0, (-1, models)).transpose(0, 1)  # (models, boards, cells, dim)
        time = t.view(-1, models).T[..., None]  # (models, boards, 1)

        def linear(x: Tensor, name: str) -> Tensor:
            """Narrow sides are filled up to 16 with zeros: unaligned products are several times slower."""
            weight = w[f"{name}.weight"]
            short, thin = max(0, 16 - weight.shape[1]), max(0, 16 - weight.shape[2])
            y = torch.matmul(pad(x, (0, thin)), pad(weight, (0, thin, 0, short)).mT)
            return y[..., : weight.shape[1]] + w[f"{name}.bias"][:, None]

        angle = 2 * math.pi * time * self.network.time.frequencies
        when = nn.functional.silu(linear(torch.cat([angle.sin(), angle.cos()], -1), "time.mlp.0"))
        when = linear(when, "time.mlp.2")[:, :, None]
        tables = enumerate(self.network.positions)
        place = sum(w[f"tables.{i}.weight"][:, row] for i, row in tables)
        boards, cells = x.shape[1:3]
        hidden = linear(x.flatten(1, 2), "embed").unflatten(1, (boards, cells)) + place[:, None] + when
        dropout = self.dropout if self.training else 0.0
        seed = torch.randint(2**31, (1,), device=x.device) if dropout > 0 else x.new_zeros(1, dtype=torch.int64)
        numbers = (boards, cells, self.heads, self.hidden, self.depth, dropout, torch.is_grad_enabled())
        y = blocks(cores(hidden.flatten(1, 2).float()), inner.contiguous(), seed, *numbers)[0]
        y = nn.functional.layer_norm(uncored(y, boards * cells), y.shape[-1:])
        y = y * w["norm.weight"][:, None] + w["norm.bias"][:, None]
        out = linear(y, "head").unflatten(1, (boards, cells))
        return out.transpose(0, 1).flatten(0, 1).to(x_t.dtype)
