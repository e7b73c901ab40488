"""The Transformer with fused blocks serves one model or several stacked ones, their weights in one flat matrix."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from letgo.engines.blocks import Shape, blocks
from letgo.engines.denoise import MOST_SYMBOLS, denoise
from letgo.engines.reference import core_norm, cores, uncored
from letgo.models.looped import LoopedTransformer, clue_cells
from letgo.models.transformer import Transformer


class FastTransformer(nn.Module):
    """It is called like the Transformer it stands for, with the weights first: rows of `flat`, in the order of `names`.

    With several rows the batch holds the models' boards in turn: board i belongs to model i % models.
    """

    def __init__(self, network: Transformer):
        super().__init__()
        self.network = network
        shapes = {name: p.shape for name, p in network.named_parameters()}
        mine = Shape(1, 1, 1, network.heads, network.hidden, network.depth, 0.0).names
        self.names = [*mine, *(name for name in shapes if name not in set(mine))]
        self.shapes = {name: shapes[name] for name in self.names}
        self.blocks_size = sum(shapes[name].numel() for name in mine)

    def split(self, flat: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the blocks' weights, and the other parameters, each (models, ...)."""
        others = [name for name in self.names if not name.startswith("blocks.")]
        inner, *parts = flat.split([self.blocks_size, *(self.shapes[name].numel() for name in others)], 1)
        return inner, {name: part.unflatten(1, self.shapes[name]) for name, part in zip(others, parts, strict=True)}

    def forward(self, flat: Tensor, x_t: Tensor, t: Tensor, every_turn: bool = False) -> Tensor:
        net, models, (inner, w) = self.network, len(flat), self.split(flat)
        x = x_t.unflatten(0, (-1, models)).transpose(0, 1)  # (models, boards, cells, dim)
        time = t.view(-1, models).T[..., None]  # (models, boards, 1)

        def linear(x: Tensor, name: str) -> Tensor:
            """Fill narrow sides up to 16 with zeros: unaligned products are several times slower."""
            weight = w[f"{name}.weight"]
            short, thin = max(0, 16 - weight.shape[1]), max(0, 16 - weight.shape[2])
            y = torch.matmul(pad(x, (0, thin)), pad(weight, (0, thin, 0, short)).mT)
            return y[..., : weight.shape[1]] + w[f"{name}.bias"][:, None]

        angle = 2 * math.pi * time * net.time.frequencies
        when = nn.functional.silu(linear(torch.cat([angle.sin(), angle.cos()], -1), "time.mlp.0"))
        when = linear(when, "time.mlp.2")[:, :, None]
        place = torch.stack([w[f"tables.{i}.weight"][:, row] for i, row in enumerate(net.positions)]).sum(0)
        boards, cells = x.shape[1:3]
        looped = isinstance(net, LoopedTransformer)
        if x.is_cuda and not self.training and not looped and models == len(t) == 1 and x.shape[-1] <= MOST_SYMBOLS:
            base = (place[0] + when[0, 0] + w["embed.bias"]).float().contiguous()
            names = ("embed.weight", "norm.weight", "norm.bias", "head.weight", "head.bias")
            ends, numbers = [w[name][0].contiguous() for name in names], (net.heads, net.hidden, net.depth)
            raw = denoise(x_t.float().contiguous(), base, inner.contiguous(), ends, *numbers)
            return net.answer(x_t, t, raw).to(x_t.dtype)
        hidden = linear(x.flatten(1, 2), "embed").unflatten(1, (boards, cells)) + place[:, None] + when
        if looped:
            hidden = hidden + clue_cells(x_t).unflatten(0, (-1, models)).transpose(0, 1) * w["mark"][:, None, None]
        dropout = net.dropout if self.training else 0.0
        # Sampling is bound by memory as much as by arithmetic: there the residual stream is bf16.
        stream = torch.float32 if self.training else torch.bfloat16
        save = self.training and torch.is_grad_enabled()
        numbers = (boards, cells, net.heads, net.hidden, net.depth, dropout, save)
        inner, answers = inner.contiguous(), []
        turns = net.turns if looped else 1
        entered = cores(hidden.flatten(1, 2).to(torch.float32 if looped else stream))
        state = entered
        for turn in range(turns):
            seed = torch.randint(2**31, (1,), device=x.device) if dropout > 0 else x.new_zeros(1, dtype=torch.int64)
            y = blocks(state.to(stream), inner, seed, *numbers)[0]
            if every_turn or turn == turns - 1:
                normal = nn.functional.layer_norm(uncored(y, boards * cells).float(), y.shape[-1:])
                normal = normal * w["norm.weight"][:, None] + w["norm.bias"][:, None]
                out = linear(normal, "head").unflatten(1, (boards, cells))
                answers.append(out.transpose(0, 1).flatten(0, 1))
            if turn < turns - 1:  # between turns the state is fp32 and stays in cores
                state = entered + core_norm(y.float(), w["again.weight"], w["again.bias"], boards * cells)
        if every_turn:
            return torch.stack(answers, 1)
        return net.answer(x_t, t, answers[-1]).to(x_t.dtype)
